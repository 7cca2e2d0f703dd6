//! Waits for a condition with a deadline, instead of sleeping.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep, timeout};

/// Shortest pause between two calls of a probe.
const MIN_PROBE_INTERVAL: Duration = Duration::from_millis(10);
/// Timeout of one call of a probe, unless the deadline is longer: a call without an answer would hang the test.
const MIN_PROBE_TIMEOUT: Duration = Duration::from_mins(1);
/// Longest pause between two calls of a probe.
const MAX_PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the pause before the next call of a probe, a twentieth of the time waited so far: otherwise many long
/// waits would keep an API server busy.
fn pause(waited: Duration) -> Duration {
    (waited / 20).clamp(MIN_PROBE_INTERVAL, MAX_PROBE_INTERVAL)
}

/// Calls `probe` repeatedly until it returns a value.
///
/// # Errors
/// The probe failed; or the deadline passed, and the message says `what` was waited for.
pub async fn until<T, F>(what: &str, deadline: Duration, mut probe: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let waiting = until_or_why(what, deadline, || {
        let attempt = probe();
        async { Ok(attempt.await?.ok_or_else(String::new)) }
    });
    waiting.await
}

/// Does the same as [`until`], for a probe that returns each time why there is no value yet.
///
/// # Errors
/// The probe failed or did not end; or the deadline passed, and the message ends with the last reason.
pub async fn until_or_why<T, F>(what: &str, deadline: Duration, mut probe: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Result<T, String>>>,
{
    let start = Instant::now();
    loop {
        let answer = timeout(deadline.max(MIN_PROBE_TIMEOUT), probe()).await;
        let why = match answer.with_context(|| format!("{what}: a probe does not end"))?? {
            Ok(value) => return Ok(value),
            Err(why) => why,
        };
        if start.elapsed() > deadline {
            let colon = if why.is_empty() { "" } else { ": " };
            bail!("{what}: not within {deadline:?}{colon}{why}");
        }
        sleep(pause(start.elapsed())).await;
    }
}
