//! Waiting for a condition with a deadline, in place of sleeping.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Asks `probe` again and again until it gives a value.
///
/// # Errors
/// The probe failed; or the deadline passed, and the message says `what` was waited for.
pub async fn until<T, F>(what: &str, deadline: Duration, mut probe: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let start = Instant::now();
    loop {
        if let Some(value) = probe().await? {
            return Ok(value);
        }
        if start.elapsed() > deadline {
            bail!("{what}: not within {deadline:?}");
        }
        sleep(PAUSE).await;
    }
}

/// As [`until`], for a probe that says each time why there is no value yet.
///
/// # Errors
/// The probe failed; or the deadline passed, and the message ends with why there was no value at the last look.
pub async fn until_or_why<T, F>(what: &str, deadline: Duration, mut probe: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Result<T, String>>>,
{
    let start = Instant::now();
    loop {
        let why = match probe().await? {
            Ok(value) => return Ok(value),
            Err(why) => why,
        };
        if start.elapsed() > deadline {
            bail!("{what}: not within {deadline:?}: {why}");
        }
        sleep(PAUSE).await;
    }
}
