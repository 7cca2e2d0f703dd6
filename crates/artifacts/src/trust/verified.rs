//! Cache of verified artifacts.

use std::{
    num::NonZeroUsize,
    sync::{Mutex, MutexGuard, PoisonError},
};

use lru::LruCache;

use crate::Digest;

const REMEMBERED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(16_383);

/// Digest of content, and of the trust by which it was verified.
pub(crate) type Passed = (Digest, Digest);

/// Content with a trusted signature, by the trust: with other trust, be it another key or another component, it is
/// verified again. Limited; the least recently used are evicted first.
pub(crate) struct Verified(Mutex<LruCache<Passed, ()>>);

impl Verified {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(LruCache::new(REMEMBERED)))
    }

    pub(crate) fn holds(&self, passed: Passed) -> bool {
        self.passed().get(&passed).is_some()
    }

    pub(crate) fn remember(&self, passed: Passed) {
        self.passed().put(passed, ());
    }

    fn passed(&self) -> MutexGuard<'_, LruCache<Passed, ()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
