//! Shares the result of one piece of work among all callers that wait for it.

use std::{collections::HashMap, hash::Hash};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::Mutex;

use crate::error::ArtifactError;

type Work<V, E> = BoxFuture<'static, Result<V, E>>;

/// Work in progress by key. Concurrent callers with the same key share one run. A cancelled caller does not stop it
/// for the others; it ends with its last caller.
pub struct SingleFlight<K, V: Clone, E: Clone = ArtifactError> {
    running: Mutex<HashMap<K, WeakShared<Work<V, E>>>>,
}

impl<K: Eq + Hash + Clone, V: Clone, E: Clone> Default for SingleFlight<K, V, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Eq + Hash + Clone, V: Clone, E: Clone> SingleFlight<K, V, E> {
    /// Returns an empty set.
    pub fn new() -> Self {
        Self { running: Mutex::new(HashMap::new()) }
    }

    /// Returns the result of the work in progress for `key`; starts `work` if there is none. A result is not kept
    /// here after the work has ended.
    ///
    /// # Errors
    /// Errors of the work, the same for all callers that waited for it.
    pub async fn join(&self, key: K, work: impl FnOnce() -> Work<V, E>) -> Result<V, E> {
        self.shared_work(key, work).await
    }

    fn shared_work(&self, key: K, work: impl FnOnce() -> Work<V, E>) -> Shared<Work<V, E>> {
        let mut running = self.running.lock();
        // Ended and abandoned work is dropped here, so the map contains only work in progress.
        running.retain(|_, entry| entry.upgrade().is_some_and(|work| work.peek().is_none()));
        if let Some(shared) = running.get(&key).and_then(WeakShared::upgrade) {
            return shared;
        }
        let shared = work().shared();
        if let Some(weak) = shared.downgrade() {
            running.insert(key, weak);
        }
        shared
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[tokio::test]
    async fn a_thousand_waiters_cause_one_piece_of_work() {
        let single_flight = SingleFlight::<&str, usize>::new();
        let count = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let waiters = (0..1000).map(|_| {
            let (count, gate) = (count.clone(), gate.clone());
            single_flight.join("a", move || {
                async move {
                    let _open = gate.acquire().await;
                    Ok(count.fetch_add(1, Ordering::SeqCst))
                }
                .boxed()
            })
        });
        let (outcomes, ()) = futures::future::join(futures::future::join_all(waiters), async {
            tokio::task::yield_now().await;
            gate.add_permits(1);
        })
        .await;
        assert!(outcomes.into_iter().all(|outcome| outcome.unwrap() == 0));
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn work_outlives_the_waiter_that_started_it() {
        let single_flight = SingleFlight::<&str, u8>::new();
        let (open, gate) = tokio::sync::oneshot::channel::<u8>();
        let first = single_flight.shared_work("a", || async move { Ok(gate.await.unwrap_or(0)) }.boxed());
        let second = single_flight.shared_work("a", || async { Ok(9) }.boxed());
        drop(first);
        open.send(7).unwrap();
        assert_eq!(second.await.unwrap(), 7);
        assert_eq!(single_flight.join("a", || async { Ok(8) }.boxed()).await.unwrap(), 8);
    }
}
