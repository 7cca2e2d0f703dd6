//! Slots of running reconciles.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of reconciles without a slot: they wait for one, or lent theirs while they wait for something else.
pub(crate) const MAX_WAITING: u16 = 128;

/// The slots of one reconciler.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    free: Arc<Semaphore>,
    /// Locked by the one reconcile that waits for its first slot. Reconciles that lent a slot precede it.
    first: Arc<tokio::sync::Mutex<()>>,
}

impl Slots {
    /// Creates `concurrency` slots.
    pub(crate) fn new(concurrency: u16) -> Self {
        Self { free: Arc::new(Semaphore::new(usize::from(concurrency))), first: Arc::default() }
    }

    /// Waits for a slot.
    pub(crate) async fn take(&self) -> Slot {
        let _first = self.first.lock().await;
        Slot { slots: self.clone(), permit: Mutex::new(self.acquire().await) }
    }

    /// The semaphore is never closed, so there is always a permit.
    async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).acquire_owned().await.ok()
    }
}

/// The slot of a reconcile. Free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Slots,
    /// `None` while the slot is lent.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Slot {
    /// Awaits `wait` while another reconcile has the slot, then waits for a slot.
    pub(crate) async fn lend<T>(&self, wait: impl Future<Output = T>) -> T {
        let Some(lent) = self.permit.lock().take() else { return wait.await };
        drop(lent);
        let result = wait.await;
        let permit = self.slots.acquire().await;
        *self.permit.lock() = permit;
        result
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_lent_slot_serves_another_reconcile_until_it_is_taken_back() {
        let slots = Slots::new(1);
        let first = slots.take().await;
        assert!(slots.take().now_or_never().is_none(), "the only slot is taken");

        let (end, waiting) = oneshot::channel();
        let mut lending = Box::pin(first.lend(waiting));
        assert!(lending.as_mut().now_or_never().is_none());
        let second = slots.take().now_or_never().expect("the slot is free while the first reconcile waits");
        end.send("answer").unwrap();
        assert!(lending.as_mut().now_or_never().is_none(), "the second reconcile has the slot");
        drop(second);
        assert_eq!(lending.await, Ok("answer"));
        assert!(slots.take().now_or_never().is_none());

        drop(first);
        assert!(slots.take().now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_reconcile_that_lent_its_slot_precedes_all_but_one_new_one() {
        let slots = Slots::new(1);
        let lender = slots.take().await;
        let (end, waiting) = oneshot::channel();
        let mut lending = Box::pin(lender.lend(waiting));
        assert!(lending.as_mut().now_or_never().is_none());
        let running = slots.take().await;
        let mut new: Vec<_> = (0..3).map(|_| Box::pin(slots.take())).collect();
        assert!(new.iter_mut().all(|take| take.as_mut().now_or_never().is_none()));
        end.send(()).unwrap();
        assert!(lending.as_mut().now_or_never().is_none());

        drop(running);
        drop(new[0].as_mut().now_or_never().expect("it waited before the lender did"));
        assert!(new[1].as_mut().now_or_never().is_none());
        assert!(lending.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_the_slot_free() {
        let slots = Slots::new(1);
        let first = slots.take().await;
        assert!(first.lend(futures::future::pending::<()>()).now_or_never().is_none());
        drop(first);
        assert!(slots.take().now_or_never().is_some());
    }
}
