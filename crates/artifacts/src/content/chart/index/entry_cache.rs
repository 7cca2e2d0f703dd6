//! Cache of entries found in indexes.

use std::{num::NonZeroUsize, sync::Arc};

use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::content::{Entry, Index};
use crate::bounds::single_flight::SingleFlight;
use crate::storage::cache::Key;
use crate::storage::digest::Digest;

const MAX_ANSWERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4_095);
/// Maximum size of a query and its answer that are kept, in bytes.
const MAX_ANSWER_BYTES: usize = 2_048;
/// Maximum number of indexes that are read concurrently: each takes memory for its content and its entries.
const MAX_PARALLEL_READS: usize = 1;

/// Answers from indexes, by the digest of the index, and reads in progress. Limited; the least recently used are
/// evicted first.
pub(crate) struct Indexes {
    answers: Mutex<LruCache<EntryKey, Answer>>,
    reads: SingleFlight<Key, Option<Arc<Index>>>,
    read_permits: Semaphore,
}

/// An entry; `None` if the index has none.
pub(super) type Answer = Option<Entry>;

/// Key of a cached entry: an index and a query for it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct EntryKey {
    /// Digest of the index.
    pub(super) index: Digest,
    /// Name of the chart.
    pub(super) name: String,
    /// The requested entry, such as a version or a range.
    pub(super) what: String,
}

impl Indexes {
    pub(crate) fn new() -> Self {
        Self {
            answers: Mutex::new(LruCache::new(MAX_ANSWERS)),
            reads: SingleFlight::new(),
            read_permits: Semaphore::new(MAX_PARALLEL_READS),
        }
    }

    /// Returns the answer, if it is kept.
    pub(super) fn cached_entry(&self, entry_key: &EntryKey) -> Option<Answer> {
        self.answers.lock().get(entry_key).cloned()
    }

    pub(super) fn cache_entry(&self, entry_key: EntryKey, answer: Answer) {
        let size = entry_key.name.len() + entry_key.what.len() + answer.as_ref().map_or(0, Entry::size);
        if size <= MAX_ANSWER_BYTES {
            self.answers.lock().put(entry_key, answer);
        }
    }

    /// Returns the reads in progress.
    pub(super) fn reads(&self) -> &SingleFlight<Key, Option<Arc<Index>>> {
        &self.reads
    }

    /// Waits until an index may be read. The semaphore is never closed.
    pub(super) async fn acquire_read_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.read_permits.acquire().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry_key(what: &str) -> EntryKey {
        EntryKey { index: Digest::of(b"index"), name: "demo".to_owned(), what: what.to_owned() }
    }

    #[test]
    fn answers_are_bounded_in_number_and_size() {
        let indexes = Indexes::new();
        for number in 0..MAX_ANSWERS.get() + 10 {
            indexes.cache_entry(entry_key(&number.to_string()), None);
        }
        assert!(indexes.cached_entry(&entry_key("9")).is_none());
        assert_eq!(indexes.cached_entry(&entry_key("10")), Some(None));
        let long = "a".repeat(MAX_ANSWER_BYTES);
        indexes.cache_entry(entry_key(&long), None);
        assert!(indexes.cached_entry(&entry_key(&long)).is_none());
        let other = EntryKey { index: Digest::of(b"another index"), ..entry_key("10") };
        assert!(indexes.cached_entry(&other).is_none());
    }
}
