//! Shares one live read among concurrent callers with the same key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Reads in progress, by key. A caller never receives the answer of a read that began before its call: that answer
/// may be older than the caller's own data.
#[derive(Debug)]
pub(super) struct Reads<Key, Answer>(Mutex<Queues<Key, Answer>>);

/// Queues by key, each with the number of callers in it.
type Queues<Key, Answer> = HashMap<Key, (usize, Arc<Queue<Answer>>)>;

/// The callers that wait for one key. Removed when the last caller leaves.
#[derive(Debug)]
struct Queue<Answer> {
    /// Logical clock: counts calls and beginnings of reads.
    clock: AtomicU64,
    /// When the last read began, and its answer. Locked during a read.
    last: tokio::sync::Mutex<Option<(u64, Answer)>>,
}

impl<Key: Clone + Eq + Hash, Answer: Clone> Reads<Key, Answer> {
    /// Returns the answer to `read`, or to a concurrent read of the same key that began after this call.
    pub(super) async fn share<Reading>(&self, key: Key, read: impl FnOnce() -> Reading) -> Answer
    where
        Reading: Future<Output = Answer>,
    {
        let queue = self.join(&key);
        let _membership = QueueMembership { reads: self, key };
        let asked = queue.tick();
        let mut last = queue.last.lock().await;
        if let Some((_, answer)) = last.as_ref().filter(|(began, _)| *began > asked) {
            return answer.clone();
        }
        let began = queue.tick();
        let answer = read().await;
        *last = Some((began, answer.clone()));
        answer
    }

    fn join(&self, key: &Key) -> Arc<Queue<Answer>> {
        let mut queues = self.0.lock();
        let (members, queue) = queues.entry(key.clone()).or_default();
        *members += 1;
        Arc::clone(queue)
    }

    fn leave(&self, key: &Key) {
        let mut queues = self.0.lock();
        if let Some((members, _)) = queues.get_mut(key) {
            *members -= 1;
            if *members == 0 {
                queues.remove(key);
            }
        }
    }
}

impl<Answer> Queue<Answer> {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::AcqRel)
    }
}

/// Guard of one caller in a queue. Dropping the last guard of a queue removes the queue.
struct QueueMembership<'a, Key: Clone + Eq + Hash, Answer: Clone> {
    reads: &'a Reads<Key, Answer>,
    key: Key,
}

impl<Key: Clone + Eq + Hash, Answer: Clone> Drop for QueueMembership<'_, Key, Answer> {
    fn drop(&mut self) {
        self.reads.leave(&self.key);
    }
}

impl<Answer> Default for Queue<Answer> {
    fn default() -> Self {
        Self { clock: AtomicU64::new(0), last: tokio::sync::Mutex::new(None) }
    }
}

impl<Key, Answer> Default for Reads<Key, Answer> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::FutureExt;
    use futures::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    /// A value that changes while a slow read is in progress.
    struct Slow {
        state: AtomicUsize,
        reads: AtomicUsize,
        gate: Semaphore,
    }

    impl Slow {
        fn new() -> Self {
            Self { state: AtomicUsize::new(1), reads: AtomicUsize::new(0), gate: Semaphore::new(0) }
        }

        /// Returns the value at the beginning of the read.
        async fn read(&self) -> usize {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let state = self.state.load(Ordering::Relaxed);
            self.gate.acquire().await.unwrap().forget();
            state
        }
    }

    #[tokio::test]
    async fn callers_during_a_read_share_the_next_read() {
        let (slow, reads) = (Slow::new(), Reads::default());
        let mut first = Box::pin(reads.share("a", || slow.read()));
        assert_eq!(first.as_mut().now_or_never(), None, "it reads");
        slow.state.store(2, Ordering::Relaxed);
        let mut later = Box::pin(join_all((0..100).map(|_| reads.share("a", || slow.read()))));
        assert_eq!(later.as_mut().now_or_never(), None, "all wait");
        slow.gate.add_permits(2);
        assert_eq!(first.await, 1);
        assert_eq!(later.await, vec![2; 100]);
        assert_eq!(slow.reads.load(Ordering::Relaxed), 2);
        assert!(reads.0.lock().is_empty(), "nothing is kept");
    }

    #[tokio::test]
    async fn a_read_that_is_given_up_is_the_turn_of_the_next() {
        let (slow, reads) = (Slow::new(), Reads::default());
        let mut first = Box::pin(reads.share("a", || slow.read()));
        assert_eq!(first.as_mut().now_or_never(), None);
        let mut second = Box::pin(reads.share("a", || slow.read()));
        assert_eq!(second.as_mut().now_or_never(), None);
        drop(first);
        slow.gate.add_permits(1);
        assert_eq!(second.await, 1);
        assert_eq!(slow.reads.load(Ordering::Relaxed), 2);
        assert!(reads.0.lock().is_empty());
    }

    #[tokio::test]
    async fn others_are_not_waited_for() {
        let (slow, reads) = (Slow::new(), Reads::default());
        let mut first = Box::pin(reads.share("a", || slow.read()));
        assert_eq!(first.as_mut().now_or_never(), None);
        assert_eq!(reads.share("b", || async { 7 }).await, 7);
    }
}
