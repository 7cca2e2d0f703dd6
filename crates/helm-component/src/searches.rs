//! Searches for objects of components on a target, shared by components that search at the same time.
//!
//! A removal ends with one list for each kind that the target serves. Many releases that are removed together need
//! the same lists: each search that begins serves all components that asked before it began.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kyma_object_set::sweep::{self, SearchResult, Unlisted};
use kyma_object_set::{CallError, Cluster, Ownership};
use tokio::sync::oneshot;

use crate::claims::Reach;

/// Senders for the results of pending searches, by owner hash.
type PendingSearches = BTreeMap<String, Vec<oneshot::Sender<Result<SearchResult, CallError>>>>;

/// Maximum number of owners in one search: their hashes are part of a URL.
const MAX_OWNERS: usize = 100;

/// Target and account of a search, and whether it leaves out kinds that cannot be listed.
type SearchKey = (Reach, bool);

/// Searches on all targets. An entry exists while a component searches on its target.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    targets: Mutex<HashMap<SearchKey, Arc<TargetSearches>>>,
}

/// Searches on one target as one account.
#[derive(Debug, Default)]
struct TargetSearches {
    /// Owners that wait for the next search.
    waiting: Mutex<PendingSearches>,
    /// Held by the reconcile that searches for all owners.
    turn: tokio::sync::Mutex<()>,
}

impl Searches {
    /// Searches the target for the objects of an owner. The search begins after the call, so its result is not stale.
    ///
    /// # Errors
    /// As for [`sweep::owned`].
    pub(crate) async fn owned(
        &self,
        reach: Reach,
        cluster: &Cluster,
        ownership: &Ownership,
        unlisted: Unlisted,
    ) -> Result<SearchResult, CallError> {
        if unlisted == Unlisted::Refused {
            return sweep::owned(cluster, ownership, unlisted).await;
        }
        let key = (reach, unlisted == Unlisted::LeftOut);
        let entry = self.enter(key);
        entry.target.search(cluster, ownership, unlisted).await
    }

    fn enter(&self, key: SearchKey) -> SearchEntry<'_> {
        let target = Arc::clone(self.targets().entry(key.clone()).or_default());
        SearchEntry { target, _cleanup: Cleanup { searches: self, key } }
    }

    fn targets(&self) -> MutexGuard<'_, HashMap<SearchKey, Arc<TargetSearches>>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Entry of a running search. Its fields are dropped in this order.
struct SearchEntry<'a> {
    target: Arc<TargetSearches>,
    _cleanup: Cleanup<'a>,
}

/// Removes the entry of a target after its last search, which may have been cancelled.
struct Cleanup<'a> {
    searches: &'a Searches,
    key: SearchKey,
}

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        let mut targets = self.searches.targets();
        if targets.get(&self.key).is_some_and(|target| Arc::strong_count(target) == 1) {
            targets.remove(&self.key);
        }
    }
}

impl TargetSearches {
    async fn search(
        &self,
        cluster: &Cluster,
        ownership: &Ownership,
        unlisted: Unlisted,
    ) -> Result<SearchResult, CallError> {
        loop {
            let (sender, mut receiver) = oneshot::channel();
            self.waiting().entry(ownership.owner.clone()).or_default().push(sender);
            tokio::select! {
                found = &mut receiver => {
                    // The reconcile that searched was cancelled: try again.
                    if let Ok(found) = found {
                        return found;
                    }
                }
                _turn = self.turn.lock() => {
                    // Another search may have ended at the same moment.
                    if let Ok(found) = receiver.try_recv() {
                        return found;
                    }
                    let batch = self.take_batch(&ownership.owner);
                    let owners: BTreeSet<String> = batch.keys().cloned().collect();
                    let found = sweep::owned_by(cluster, &ownership.manager, &owners, unlisted).await;
                    tell(batch, &found);
                    if let Ok(found) = receiver.try_recv() {
                        return found;
                    }
                }
            }
        }
    }

    /// Takes the owners of the next search; `own` is among them.
    fn take_batch(&self, own: &str) -> PendingSearches {
        let mut waiting = self.waiting();
        let mut batch = PendingSearches::new();
        batch.extend(waiting.remove_entry(own));
        while batch.len() < MAX_OWNERS
            && let Some((owner, senders)) = waiting.pop_first()
        {
            batch.insert(owner, senders);
        }
        batch
    }

    fn waiting(&self) -> MutexGuard<'_, PendingSearches> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    use super::*;

    #[test]
    fn the_entry_of_a_target_is_removed_with_its_last_search() {
        let (searches, key) = (Searches::default(), (Reach::default(), false));
        let (first, second) = (searches.enter(key.clone()), searches.enter(key));
        drop(second);
        assert_eq!(searches.targets().len(), 1);
        drop(first);
        assert!(searches.targets().is_empty());
    }

    #[test]
    fn one_batch_has_the_own_owner_and_all_that_wait() {
        let target = TargetSearches::default();
        for owner in 0..MAX_OWNERS + 5 {
            let (sender, _) = oneshot::channel();
            target.waiting().insert(format!("owner-{owner:03}"), vec![sender]);
        }
        let last = format!("owner-{:03}", MAX_OWNERS + 4);
        let batch = target.take_batch(&last);
        assert_eq!(batch.len(), MAX_OWNERS);
        assert!(batch.contains_key(&last));
        assert_eq!(target.waiting().len(), 5);
    }
}
