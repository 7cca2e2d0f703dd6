//! Runs CPU-bound work, such as expressions and large lists, on a bounded number of blocking threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use kyma_api::Reason;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::Failure;

/// Maximum number of concurrent evaluations in a process.
const MAX_PARALLEL_EVALUATIONS: usize = 4;

/// Permits for blocking threads, granted in order of the requests.
static THREADS: Semaphore = Semaphore::const_new(MAX_PARALLEL_EVALUATIONS);

/// Runs `work` on one of a bounded number of blocking threads and waits for it until a deadline. Late work is not
/// cancelled, so it needs its own bound, such as that of [`Expression`](crate::Expression).
///
/// # Errors
/// `DeadlineExceeded`; `Internal` if `work` panicked.
pub async fn evaluate_apart<T: Send + 'static>(
    deadline: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::time::timeout(deadline, run_apart(work)).await;
    done.unwrap_or_else(|_| {
        let message = format!("expressions were not evaluated within {} s", deadline.as_secs());
        Err(Failure::new(Reason::DeadlineExceeded, message))
    })
}

/// Runs `work` like [`evaluate_apart`], without a deadline.
pub(crate) async fn run_apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let internal = |what: &str| Failure::new(Reason::Internal, format!("an evaluation {what}; see the log"));
    let thread = THREADS.acquire().await.map_err(|_| internal("found no thread"))?;
    let done = spawn_blocking(move || {
        let _thread = thread;
        work()
    });
    done.await.map_err(|_| internal("panicked"))
}

/// Runs `work`; logs a panic in it with `what` and then returns `None`.
pub fn contain_panic<T>(what: &str, work: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    done.inspect_err(|panic| tracing::error!(what, panic = panic_text(&**panic), "panic is contained")).ok()
}

/// Returns the message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn late_work_keeps_its_thread_and_its_caller_goes_on() {
        let (release, released) = mpsc::channel::<()>();
        let late = evaluate_apart(Duration::from_millis(20), move || released.recv().is_ok());
        assert_eq!(late.await.unwrap_err().reason, Reason::DeadlineExceeded);
        assert_eq!(run_apart(|| 1).await.unwrap(), 1, "others have threads");
        release.send(()).unwrap();
    }

    #[tokio::test]
    async fn panic_in_an_evaluation_is_internal() {
        let failed = evaluate_apart(Duration::from_secs(30), || assert!(std::env::args().count() == 0)).await;
        assert_eq!(failed.unwrap_err().reason, Reason::Internal);
        assert_eq!(run_apart(|| 2).await.unwrap(), 2);
        assert_eq!(contain_panic("test", || assert!(std::env::args().count() == 0)), None);
    }
}
