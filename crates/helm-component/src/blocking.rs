//! Runs CPU-bound work outside of the tasks that wait for the network.

use kyma_api::Reason;
use kyma_controller::Failure;

/// Maximum size in bytes that is packed or unpacked inline: it takes a few milliseconds, as other work between two
/// waits.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// Runs `work` on a blocking thread.
///
/// # Errors
/// If `work` panicked.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Failure::new(Reason::Internal, error.to_string()))
}

/// Runs `work` on input of this size: inline if it is small, as it mostly is.
///
/// # Errors
/// If `work` panicked on its thread.
pub(crate) async fn run_blocking_if_large<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    if bytes <= MAX_INLINE_BYTES { Ok(work()) } else { run_blocking(work).await }
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use super::*;

    #[tokio::test]
    async fn only_large_work_leaves_the_thread() {
        let on = async |bytes: usize| run_blocking_if_large(bytes, || thread::current().id()).await.unwrap();
        let here: ThreadId = thread::current().id();
        assert_eq!(on(MAX_INLINE_BYTES).await, here);
        assert_ne!(on(MAX_INLINE_BYTES + 1).await, here);
        let nothing: Vec<u8> = vec![];
        assert_eq!(run_blocking(move || nothing[0]).await.unwrap_err().reason, Reason::Internal);
    }
}
