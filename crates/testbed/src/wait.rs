//! Waiting for a condition with a deadline, in place of sleeping.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

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
        sleep(Duration::from_millis(20)).await;
    }
}
