//! Waiting for a condition with a deadline, in place of sleeping.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// The shortest time between two looks.
const SHORT: Duration = Duration::from_millis(10);
/// The longest.
const LONG: Duration = Duration::from_millis(100);

/// Between two looks, a twentieth of the time waited so far: many who wait long would else keep an API server busy with
/// nothing but that.
fn pause(waited: Duration) -> Duration {
    (waited / 20).clamp(SHORT, LONG)
}

/// Asks `probe` again and again until it gives a value.
///
/// # Errors
/// The probe failed; or the deadline passed, and the message says `what` was waited for.
pub async fn until<T, F>(what: &str, deadline: Duration, mut probe: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let waiting = until_or_why(what, deadline, || {
        let look = probe();
        async { Ok(look.await?.ok_or_else(String::new)) }
    });
    waiting.await
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
            let colon = if why.is_empty() { "" } else { ": " };
            bail!("{what}: not within {deadline:?}{colon}{why}");
        }
        sleep(pause(start.elapsed())).await;
    }
}
