//! Pushed triggers: keys that something other than the own watch wants reconciled.

use std::{
    collections::HashSet,
    fmt::{self, Debug},
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{Stream, stream};
use tokio::sync::Notify;

/// Asks for the reconcile of keys. Cheap to clone; all clones feed the same stream.
///
/// A key that is already waiting is not added again, so what waits is bounded by the number of keys that
/// exist, however often a target or a Secret changes.
pub struct Trigger<Key> {
    inner: Arc<Inner<Key>>,
}

struct Inner<Key> {
    waiting: Mutex<HashSet<Key>>,
    arrived: Notify,
}

impl<Key: Clone + Eq + Hash> Trigger<Key> {
    /// A trigger with nothing waiting.
    pub fn new() -> Self {
        Self { inner: Arc::new(Inner { waiting: Mutex::new(HashSet::new()), arrived: Notify::new() }) }
    }

    /// Asks for a reconcile of `key`, soon and once.
    pub fn enqueue(&self, key: Key) {
        self.waiting().insert(key);
        self.inner.arrived.notify_one();
    }

    /// How many keys wait to be taken.
    pub fn waiting_count(&self) -> usize {
        self.waiting().len()
    }

    /// The keys as they come, each once. One consumer only.
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

    fn waiting(&self) -> std::sync::MutexGuard<'_, HashSet<Key>> {
        self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner)
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
