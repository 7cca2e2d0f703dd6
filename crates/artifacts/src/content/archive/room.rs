//! Limits the memory for unpacked content: one limit for all archives of the process.

use bytes::Bytes;
use tokio::{
    sync::Semaphore,
    task::{JoinError, spawn_blocking},
};

const MIB: u64 = 1 << 20;
/// MiB of the largest unpacked archive, by default: [`Limits::unpacked`](crate::Limits::unpacked).
const MAX_UNPACKED_MIB: u32 = 100;
/// MiB for all archives that are unpacked concurrently: two of the largest.
const TOTAL_UNPACKED_MIB: usize = 200;
/// Maximum expansion of one byte by deflate.
const MAX_EXPANSION: u64 = 1032;

/// The limit admits every archive.
const _: () = assert!(MAX_UNPACKED_MIB as usize <= TOTAL_UNPACKED_MIB);

static FREE_MIB: Semaphore = Semaphore::const_new(TOTAL_UNPACKED_MIB);

/// Runs `work`, which unpacks `archive`, on a blocking thread. First waits for memory for the maximum unpacked size:
/// small archives need little, so many are unpacked concurrently. `work` must not wait for another archive, and its
/// result should be small.
///
/// # Errors
/// If `work` panicked.
pub async fn run_unpacking<T: Send + 'static>(
    archive: Bytes,
    work: impl FnOnce(&Bytes) -> T + Send + 'static,
) -> Result<T, JoinError> {
    // The semaphore is never closed.
    let room = FREE_MIB.acquire_many(mebibytes(archive.len())).await.ok();
    // The work continues even if its caller is cancelled, so it keeps the permit.
    let begun = spawn_blocking(move || {
        let done = work(&archive);
        drop((archive, room));
        done
    });
    begun.await
}

/// Returns the maximum unpacked size of an archive in bytes, without archives in it. A chart whose nested archives
/// exceed it is refused.
pub fn max_unpacked_bytes(packed: usize) -> u64 {
    (packed as u64).saturating_mul(MAX_EXPANSION).max(MIB)
}

fn mebibytes(packed: usize) -> u32 {
    u32::try_from(max_unpacked_bytes(packed).div_ceil(MIB)).unwrap_or(MAX_UNPACKED_MIB).min(MAX_UNPACKED_MIB)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    };

    use futures::future::join_all;

    use super::*;

    #[test]
    fn an_archive_takes_the_most_that_can_come_of_it() {
        let sizes = [(0, 1), (1, 1), (1016, 1), (1017, 2), (50_000, 50), (101_606, 100), (32 << 20, 100)];
        for (packed, room) in sizes {
            assert_eq!(mebibytes(packed), room, "{packed}");
        }
        assert_eq!(mebibytes(usize::MAX), MAX_UNPACKED_MIB);
    }

    /// One test, since the limit is shared by the process.
    #[tokio::test(flavor = "multi_thread")]
    async fn small_archives_unpack_concurrently_large_ones_two_at_a_time() {
        let all = Arc::new(Barrier::new(8));
        let small = (0..8).map(|_| {
            let all = all.clone();
            run_unpacking(Bytes::from_static(b"small"), move |_| all.wait().is_leader())
        });
        let leaders = join_all(small).await.into_iter().filter(|leads| *leads.as_ref().unwrap());
        assert_eq!(leaders.count(), 1, "none waits for another");

        let (at_work, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let content = Bytes::from(vec![0; 1 << 20]);
        let large = (0..20).map(|_| {
            let (at_work, most) = (at_work.clone(), most.clone());
            run_unpacking(content.clone(), move |_| {
                most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                at_work.fetch_sub(1, Ordering::SeqCst);
            })
        });
        assert!(join_all(large).await.iter().all(Result::is_ok));
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));

        let panicked = (0..4).map(|_| run_unpacking(content.clone(), |archive| archive[archive.len()]));
        assert!(join_all(panicked).await.iter().all(Result::is_err), "each gives its room back");
        assert!(run_unpacking(content, Bytes::len).await.is_ok());
    }
}
