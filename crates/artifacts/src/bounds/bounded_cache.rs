//! A cache with a bounded number of values and bytes.

use std::borrow::Borrow;
use std::hash::Hash;
use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

/// A cache with bounds on number and bytes; it evicts the least recently used values.
pub struct BoundedCache<K, V> {
    entries: Mutex<Entries<K, V>>,
    max_bytes: usize,
    size: fn(&V) -> usize,
}

struct Entries<K, V> {
    values: LruCache<K, V>,
    bytes: usize,
}

impl<K: Hash + Eq, V: Clone> BoundedCache<K, V> {
    /// Creates a cache of at most this number of values and `max_bytes` bytes, as `size` counts them.
    pub fn new(values: NonZeroUsize, max_bytes: usize, size: fn(&V) -> usize) -> Self {
        Self { entries: Mutex::new(Entries { values: LruCache::new(values), bytes: 0 }), max_bytes, size }
    }

    /// Returns a value and marks it as used.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.entries.lock().values.get(key).cloned()
    }

    /// Inserts or replaces a value. A value of more than `max_bytes` is not kept.
    pub fn put(&self, key: K, value: V) {
        let (mut entries, size) = (self.entries.lock(), (self.size)(&value));
        // A value that is too large would evict all others, and then itself.
        let fits = size <= self.max_bytes;
        let out = if fits { entries.values.push(key, value) } else { entries.values.pop_entry(&key) };
        entries.bytes += if fits { size } else { 0 };
        entries.bytes -= out.map_or(0, |(_, out)| (self.size)(&out));
        while entries.bytes > self.max_bytes {
            let Some((_, out)) = entries.values.pop_lru() else { break };
            entries.bytes -= (self.size)(&out);
        }
    }

    /// Removes all values.
    pub fn clear(&self) {
        let mut entries = self.entries.lock();
        entries.values.clear();
        entries.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted() {
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
