//! What is kept in memory to be used again, within bounds.

use std::borrow::Borrow;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

/// A cache with bounds on number and bytes; least recently used first out.
pub(crate) struct BoundedCache<K, V> {
    kept: Mutex<LruCache<K, V>>,
    bytes: usize,
    size: fn(&V) -> usize,
}

impl<K: Hash + Eq, V: Clone> BoundedCache<K, V> {
    /// Of at most so many values, of which `size` tells the bytes, and so many bytes.
    pub(crate) fn new(values: NonZeroUsize, bytes: usize, size: fn(&V) -> usize) -> Self {
        Self { kept: Mutex::new(LruCache::new(values)), bytes, size }
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.kept().get(key).cloned()
    }

    pub(crate) fn put(&self, key: K, value: V) {
        let mut kept = self.kept();
        if (self.size)(&value) > self.bytes {
            // It would push out all others, and then itself.
            kept.pop(&key);
            return;
        }
        kept.put(key, value);
        let mut bytes: usize = kept.iter().map(|(_, value)| (self.size)(value)).sum();
        while bytes > self.bytes {
            let Some((_, out)) = kept.pop_lru() else { break };
            bytes -= (self.size)(&out);
        }
    }

    fn kept(&self) -> MutexGuard<'_, LruCache<K, V>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_makes_place() {
        let cache = BoundedCache::new(NonZeroUsize::new(3).unwrap(), 100, |text: &String| text.len());
        let put = |key: &'static str, bytes: usize| cache.put(key, "x".repeat(bytes));
        for key in ["a", "b", "c"] {
            put(key, 10);
        }
        assert!(cache.get("a").is_some());
        put("d", 10);
        assert!(cache.get("b").is_none(), "four are too many");
        put("e", 85);
        let held = ["a", "c", "d", "e"].map(|key| cache.get(key).is_some());
        assert_eq!(held, [false, false, true, true], "more would be too large");
        put("f", 101);
        let held = ["d", "e", "f"].map(|key| cache.get(key).is_some());
        assert_eq!(held, [true, true, false], "larger than all together");
    }
}
