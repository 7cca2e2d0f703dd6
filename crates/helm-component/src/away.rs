//! Processor work, away from the tasks that wait for the network.

use kyma_api::Reason;
use kyma_sdk::Failure;

/// Bytes up to which packing and unpacking take a few milliseconds at most: no longer than other work between two waits.
const LARGE: usize = 64 << 10;

/// Does `work` on a thread of its own.
///
/// # Errors
/// It panicked.
pub(crate) async fn away<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Failure::new(Reason::Internal, error.to_string()))
}

/// Does `work` on so many bytes: at once where they are few, as they mostly are.
///
/// # Errors
/// It panicked.
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
