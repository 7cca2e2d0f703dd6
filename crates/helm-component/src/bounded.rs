//! A cache with a bounded number of values and bytes.

use std::borrow::Borrow;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

/// A cache with bounds on number and bytes; it evicts the least recently used values.
pub(crate) struct BoundedCache<K, V> {
    kept: Mutex<Kept<K, V>>,
    most: usize,
    size: fn(&V) -> usize,
}

struct Kept<K, V> {
    values: LruCache<K, V>,
    bytes: usize,
}

impl<K: Hash + Eq, V: Clone> BoundedCache<K, V> {
    /// Creates a cache of at most this number of values and `most` bytes, as `size` counts them.
    pub(crate) fn new(values: NonZeroUsize, most: usize, size: fn(&V) -> usize) -> Self {
        Self { kept: Mutex::new(Kept { values: LruCache::new(values), bytes: 0 }), most, size }
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.kept().values.get(key).cloned()
    }

    pub(crate) fn put(&self, key: K, value: V) {
        let (mut kept, size) = (self.kept(), (self.size)(&value));
        // A value that is too large would evict all others, and then itself.
        let fits = size <= self.most;
        let out = if fits { kept.values.push(key, value) } else { kept.values.pop_entry(&key) };
        kept.bytes += if fits { size } else { 0 };
        kept.bytes -= out.map_or(0, |(_, out)| (self.size)(&out));
        while kept.bytes > self.most {
            let Some((_, out)) = kept.values.pop_lru() else { break };
            kept.bytes -= (self.size)(&out);
        }
    }

    pub(crate) fn clear(&self) {
        let mut kept = self.kept();
        kept.values.clear();
        kept.bytes = 0;
    }

    fn kept(&self) -> MutexGuard<'_, Kept<K, V>> {
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
        put("e", 20);
        put("g", 60);
        put("f", 101);
        let held = ["d", "e", "g", "f"].map(|key| cache.get(key).is_some());
        assert_eq!(held, [true, true, true, false], "one shrank, one is larger than all together");
        cache.clear();
        put("e", 100);
        assert!(cache.get("e").is_some() && cache.get("d").is_none());
    }
}
