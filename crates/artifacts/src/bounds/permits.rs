//! Limits on concurrent pulls. Hosts that do not answer leave permits to others.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{Arc, Weak},
};

use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::error::ArtifactError;

/// Maximum number of concurrent pulls over all sources: limits the memory for content in transit.
const MAX_PULLS: usize = 8;
/// Maximum number of concurrent pulls from one host. Most hubs have one registry, so it may use most permits.
const MAX_PULLS_PER_HOST: usize = 6;
/// Maximum number of concurrent pulls from all hosts together whose last pull got no answer.
const MAX_PULLS_OF_SILENT_HOSTS: usize = 2;
/// Maximum number of remembered hosts without an answer; the least recently used are evicted first.
const MAX_SILENT_HOSTS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Permits for pulls.
pub(crate) struct PullPermits {
    all: Semaphore,
    of_silent_hosts: Semaphore,
    /// Permits of each host with pulls in progress or waiting.
    of_hosts: Mutex<HashMap<String, Weak<Semaphore>>>,
    /// Hosts whose last pull got no answer.
    silent_hosts: Mutex<LruCache<String, ()>>,
}

impl PullPermits {
    pub(crate) fn new() -> Self {
        Self {
            all: Semaphore::new(MAX_PULLS),
            of_silent_hosts: Semaphore::new(MAX_PULLS_OF_SILENT_HOSTS),
            of_hosts: Mutex::new(HashMap::new()),
            silent_hosts: Mutex::new(LruCache::new(MAX_SILENT_HOSTS)),
        }
    }

    /// Runs a pull from a host once it has all permits. The permit over all sources is acquired last, so that a pull that
    /// waits for its host does not hold it.
    ///
    /// # Errors
    /// Errors of the pull.
    pub(crate) async fn run<T>(
        &self,
        host: &str,
        pull: impl Future<Output = Result<T, ArtifactError>>,
    ) -> Result<T, ArtifactError> {
        let host_permits = self.host_permits(host);
        // No semaphore is ever closed, so every result is a permit.
        let _host_permit = host_permits.acquire().await;
        let _of_silent_hosts =
            if self.is_silent(host) { Some(self.of_silent_hosts.acquire().await) } else { None };
        let _permit = self.all.acquire().await;
        let result = pull.await;
        self.note(host, matches!(result, Err(ArtifactError::Unreachable { .. })));
        result
    }

    fn host_permits(&self, host: &str) -> Arc<Semaphore> {
        let mut of_hosts = self.of_hosts.lock();
        // Hosts without pulls are dropped here, so the map contains only hosts of pulls in progress.
        of_hosts.retain(|_, permits| permits.strong_count() > 0);
        if let Some(permits) = of_hosts.get(host).and_then(Weak::upgrade) {
            return permits;
        }
        let permits = Arc::new(Semaphore::new(MAX_PULLS_PER_HOST));
        of_hosts.insert(host.to_owned(), Arc::downgrade(&permits));
        permits
    }

    fn is_silent(&self, host: &str) -> bool {
        self.silent_hosts.lock().contains(host)
    }

    fn note(&self, host: &str, is_silent: bool) {
        if is_silent {
            self.silent_hosts.lock().put(host.to_owned(), ());
        } else {
            self.silent_hosts.lock().pop(host);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        future::{pending, ready},
        pin::pin,
    };

    use futures::{FutureExt as _, future::join_all};

    use super::*;

    fn silence() -> Result<(), ArtifactError> {
        Err(ArtifactError::Unreachable { what: "a".to_owned(), cause: "no answer in time".to_owned() })
    }

    async fn hang(begun: &Cell<usize>) -> Result<(), ArtifactError> {
        begun.set(begun.get() + 1);
        pending().await
    }

    #[tokio::test]
    async fn a_host_that_hangs_leaves_permits_to_others() {
        let (permits, begun) = (PullPermits::new(), Cell::new(0));
        let mut hanging = pin!(join_all((0..2 * MAX_PULLS).map(|_| permits.run("slow", hang(&begun)))));
        assert!(futures::poll!(hanging.as_mut()).is_pending());
        assert_eq!(begun.get(), MAX_PULLS_PER_HOST);
        assert!(permits.run("fast", ready(Ok(()))).now_or_never().is_some());
    }

    #[tokio::test]
    async fn hosts_without_an_answer_share_few_permits() {
        let (permits, begun) = (PullPermits::new(), Cell::new(0));
        let hosts: Vec<String> = (0..MAX_PULLS).map(|number| format!("silent-{number}")).collect();
        for host in &hosts {
            permits.run(host, ready(silence())).await.unwrap_err();
        }
        let mut hanging = pin!(join_all(hosts.iter().map(|host| permits.run(host, hang(&begun)))));
        assert!(futures::poll!(hanging.as_mut()).is_pending());
        assert_eq!(begun.get(), MAX_PULLS_OF_SILENT_HOSTS);
        let mut others = pin!(join_all((0..MAX_PULLS).map(|_| permits.run("fast", hang(&begun)))));
        assert!(futures::poll!(others.as_mut()).is_pending());
        assert_eq!(begun.get(), MAX_PULLS, "the other permits are free");
    }

    #[tokio::test]
    async fn any_answer_makes_a_host_one_like_others() {
        let permits = PullPermits::new();
        permits.run("a", ready(silence())).await.unwrap_err();
        assert!(permits.is_silent("a"));
        let missing = ArtifactError::NotFound { what: "a".to_owned() };
        permits.run("a", ready(Err::<(), _>(missing))).await.unwrap_err();
        assert!(!permits.is_silent("a"));
    }

    #[tokio::test]
    async fn remembered_hosts_are_bounded() {
        let permits = PullPermits::new();
        for number in 0..=MAX_SILENT_HOSTS.get() {
            permits.run(&number.to_string(), ready(silence())).await.unwrap_err();
        }
        assert_eq!(permits.silent_hosts.lock().len(), MAX_SILENT_HOSTS.get());
        assert_eq!(permits.of_hosts.lock().len(), 1, "the last one");
    }
}
