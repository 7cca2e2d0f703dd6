//! Searches for objects of components on a target, shared by components that search at the same time.
//!
//! A removal ends with one list for each kind that the target serves. Many releases that are removed together need
//! the same lists: each search that begins serves all components that asked before it began, and a search that follows
//! another one first waits for further components.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kyma_controller::ReconcileContext;
use kyma_object_set::sweep::{self, SearchResult, UnlistablePolicy};
use kyma_object_set::{CallError, Cluster, Ownership};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::ownership_requests::TargetScope;

/// Senders for the results of pending searches, by owner hash.
type PendingSearches = BTreeMap<String, Vec<oneshot::Sender<Result<SearchResult, CallError>>>>;

/// Maximum number of owners in one search: their hashes are part of a URL.
const MAX_OWNERS: usize = 100;

/// Maximum time between two searches of which the second waits for further components. A single removal does not wait.
const MAX_PAUSE_BETWEEN_SEARCHES: Duration = Duration::from_secs(1);
/// Time without a further component after which a search begins.
const GATHERING_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time that a search waits for further components.
const MAX_GATHERING_TIME: Duration = Duration::from_secs(2);

/// Target and account of a search, and whether it leaves out kinds that cannot be listed.
type SearchKey = (TargetScope, bool);

/// Searches on all targets.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    targets: Mutex<Targets>,
}

/// Targets on which components search, or searched until a moment ago.
#[derive(Debug, Default)]
struct Targets {
    entries: HashMap<SearchKey, Arc<TargetSearches>>,
    /// Targets without a running search, with the end of their last one, oldest first.
    idle: VecDeque<(Instant, SearchKey)>,
}

/// Searches on one target as one account.
#[derive(Debug, Default)]
struct TargetSearches {
    /// Owners that wait for the next search.
    waiting: Mutex<PendingSearches>,
    /// Notified for each owner that begins to wait.
    joined: Notify,
    /// End of the last search. Locked by the reconcile that searches for all owners.
    last_end: tokio::sync::Mutex<Option<Instant>>,
}

impl Searches {
    /// Searches the target for the objects of an owner, after a new discovery: an earlier one may predate a CRD of the
    /// owner. Both begin after the call, so the result is not stale. A wait for the search of another component lends
    /// the slot of the pass.
    ///
    /// # Errors
    /// As for [`sweep::owned`].
    pub(crate) async fn owned(
        &self,
        context: &ReconcileContext,
        scope: TargetScope,
        cluster: &Cluster,
        ownership: &Ownership,
        unlistable: UnlistablePolicy,
    ) -> Result<SearchResult, CallError> {
        if unlistable == UnlistablePolicy::Fail {
            cluster.discovery.rediscover(&cluster.client).await?;
            return sweep::owned(cluster, ownership, unlistable).await;
        }
        let key = (scope, unlistable == UnlistablePolicy::LeaveOut);
        let entry = self.enter(key);
        entry.target.search(context, cluster, ownership, unlistable).await
    }

    fn enter(&self, key: SearchKey) -> SearchEntry<'_> {
        let mut targets = self.targets.lock();
        targets.remove_idle();
        let target = Arc::clone(targets.entries.entry(key.clone()).or_default());
        SearchEntry { target, _cleanup: Cleanup { searches: self, key } }
    }
}

impl Targets {
    /// Removes targets of which the last search ended too long ago for the next one to wait for further components.
    fn remove_idle(&mut self) {
        let is_over = |(since, _): &mut (Instant, SearchKey)| since.elapsed() > MAX_PAUSE_BETWEEN_SEARCHES;
        while let Some((_, key)) = self.idle.pop_front_if(is_over) {
            // Otherwise a later entry of the queue covers the target.
            let is_idle =
                |target: &Arc<TargetSearches>| Arc::strong_count(target) == 1 && !target.is_recent();
            if self.entries.get(&key).is_some_and(is_idle) {
                self.entries.remove(&key);
            }
        }
    }
}

/// Entry of a running search. Its fields are dropped in this order.
struct SearchEntry<'a> {
    target: Arc<TargetSearches>,
    _cleanup: Cleanup<'a>,
}

/// End of a component's wait for a search.
enum WaitEnd<'a> {
    /// Another component searched for both.
    Served(Result<SearchResult, CallError>),
    /// The other component's reconcile was cancelled.
    Cancelled,
    /// The component searches itself: the end of the last search, locked.
    Next(tokio::sync::MutexGuard<'a, Option<Instant>>),
}

/// Records the end of a target's last search, which may have been cancelled.
struct Cleanup<'a> {
    searches: &'a Searches,
    key: SearchKey,
}

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        let mut targets = self.searches.targets.lock();
        if targets.entries.get(&self.key).is_some_and(|target| Arc::strong_count(target) == 1) {
            targets.idle.push_back((Instant::now(), self.key.clone()));
        }
    }
}

impl TargetSearches {
    /// Waits without a slot, so that components that could share the search do not wait for one. The search itself
    /// has a slot, so `--concurrency` limits the lists at a time.
    async fn search(
        &self,
        context: &ReconcileContext,
        cluster: &Cluster,
        ownership: &Ownership,
        unlistable: UnlistablePolicy,
    ) -> Result<SearchResult, CallError> {
        loop {
            let (sender, mut receiver) = oneshot::channel();
            self.join(&ownership.owner, sender);
            let end = match self.last_end.try_lock() {
                Ok(last_end) => WaitEnd::Next(last_end),
                Err(_) => context.without_slot(self.wait(&mut receiver)).await,
            };
            let mut last_end = match end {
                WaitEnd::Served(found) => return found,
                WaitEnd::Cancelled => continue,
                WaitEnd::Next(last_end) => last_end,
            };
            // Another search may have ended at the same moment.
            if let Ok(found) = receiver.try_recv() {
                return found;
            }
            if is_recent(*last_end) {
                context.without_slot(self.gather()).await;
            }
            let batch = self.take_batch(&ownership.owner);
            let owners: BTreeSet<String> = batch.keys().cloned().collect();
            let found = search(cluster, &ownership.manager, &owners, unlistable).await;
            *last_end = Some(Instant::now());
            tell(batch, &found);
            if let Ok(found) = receiver.try_recv() {
                return found;
            }
        }
    }

    /// Waits for the result of another component's search, or until the next search may begin.
    async fn wait(&self, result: &mut oneshot::Receiver<Result<SearchResult, CallError>>) -> WaitEnd<'_> {
        tokio::select! {
            found = result => found.map_or(WaitEnd::Cancelled, WaitEnd::Served),
            last_end = self.last_end.lock() => WaitEnd::Next(last_end),
        }
    }

    /// Waits until no further component joins. After a search that ended a moment ago: a search costs a request for
    /// each kind, which slows down the removals that the next search could serve too.
    async fn gather(&self) {
        let gathering = async {
            while self.waiting.lock().len() < MAX_OWNERS {
                if timeout(GATHERING_INTERVAL, self.joined.notified()).await.is_err() {
                    return;
                }
            }
        };
        // Components that wait longer are served by the next search.
        let _ = timeout_at(Instant::now() + MAX_GATHERING_TIME, gathering).await;
    }

    /// Reports whether a search runs or ended a moment ago.
    fn is_recent(&self) -> bool {
        self.last_end.try_lock().map_or(true, |end| is_recent(*end))
    }

    fn join(&self, owner: &str, sender: oneshot::Sender<Result<SearchResult, CallError>>) {
        self.waiting.lock().entry(owner.to_owned()).or_default().push(sender);
        self.joined.notify_one();
    }

    /// Takes the owners of the next search; `own` is among them.
    fn take_batch(&self, own: &str) -> PendingSearches {
        let mut waiting = self.waiting.lock();
        let mut batch = PendingSearches::new();
        batch.extend(waiting.remove_entry(own));
        while batch.len() < MAX_OWNERS
            && let Some((owner, senders)) = waiting.pop_first()
        {
            batch.insert(owner, senders);
        }
        batch
    }
}

/// Searches in the kinds of a new discovery.
async fn search(
    cluster: &Cluster,
    manager: &str,
    owners: &BTreeSet<String>,
    unlistable: UnlistablePolicy,
) -> Result<BTreeMap<String, SearchResult>, CallError> {
    cluster.discovery.rediscover(&cluster.client).await?;
    sweep::owned_by(cluster, manager, owners, unlistable).await
}

/// Reports whether the end of the last search is recent enough for the next one to wait for further components.
fn is_recent(last_end: Option<Instant>) -> bool {
    last_end.is_some_and(|end| end.elapsed() <= MAX_PAUSE_BETWEEN_SEARCHES)
}

/// Sends each owner its result. A cancelled reconcile has dropped its receiver, so send errors are ignored.
fn tell(batch: PendingSearches, found: &Result<BTreeMap<String, SearchResult>, CallError>) {
    for (owner, senders) in batch {
        let own = match found {
            Ok(found) => Ok(found.get(&owner).cloned().unwrap_or_default()),
            Err(error) => Err(error.clone()),
        };
        for sender in senders {
            drop(sender.send(own.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use futures::poll;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_target_is_kept_for_a_moment_after_its_last_search() {
        let (searches, other) = (Searches::default(), (TargetScope::default(), true));
        let key = (TargetScope::default(), false);
        let search = || {
            let entry = searches.enter(key.clone());
            *entry.target.last_end.try_lock().unwrap() = Some(Instant::now());
        };
        search();
        advance(MAX_PAUSE_BETWEEN_SEARCHES / 2).await;
        search();
        advance(MAX_PAUSE_BETWEEN_SEARCHES * 3 / 4).await;
        drop(searches.enter(other.clone()));
        let kept = searches.enter(key.clone());
        assert!(kept.target.is_recent(), "its second search ended less than a second ago");

        advance(MAX_PAUSE_BETWEEN_SEARCHES * 2).await;
        drop(searches.enter(other.clone()));
        assert!(searches.targets.lock().entries.contains_key(&key), "a component searches");
        drop(kept);
        advance(MAX_PAUSE_BETWEEN_SEARCHES * 2).await;
        drop(searches.enter(other.clone()));
        let targets = searches.targets.lock();
        assert_eq!(targets.entries.keys().collect::<Vec<_>>(), [&other]);
        assert_eq!(targets.idle.len(), 1);
    }

    fn join(target: &TargetSearches, owner: usize) {
        target.join(&format!("owner-{owner}"), oneshot::channel().0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_search_after_another_waits_until_no_component_joins() {
        let target = TargetSearches::default();
        let start = Instant::now();
        assert!(!is_recent(None), "a single removal does not wait");
        assert!(!is_recent(start.checked_sub(MAX_PAUSE_BETWEEN_SEARCHES * 2)));
        assert!(is_recent(Some(start)));

        let mut gathering = pin!(target.gather());
        for owner in 0..3 {
            assert_eq!(poll!(gathering.as_mut()), Poll::Pending);
            advance(GATHERING_INTERVAL / 2).await;
            join(&target, owner);
        }
        gathering.await;
        assert_eq!(start.elapsed(), GATHERING_INTERVAL * 5 / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_search_begins_although_components_keep_joining() {
        let target = TargetSearches::default();
        let start = Instant::now();
        let mut gathering = pin!(target.gather());
        let mut owners = 0..;
        while poll!(gathering.as_mut()).is_pending() {
            advance(GATHERING_INTERVAL / 2).await;
            join(&target, owners.next().unwrap());
        }
        assert_eq!(start.elapsed(), MAX_GATHERING_TIME);
    }

    #[test]
    fn one_batch_has_the_own_owner_and_all_that_wait() {
        let target = TargetSearches::default();
        for owner in 0..MAX_OWNERS + 5 {
            let (sender, _) = oneshot::channel();
            target.waiting.lock().insert(format!("owner-{owner:03}"), vec![sender]);
        }
        let last = format!("owner-{:03}", MAX_OWNERS + 4);
        let batch = target.take_batch(&last);
        assert_eq!(batch.len(), MAX_OWNERS);
        assert!(batch.contains_key(&last));
        assert_eq!(target.waiting.lock().len(), 5);
    }
}
