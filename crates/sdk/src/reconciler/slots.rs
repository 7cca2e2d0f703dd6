//! Slots of running reconciles.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of reconciles that wait without a slot.
pub(crate) const MAX_WAITING: u16 = 128;

/// The slots of one reconciler.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Slots {
    /// Creates `concurrency` slots.
    pub(crate) fn new(concurrency: u16) -> Self {
        let semaphore = |permits: u16| Arc::new(Semaphore::new(usize::from(permits)));
        Self { running: semaphore(concurrency), waiting: semaphore(MAX_WAITING) }
    }

    /// Waits for a slot.
    pub(crate) async fn take(&self) -> Slot {
        Slot { slots: self.clone(), permit: Mutex::new(self.permit().await) }
    }

    /// The semaphore is never closed, so there is always a permit.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.running).acquire_owned().await.ok()
    }
}

/// The slot of a reconcile. Free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Slots,
    /// `None` while the reconcile waits without a slot.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Slot {
    /// Awaits `wait` while another reconcile has the slot, then waits for a slot. Keeps the slot if too many reconciles
    /// wait without one.
    pub(crate) async fn lend<T>(&self, wait: impl Future<Output = T>) -> T {
        let Ok(_place) = self.slots.waiting.try_acquire() else { return wait.await };
        let Some(lent) = self.permit().take() else { return wait.await };
        drop(lent);
        let result = wait.await;
        let permit = self.slots.permit().await;
        *self.permit() = permit;
        result
    }

    fn permit(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
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
    async fn a_cancelled_wait_leaves_the_slot_free() {
        let slots = Slots::new(1);
        let first = slots.take().await;
        assert!(first.lend(futures::future::pending::<()>()).now_or_never().is_none());
        drop(first);
        assert!(slots.take().now_or_never().is_some());
        assert_eq!(slots.waiting.available_permits(), usize::from(MAX_WAITING));
    }

    #[tokio::test]
    async fn a_slot_is_kept_while_too_many_reconciles_wait() {
        let slots = Slots::new(1);
        let all = Arc::clone(&slots.waiting).acquire_many_owned(MAX_WAITING.into()).await.unwrap();
        let first = slots.take().await;
        let mut waiting = Box::pin(first.lend(futures::future::pending::<()>()));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(slots.take().now_or_never().is_none());
        drop(all);
    }
}
