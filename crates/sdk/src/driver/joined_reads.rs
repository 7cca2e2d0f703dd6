//! Reads that concurrent reconciles share.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, Shared, WeakShared};
use kyma_controller::Failure;
use parking_lot::Mutex;

use kyma_api::Reason;

/// Maximum duration of a read: the hub's client has no limit of its own, and further reads wait for it.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

type Read = BoxFuture<'static, Result<bool, Failure>>;

/// Shares one read among concurrent callers with the same key. A caller never gets the result of a read that began
/// before its call; it joins the next one. Reads of all keys run one after the other.
#[derive(Clone, Default)]
pub(super) struct JoinedReads {
    /// Reads that have not begun. Weak: if all callers are cancelled, the queued read is dropped.
    pending: Arc<Mutex<HashMap<String, WeakShared<Read>>>>,
    read_lock: Arc<tokio::sync::Mutex<()>>,
}

impl JoinedReads {
    /// Returns the result of a read that begins after this call: `read`, or that of another caller.
    pub(super) async fn read<F>(&self, key: &str, read: F) -> Result<bool, Failure>
    where
        F: Future<Output = Result<bool, Failure>> + Send + 'static,
    {
        self.join(key, read).await
    }

    fn join<F>(&self, key: &str, read: F) -> Shared<Read>
    where
        F: Future<Output = Result<bool, Failure>> + Send + 'static,
    {
        let mut pending = self.pending.lock();
        pending.retain(|_, read| read.upgrade().is_some());
        if let Some(joined) = pending.get(key).and_then(WeakShared::upgrade) {
            return joined;
        }
        let (reads, of) = (self.clone(), key.to_owned());
        let read = async move {
            let _guard = reads.read_lock.lock().await;
            reads.pending.lock().remove(&of);
            let timed_out = |_| {
                let message = format!("the hub did not answer within {} s", READ_TIMEOUT.as_secs());
                Err(Failure::new(Reason::HubUnavailable, message))
            };
            tokio::time::timeout(READ_TIMEOUT, read).await.unwrap_or_else(timed_out)
        };
        let read = read.boxed().shared();
        pending.extend(read.downgrade().map(|weak| (key.to_owned(), weak)));
        read
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use futures::poll;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn calls_during_a_read_share_the_next_one() {
        let (reads, count, open) =
            (JoinedReads::default(), Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let read = |key: &'static str| {
            let (count, open) = (Arc::clone(&count), Arc::clone(&open));
            let is_later = async move {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let _open = open.acquire().await;
                Ok(number > 0)
            };
            reads.read(key, is_later)
        };
        let mut first = Box::pin(read("a"));
        assert!(poll!(&mut first).is_pending() && count.load(Ordering::SeqCst) == 1);
        let mut more = Box::pin(join_all((0..10).map(|_| read("a"))));
        assert!(poll!(&mut more).is_pending() && count.load(Ordering::SeqCst) == 1);
        open.add_permits(20);
        let (first, more) = tokio::join!(first, more);
        assert_eq!(first, Ok(false));
        assert!(more.iter().all(|joined| *joined == Ok(true)), "an answer older than its question");
        assert_eq!(count.load(Ordering::SeqCst), 2);
        assert_eq!(read("b").await, Ok(true));
        assert!(reads.pending.lock().is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_read_holds_up_no_other() {
        let reads = JoinedReads::default();
        let mut stuck = Box::pin(reads.read("a", std::future::pending()));
        assert!(poll!(&mut stuck).is_pending());
        let mut joined = Box::pin(reads.read("a", async { Ok(true) }));
        assert!(poll!(&mut joined).is_pending());
        drop(stuck);
        assert_eq!(joined.await, Ok(true));
        let mut running = Box::pin(reads.read("a", async {
            tokio::task::yield_now().await;
            Ok(true)
        }));
        let mut next = Box::pin(reads.read("a", async { Ok(true) }));
        assert!(poll!(&mut running).is_pending() && poll!(&mut next).is_pending());
        let other = reads.read("b", async { Ok(false) });
        drop(next);
        assert_eq!(tokio::join!(running, other), (Ok(true), Ok(false)));
        assert!(reads.pending.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_without_an_answer_ends() {
        let reads = JoinedReads::default();
        let failure = reads.read("a", std::future::pending()).await.unwrap_err();
        assert_eq!(failure.reason, Reason::HubUnavailable);
        assert_eq!(reads.read("a", async { Ok(true) }).await, Ok(true));
    }
}
