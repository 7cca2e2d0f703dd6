//! Runs CPU-bound work, such as expressions and large lists, on a bounded number of blocking threads, in fair turns.

mod fair;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use kyma_api::Reason;
use kyma_targets::SecretKey;
use tokio::task::spawn_blocking;

use crate::failure::Failure;
use fair::FairSemaphore;

/// Maximum number of concurrent evaluations in a process.
const MAX_PARALLEL_EVALUATIONS: usize = 4;

/// Permits for blocking threads.
static THREADS: FairSemaphore = FairSemaphore::new(MAX_PARALLEL_EVALUATIONS);

/// Runs `work` on one of a bounded number of blocking threads and waits for it until a deadline. Late work is not
/// cancelled, so it needs its own bound, such as that of [`Expression`](crate::Expression).
///
/// `group` names the target, or the object on the hub, whose data is evaluated. Waiting groups get threads in turn, so
/// that one target with much work does not hold up another.
///
/// # Errors
/// `DeadlineExceeded`; `Internal` if `work` panicked.
pub async fn evaluate_on_thread<T: Send + 'static>(
    group: &str,
    deadline: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::time::timeout(deadline, run_on_thread(group, work)).await;
    done.unwrap_or_else(|_| {
        let message = format!("expressions were not evaluated within {} s", deadline.as_secs());
        Err(Failure::new(Reason::DeadlineExceeded, message))
    })
}

/// Runs `work` like [`evaluate_on_thread`], without a deadline.
///
/// # Errors
/// `Internal` if `work` panicked.
pub async fn run_on_thread<T: Send + 'static>(
    group: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let internal = |what: &str| Failure::new(Reason::Internal, format!("an evaluation {what}; see the log"));
    let thread = THREADS.acquire(group).await.ok_or_else(|| internal("found no thread"))?;
    let done = spawn_blocking(move || {
        let _thread = thread;
        work()
    });
    done.await.map_err(|_| internal("panicked"))
}

/// Returns the group of the evaluations for a target, named by its access Secret; `None` is the hub itself.
pub fn target_group(target: Option<&SecretKey>) -> String {
    target.map(|SecretKey { namespace, name, key }| format!("{namespace}/{name}/{key}")).unwrap_or_default()
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
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};

    use parking_lot::Mutex;
    use tokio::task::JoinSet;

    use super::*;
    use crate::expression::{Expression, ExpressionResult};
    use crate::process::settings::Settings;

    /// Evaluations of the target with much work, far more than the threads.
    const BUSY_EVALUATIONS: usize = 24;

    /// Evaluations in the order of their starts, and how many of them run.
    #[derive(Default)]
    struct Evaluations {
        started: Mutex<Vec<&'static str>>,
        running: AtomicUsize,
        most: AtomicUsize,
    }

    impl Evaluations {
        fn judge(&self, group: &'static str, text: &str) -> ExpressionResult {
            self.started.lock().push(group);
            self.most.fetch_max(self.running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let judgement = Expression::compile(text).unwrap().evaluate(&[]);
            self.running.fetch_sub(1, Ordering::SeqCst);
            judgement
        }
    }

    /// The one thread of this test's runtime also serves the other target, so a blocked worker fails the test too.
    #[tokio::test]
    async fn evaluations_of_one_target_to_the_limit_delay_no_other() {
        let texts = [
            "[0,0,0,0,0,0,0,0].all(a,".repeat(20) + "true" + &")".repeat(20),
            "['x']".to_owned() + &".map(s,s+s)".repeat(30) + " == 0",
        ];
        let evaluations = Arc::new(Evaluations::default());
        let mut busy = JoinSet::new();
        for number in 0..BUSY_EVALUATIONS {
            let (text, evaluations) = (texts[number % 2].clone(), Arc::clone(&evaluations));
            busy.spawn(async move { run_on_thread("busy", move || evaluations.judge("busy", &text)).await });
        }
        // All of them have requested their threads once the first has one and ends.
        assert_eq!(busy.join_next().await.unwrap().unwrap().unwrap(), ExpressionResult::TooLarge);
        let other = Arc::clone(&evaluations);
        let deadline = Settings::for_command("kcp-system", "kyma-system").reconcile_deadline;
        let judged = evaluate_on_thread("other", deadline, move || other.judge("other", "1 == 1")).await;
        assert_eq!(judged.unwrap(), ExpressionResult::Holds);
        let started = evaluations.started.lock().clone();
        assert!(started.len() < BUSY_EVALUATIONS, "others still wait: {started:?}");
        assert!(evaluations.most.load(Ordering::SeqCst) <= MAX_PARALLEL_EVALUATIONS);
    }

    #[tokio::test]
    async fn late_work_keeps_its_thread_and_its_caller_goes_on() {
        // While evaluations of other tests have all threads, the work is dropped at the deadline before it begins.
        let begun = async {
            loop {
                let (release, released) = mpsc::channel::<()>();
                let (sender, started) = mpsc::channel();
                let late = evaluate_on_thread("a", Duration::from_millis(20), move || {
                    sender.send(()).unwrap();
                    released.recv().is_ok()
                });
                assert_eq!(late.await.unwrap_err().reason, Reason::DeadlineExceeded);
                if started.recv().is_ok() {
                    return release;
                }
            }
        };
        let release = tokio::time::timeout(Duration::from_mins(1), begun).await.unwrap();
        assert_eq!(run_on_thread("a", || 1).await.unwrap(), 1, "others have threads");
        release.send(()).unwrap();
    }

    #[tokio::test]
    async fn panic_in_an_evaluation_is_internal() {
        let failed =
            evaluate_on_thread("a", Duration::from_secs(30), || assert!(std::env::args().count() == 0)).await;
        assert_eq!(failed.unwrap_err().reason, Reason::Internal);
        assert_eq!(run_on_thread("a", || 2).await.unwrap(), 2);
        assert_eq!(contain_panic("test", || assert!(std::env::args().count() == 0)), None);
    }
}
