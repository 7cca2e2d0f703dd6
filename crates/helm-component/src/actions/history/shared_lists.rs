//! Helm's records of all releases of a namespace, listed once for many components that wait to be installed there.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use kyma_artifacts::{BoundedCache, SingleFlight};
use kyma_controller::Failure;
use kyma_targets::{SecretKey, ServiceAccount};

/// Maximum number of lists: a rollout over a fleet requests one for each target.
const MAX_LISTS: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Maximum size of all lists, in bytes.
const MAX_LIST_BYTES: usize = 4 << 20;
/// Minimum wait of a pass that uses a shared list: after such a wait, other components usually wait too. A pass that
/// waited less reads only its own release.
const MIN_SHARED_LIST_WAIT: Duration = Duration::from_millis(50);
/// Maximum age of a shared list.
const SHARED_LIST_TTL: Duration = Duration::from_secs(30);
/// Time for which a namespace counts as having too many records for a shared list.
const TOO_MANY_RECORDS_TTL: Duration = Duration::from_mins(1);

/// Deployed revision of each release.
pub(crate) type Releases = BTreeMap<String, i64>;

/// Scope of a list: the target, the ServiceAccount that is impersonated there, and the namespace.
pub(crate) type StorageNamespace = (Option<SecretKey>, Option<ServiceAccount>, String);

/// Content of a list.
#[derive(Clone)]
struct ReleaseList {
    begun: Instant,
    /// `None` if there are too many records, or they may not be listed.
    releases: Option<Arc<Releases>>,
}

/// Lists that a component may use instead of a read of its own. They began after the last event that requeued the
/// component, so they include everything that was done on the target before the component was created or changed.
pub(crate) struct ReleaseRecords {
    kept: BoundedCache<StorageNamespace, ReleaseList>,
    single_flight: SingleFlight<StorageNamespace, ReleaseList, Failure>,
}

impl Default for ReleaseRecords {
    fn default() -> Self {
        Self {
            kept: BoundedCache::new(MAX_LISTS, MAX_LIST_BYTES, ReleaseList::bytes),
            single_flight: SingleFlight::new(),
        }
    }
}

impl ReleaseList {
    fn bytes(&self) -> usize {
        let releases = self.releases.iter().flat_map(|releases| releases.keys());
        releases.map(|name| size_of::<(String, i64)>() + name.len()).sum()
    }

    /// Reports whether a reconcile whose last request was at `requested` may use the list now.
    fn serves(&self, requested: Instant, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.begun);
        if self.releases.is_some() {
            self.begun >= requested && age < SHARED_LIST_TTL
        } else {
            age < TOO_MANY_RECORDS_TTL
        }
    }
}

impl ReleaseRecords {
    /// Returns the releases of a place, for a pass whose last request was at `requested`. Returns `None` if the
    /// component must read its own release: it did not wait, or no list is complete. `list` returns all releases, or
    /// `None` if it cannot.
    ///
    /// # Errors
    /// Errors of `list`, the same for all passes that waited for it.
    pub(crate) async fn of(
        &self,
        place: &StorageNamespace,
        requested: Option<Instant>,
        now: Instant,
        list: impl Fn() -> BoxFuture<'static, Result<Option<Releases>, Failure>>,
    ) -> Result<Option<Arc<Releases>>, Failure> {
        let has_waited =
            |requested: &Instant| now.saturating_duration_since(*requested) >= MIN_SHARED_LIST_WAIT;
        let Some(requested) = requested.filter(has_waited) else { return Ok(None) };
        if let Some(listed) = self.kept.get(place).filter(|listed| listed.serves(requested, now)) {
            return Ok(listed.releases);
        }
        loop {
            let work = || {
                let (begun, listing) = (Instant::now(), list());
                async move { Ok(ReleaseList { begun, releases: listing.await?.map(Arc::new) }) }.boxed()
            };
            let listed = self.single_flight.join(place.clone(), work).await?;
            // A list in progress may have begun too early; the next one does not.
            if listed.begun >= requested {
                self.keep(place, &listed);
                return Ok(listed.releases);
            }
        }
    }

    /// Drops all lists: a changed access Secret may lead to another target.
    pub(crate) fn access_changed(&self) {
        self.kept.clear();
    }

    fn keep(&self, place: &StorageNamespace, listed: &ReleaseList) {
        if self.kept.get(place).is_none_or(|kept| kept.begun < listed.begun) {
            self.kept.put(place.clone(), listed.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future;
    use kyma_api::Reason;

    use super::*;

    fn place(namespace: &str) -> StorageNamespace {
        (None, None, namespace.to_owned())
    }

    /// Counts its lists, and returns one more release each time.
    #[derive(Default)]
    struct Target(Arc<AtomicUsize>);

    impl Target {
        fn list(&self) -> BoxFuture<'static, Result<Option<Releases>, Failure>> {
            let number = self.0.fetch_add(1, Ordering::SeqCst);
            let releases = (0..=number).map(|number| (number.to_string(), 1)).collect();
            future::ready(Ok(Some(releases))).boxed()
        }

        fn lists(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn waiting_components_share_a_list_begun_after_their_requests() {
        let (records, target) = (ReleaseRecords::default(), Target::default());
        let look = |requested: Instant| {
            let (records, target) = (&records, &target);
            async move {
                let found = records
                    .of(&place("n"), Some(requested), requested + MIN_SHARED_LIST_WAIT, || target.list())
                    .await;
                found.unwrap().map(|releases| releases.len())
            }
        };
        let first = Instant::now();
        assert_eq!(future::join(look(first), look(first)).await, (Some(1), Some(1)));
        assert_eq!(look(first).await, Some(1), "it is kept");
        assert_eq!(look(Instant::now()).await, Some(2), "what came after the list needs another");
        assert_eq!(look(first).await, Some(2), "which serves all before it too");
        records.access_changed();
        assert_eq!(look(first).await, Some(3), "it may be another target");
    }

    #[tokio::test]
    async fn a_list_under_way_serves_nobody_who_came_after_it_began() {
        let (records, target) = (ReleaseRecords::default(), Target::default());
        let (open, gate) = tokio::sync::oneshot::channel();
        let gate = parking_lot::Mutex::new(Some(gate));
        let slow = || {
            let (listing, gate) = (target.list(), gate.lock().take());
            async move {
                if let Some(gate) = gate {
                    gate.await.unwrap();
                }
                listing.await
            }
            .boxed()
        };
        let first = Instant::now();
        let here = place("n");
        let mut early = Box::pin(records.of(&here, Some(first), first + MIN_SHARED_LIST_WAIT, slow));
        assert!(futures::poll!(&mut early).is_pending());
        let second = Instant::now();
        let late = records.of(&here, Some(second), second + MIN_SHARED_LIST_WAIT, slow);
        open.send(()).unwrap();
        let (early, late) = future::join(early, late).await;
        assert_eq!((early.unwrap().unwrap().len(), late.unwrap().unwrap().len()), (1, 2));
    }

    #[tokio::test]
    async fn a_component_that_did_not_wait_reads_its_own_release() {
        let (records, target) = (ReleaseRecords::default(), Target::default());
        let now = Instant::now();
        for requested in [None, Some(now)] {
            assert!(records.of(&place("n"), requested, now, || target.list()).await.unwrap().is_none());
        }
        assert_eq!(target.lists(), 0);
    }

    #[tokio::test]
    async fn namespace_with_too_many_records_pauses_lists_of_it_alone() {
        let (records, target) = (ReleaseRecords::default(), Target::default());
        let requested = Instant::now();
        let now = requested + MIN_SHARED_LIST_WAIT;
        let many = || {
            drop(target.list());
            future::ready(Ok(None)).boxed()
        };
        for _ in 0..3 {
            assert!(records.of(&place("n"), Some(requested), now, many).await.unwrap().is_none());
        }
        assert_eq!(target.lists(), 1);
        assert!(records.of(&place("m"), Some(requested), now, || target.list()).await.unwrap().is_some());
        let many = ReleaseList { begun: requested, releases: None };
        assert!(
            many.serves(requested + TOO_MANY_RECORDS_TTL / 2, requested + TOO_MANY_RECORDS_TTL / 2)
                && !many.serves(requested, requested + TOO_MANY_RECORDS_TTL)
        );
        let few = ReleaseList { begun: requested, releases: Some(Arc::default()) };
        assert!(
            few.serves(requested, requested + SHARED_LIST_TTL / 2)
                && !few.serves(requested, requested + SHARED_LIST_TTL)
        );
    }

    #[tokio::test]
    async fn a_failure_is_not_kept() {
        let (records, target) = (ReleaseRecords::default(), Target::default());
        let (requested, here) = (Instant::now(), place("n"));
        let now = requested + MIN_SHARED_LIST_WAIT;
        let fails = || future::ready(Err(Failure::new(Reason::TargetTimeout, ""))).boxed();
        let failed = records.of(&here, Some(requested), now, fails).await;
        assert_eq!(failed.unwrap_err().reason, Reason::TargetTimeout);
        assert!(records.of(&here, Some(requested), now, || target.list()).await.unwrap().is_some());
    }
}
