//! Runs CPU-bound work outside of the tasks that wait for the network.

use kyma_api::Reason;
use kyma_sdk::Failure;

/// Maximum size in bytes that is packed or unpacked inline: it takes a few milliseconds, as other work between two
/// waits.
const LARGE: usize = 64 << 10;

/// Runs `work` on a blocking thread.
///
/// # Errors
/// If `work` panicked.
pub(crate) async fn away<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Failure::new(Reason::Internal, error.to_string()))
}

/// Runs `work` on input of this size: inline if it is small, as it mostly is.
///
/// # Errors
/// If `work` panicked on its thread.
pub(crate) async fn away_if_large<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    if bytes <= LARGE { Ok(work()) } else { away(work).await }
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use super::*;

    #[tokio::test]
    async fn only_large_work_leaves_the_thread() {
        let on = async |bytes: usize| away_if_large(bytes, || thread::current().id()).await.unwrap();
        let here: ThreadId = thread::current().id();
        assert_eq!(on(LARGE).await, here);
        assert_ne!(on(LARGE + 1).await, here);
        let nothing: Vec<u8> = vec![];
        assert_eq!(away(move || nothing[0]).await.unwrap_err().reason, Reason::Internal);
    }
}
