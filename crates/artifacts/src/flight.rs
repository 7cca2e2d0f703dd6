//! Shares the result of one piece of work among all callers that wait for it.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared},
};

use crate::ArtifactError;

type Work<V, E> = BoxFuture<'static, Result<V, E>>;

/// Work in progress by key. A cancelled caller does not stop it for the others; it ends with its last caller.
pub struct Flights<K, V: Clone, E: Clone = ArtifactError> {
    running: Mutex<HashMap<K, WeakShared<Work<V, E>>>>,
}

impl<K: Eq + Hash + Clone, V: Clone, E: Clone> Default for Flights<K, V, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Eq + Hash + Clone, V: Clone, E: Clone> Flights<K, V, E> {
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
        let flight = self.board(key, work);
        flight.await
    }

    fn board(&self, key: K, work: impl FnOnce() -> Work<V, E>) -> Shared<Work<V, E>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // Ended and abandoned work is dropped here, so the map contains only work in progress.
        running.retain(|_, flight| flight.upgrade().is_some_and(|flight| flight.peek().is_none()));
        if let Some(flight) = running.get(&key).and_then(WeakShared::upgrade) {
            return flight;
        }
        let flight = work().shared();
        if let Some(weak) = flight.downgrade() {
            running.insert(key, weak);
        }
        flight
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
        let flights = Flights::<&str, usize>::new();
        let count = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let waiters = (0..1000).map(|_| {
            let (count, gate) = (count.clone(), gate.clone());
            flights.join("a", move || {
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
        let flights = Flights::<&str, u8>::new();
        let (open, gate) = tokio::sync::oneshot::channel::<u8>();
        let first = flights.board("a", || async move { Ok(gate.await.unwrap_or(0)) }.boxed());
        let second = flights.board("a", || async { Ok(9) }.boxed());
        drop(first);
        open.send(7).unwrap();
        assert_eq!(second.await.unwrap(), 7);
        assert_eq!(flights.join("a", || async { Ok(8) }.boxed()).await.unwrap(), 8);
    }
}
