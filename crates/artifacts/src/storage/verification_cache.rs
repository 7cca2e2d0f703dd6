//! Cache of verified artifacts.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use crate::storage::digest::Digest;

const MAX_ENTRIES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(16_383);

/// Digest of content, and of the trust by which it was verified.
pub(crate) type VerificationKey = (Digest, Digest);

/// Content with a trusted signature, by the trust: with other trust, be it another key or another component, it is
/// verified again. Limited; the least recently used are evicted first.
pub(crate) struct VerificationCache(Mutex<LruCache<VerificationKey, ()>>);

impl VerificationCache {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(LruCache::new(MAX_ENTRIES)))
    }

    pub(crate) fn holds(&self, key: VerificationKey) -> bool {
        self.0.lock().get(&key).is_some()
    }

    pub(crate) fn remember(&self, key: VerificationKey) {
        self.0.lock().put(key, ());
    }
}
