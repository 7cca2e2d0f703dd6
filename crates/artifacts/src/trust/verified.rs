//! Verified artifacts and their signers.

use std::{
    num::NonZeroUsize,
    sync::{Mutex, MutexGuard, PoisonError},
};

use lru::LruCache;

use crate::Digest;

const REMEMBERED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(16_383);

/// Digest of content, and of the trust by which it passed.
pub(crate) type Passed = (Digest, Digest);

/// Content that carries a signature that counts, by whose signatures count: other trust, be it by another key or by
/// another component, looks anew. Bounded, least recently used go first.
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
