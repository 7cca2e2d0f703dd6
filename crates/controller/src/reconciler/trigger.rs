//! Pushed triggers: keys of objects to reconcile, besides those from the reconciler's own watch.

use std::{
    collections::HashSet,
    fmt::{self, Debug},
    hash::Hash,
    sync::Arc,
};

use futures::{Stream, stream};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// Requests reconciles of keys. Cheap to clone; all clones feed the same stream.
///
/// A waiting key is not added again, so the number of waiting keys is limited by the number of objects, however often
/// a target or a Secret changes.
pub struct Trigger<Key> {
    inner: Arc<TriggerInner<Key>>,
}

struct TriggerInner<Key> {
    waiting: Mutex<HashSet<Key>>,
    arrived: Notify,
}

impl<Key: Clone + Eq + Hash> Trigger<Key> {
    /// Returns a trigger without waiting keys.
    pub fn new() -> Self {
        Self { inner: Arc::new(TriggerInner { waiting: Mutex::new(HashSet::new()), arrived: Notify::new() }) }
    }

    /// Requests one reconcile of `key` as soon as possible.
    pub fn enqueue(&self, key: Key) {
        self.waiting().insert(key);
        self.inner.arrived.notify_one();
    }

    /// Returns the number of waiting keys.
    pub fn waiting_count(&self) -> usize {
        self.waiting().len()
    }

    /// Returns a stream of the waiting keys, each once. It must have only one consumer.
    pub fn stream(&self) -> impl Stream<Item = Key> + Send + use<Key>
    where
        Key: Send + 'static,
    {
        stream::unfold(self.clone(), |trigger| async move {
            loop {
                if let Some(key) = trigger.take() {
                    return Some((key, trigger));
                }
                trigger.inner.arrived.notified().await;
            }
        })
    }

    fn take(&self) -> Option<Key> {
        let mut waiting = self.waiting();
        let key = waiting.iter().next().cloned()?;
        waiting.take(&key)
    }

    fn waiting(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.inner.waiting.lock()
    }
}

impl<Key: Clone + Eq + Hash> Default for Trigger<Key> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Key> Clone for Trigger<Key> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<Key> Debug for Trigger<Key> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trigger").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::{FutureExt, StreamExt};

    use super::*;

    #[test]
    fn a_key_that_waits_is_not_added_again() {
        let trigger = Trigger::new();
        let mut stream = pin!(trigger.stream());
        assert_eq!(stream.next().now_or_never(), None);
        trigger.enqueue("a");
        trigger.enqueue("a");
        assert_eq!(trigger.waiting_count(), 1);
        assert_eq!(stream.next().now_or_never(), Some(Some("a")));
        assert_eq!(stream.next().now_or_never(), None);
        trigger.enqueue("a");
        assert_eq!(stream.next().now_or_never(), Some(Some("a")));
    }

    #[test]
    fn no_key_is_lost_when_several_arrive_before_the_first_is_taken() {
        let trigger = Trigger::new();
        for key in 0..100 {
            trigger.enqueue(key);
        }
        let mut stream = pin!(trigger.stream());
        let mut taken: Vec<i32> = std::iter::from_fn(|| stream.next().now_or_never().flatten()).collect();
        taken.sort_unstable();
        assert_eq!(taken, (0..100).collect::<Vec<_>>());
    }
}
