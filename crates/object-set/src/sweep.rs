//! Finds an owner's objects on a cluster by their marks alone, after the inventory was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;

use crate::cluster::Cluster;
use crate::cluster::discovery::{Kinds, Mapping, serving_pauses};
use crate::error::{Action, CallError, Failure};
use crate::inventory::{Entry, Inventory};
use crate::managed_fields::drift::fingerprint;
use crate::managed_fields::entries::applied_entry;
use crate::object::{GroupKind, Identity};
use crate::ownership::{OWNER_LABEL, Ownership, is_creator};

/// Maximum number of concurrent lists.
const MAX_PARALLEL_LISTS: usize = 8;
/// Number of objects in one page of a list.
const LIST_PAGE_SIZE: u32 = 500;
/// Maximum number of pages of one list.
const MAX_LIST_PAGES: usize = 200;
/// Maximum number of objects that a search finds. A set has at most 5,000.
const MAX_FOUND_OBJECTS: usize = 50_000;
/// Maximum length of an object's name, namespace or uid in bytes.
const MAX_NAME_BYTES: usize = 253;

/// Handling of a kind that cannot be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnlistablePolicy {
    /// The search fails, since nothing else shows the objects.
    Fail,
    /// A broken kind is left out and reported: its conversion webhook or its aggregated API does not answer, or the
    /// API server does not initialise its storage within two seconds. A single foreign CRD must not block every
    /// removal. A list that the target forbids fails the search.
    LeaveOutBroken,
    /// A kind that is broken or whose list the target forbids is left out: the known objects are gone, and the search
    /// only looks for further ones.
    LeaveOut,
}

/// Result of a search.
#[derive(Clone, Debug, Default)]
pub struct SearchResult {
    /// The owner's objects.
    pub objects: Inventory,
    /// Broken kinds that were left out.
    pub left_out: BTreeSet<GroupKind>,
}

/// Returns every object that carries the owner's mark and was applied by this operator's field manager: an operator
/// that copies labels to its own objects does not pass ownership on. Shared kinds are found by the owner's share.
///
/// Sends one list for each kind that the cluster serves, so use it only without an inventory. A kind that cannot be
/// listed in one version is listed in another one.
///
/// # Errors
/// A kind cannot be listed, or its aggregated API no longer answers, so that its objects are unknown.
pub async fn owned(
    cluster: &Cluster,
    ownership: &Ownership,
    unlistable: UnlistablePolicy,
) -> Result<SearchResult, CallError> {
    let owners = BTreeSet::from([ownership.owner.clone()]);
    let mut found = owned_by(cluster, &ownership.manager, &owners, unlistable).await?;
    Ok(found.remove(&ownership.owner).unwrap_or_default())
}

/// Searches like [`owned`], for several owners at once.
///
/// # Errors
/// As for [`owned`].
pub async fn owned_by(
    cluster: &Cluster,
    manager: &str,
    owners: &BTreeSet<String>,
    unlistable: UnlistablePolicy,
) -> Result<BTreeMap<String, SearchResult>, CallError> {
    let search = Search { cluster, manager, owners, unlistable, found: AtomicUsize::new(0) };
    let kinds = cluster.discovery.kinds(&cluster.client).await?;
    let holds_objects = |mapping: &&Mapping| mapping.can("list") && mapping.can("delete");
    let silent: BTreeSet<GroupKind> =
        kinds.silent().filter(holds_objects).map(|mapping| mapping.gvk().group_kind()).collect();
    if unlistable == UnlistablePolicy::Fail
        && let Some(silent) = silent.first()
    {
        return Err(CallError::group_unknown(&Identity::new(&silent.group, &silent.kind, None, "")));
    }
    let listable = kinds.all().filter(holds_objects);
    let lists: Vec<_> = listable.map(|mapping| search.list_in_some_version(&kinds, mapping)).collect();
    let lists: Vec<KindResult> =
        futures::stream::iter(lists).buffer_unordered(MAX_PARALLEL_LISTS).try_collect().await?;
    let empty = SearchResult { objects: Inventory::new(), left_out: silent };
    let mut found: BTreeMap<String, SearchResult> =
        owners.iter().map(|owner| (owner.clone(), empty.clone())).collect();
    for list in lists {
        match list {
            KindResult::Listed(objects) => {
                for OwnedObject { owner, identity, entry } in objects {
                    found.entry(owner).or_default().objects.insert(identity, entry);
                }
            }
            KindResult::LeftOut(kind) => found.values_mut().for_each(|found| {
                found.left_out.insert(kind.clone());
            }),
        }
    }
    Ok(found)
}

/// An object that was found.
struct OwnedObject {
    owner: String,
    identity: Identity,
    entry: Entry,
}

/// Result of the search among the objects of one kind.
enum KindResult {
    /// The kind was listed; these are the owners' objects.
    Listed(Vec<OwnedObject>),
    /// The kind is broken and was left out.
    LeftOut(GroupKind),
}

/// One search for the objects of some owners.
struct Search<'a> {
    cluster: &'a Cluster,
    manager: &'a str,
    owners: &'a BTreeSet<String>,
    unlistable: UnlistablePolicy,
    /// Number of objects found so far.
    found: AtomicUsize,
}

impl Search<'_> {
    /// Returns the owners' objects of a kind, from the first version that can be listed.
    async fn list_in_some_version(&self, kinds: &Kinds, mapping: &Mapping) -> Result<KindResult, CallError> {
        let kind = mapping.gvk().group_kind();
        let others =
            kinds.versions(&kind).iter().filter(|other| other.resource.version != mapping.resource.version);
        let mut failed = None;
        for version in std::iter::once(mapping).chain(others) {
            match self.list_kind(version).await {
                Ok(found) => return Ok(KindResult::Listed(found)),
                Err(error) if is_broken(&error) => failed = Some(error),
                Err(error) => return Err(error),
            }
        }
        match failed {
            Some(error) if self.unlistable == UnlistablePolicy::Fail => Err(error),
            _ => Ok(KindResult::LeftOut(kind)),
        }
    }

    /// Returns the owners' objects of a kind in one version.
    async fn list_kind(&self, mapping: &Mapping) -> Result<Vec<OwnedObject>, CallError> {
        let gvk = mapping.gvk();
        let probe = Identity::new(&gvk.group, &gvk.kind, None, "");
        let owners: Vec<&str> = self.owners.iter().map(String::as_str).collect();
        let by_owner = format!("{OWNER_LABEL} in ({})", owners.join(","));
        let mut found = self.list_pages(mapping, &probe, &by_owner).await?;
        if probe.is_crd() || probe.is_namespace() {
            // A selector cannot match one of several label keys, so for several owners everything is listed.
            let by_share = match owners.as_slice() {
                [owner] => Ownership::share_label(owner),
                _ => String::new(),
            };
            found.extend(self.list_pages(mapping, &probe, &by_share).await?);
        }
        Ok(found)
    }

    /// Returns the owners' objects of a kind with these labels, page by page.
    async fn list_pages(
        &self,
        mapping: &Mapping,
        kind: &Identity,
        labels: &str,
    ) -> Result<Vec<OwnedObject>, CallError> {
        let api = mapping.api(&self.cluster.client, None);
        let mut params = ListParams::default().labels(labels).limit(LIST_PAGE_SIZE);
        let mut found = Vec::new();
        let mut pauses = serving_pauses();
        let mut pages = 0;
        loop {
            let page = match api.list_metadata(&params).await {
                Ok(page) => page,
                // No event announces that the API server has initialised the storage of a kind.
                Err(error) if is_getting_ready(&error) => match pauses.next() {
                    Some(pause) => {
                        tokio::time::sleep(pause).await;
                        continue;
                    }
                    None => return Err(CallError::new(Action::List, Some(kind), error)),
                },
                Err(error) => match CallError::new(Action::List, Some(kind), error) {
                    error
                        if error.failure == Failure::Forbidden
                            && self.unlistable == UnlistablePolicy::LeaveOut =>
                    {
                        return Ok(found);
                    }
                    error => {
                        // Its CRD may have been removed since discovery, and all objects with it.
                        let is_unserved = self.cluster.is_unserved(mapping, &error).await?;
                        return if is_unserved { Ok(found) } else { Err(error) };
                    }
                },
            };
            let before = found.len();
            found.extend(page.items.iter().flat_map(|object| self.owners_of(mapping, &object.metadata)));
            let added = found.len() - before;
            pages += 1;
            if pages > MAX_LIST_PAGES
                || self.found.fetch_add(added, Ordering::Relaxed) + added > MAX_FOUND_OBJECTS
            {
                return Err(CallError::endless_list(kind));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// Returns the owners of an object, each with an inventory entry; none if no API server would store the object.
    fn owners_of(&self, mapping: &Mapping, metadata: &ObjectMeta) -> Vec<OwnedObject> {
        let names = [&metadata.name, &metadata.namespace, &metadata.uid];
        if names.into_iter().flatten().any(|name| name.len() > MAX_NAME_BYTES) {
            return Vec::new();
        }
        let gvk = mapping.gvk();
        let labels = metadata.labels.as_ref();
        let owns = |owner: &&String| {
            labels.is_some_and(|labels| {
                labels.get(OWNER_LABEL) == Some(*owner) || labels.contains_key(&Ownership::share_label(owner))
            })
        };
        let owned = self.owners.iter().filter(owns).filter_map(|owner| {
            let ownership =
                Ownership { manager: self.manager.to_owned(), owner: owner.clone(), version: String::new() };
            let managers = [ownership.manager.clone(), ownership.share_manager(owner)];
            if !managers.iter().any(|manager| applied_entry(metadata, manager).is_some()) {
                return None;
            }
            let entry = Entry {
                version: gvk.version.clone(),
                uid: metadata.uid.clone()?,
                fingerprint: fingerprint(metadata, self.manager),
                created: is_creator(metadata, &ownership),
                ..Entry::default()
            };
            let namespace = metadata.namespace.as_deref();
            let identity = Identity::new(&gvk.group, &gvk.kind, namespace, metadata.name.as_deref()?);
            Some(OwnedObject { owner: owner.clone(), identity, entry })
        });
        owned.collect()
    }
}

/// Reports whether the kind of a list is broken, as opposed to the API server.
pub(crate) fn is_broken(error: &CallError) -> bool {
    matches!(error.failure, Failure::ConversionFailed(_))
        || is_getting_ready(error.cause())
        || error.may_be_of_group()
}

/// Reports whether the API server has not initialised the storage of a kind yet, as after a change of its CRD.
/// Source: `storage is (re)initializing` in `staging/src/k8s.io/apiserver/pkg/storage/cacher` of Kubernetes.
fn is_getting_ready(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 429 && status.message.contains("(re)initializing"))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn initialising_storage_differs_from_throttling() {
        let answer = |code: u16, message: &str| {
            kube::Error::Api(Box::new(Status::failure(message, "TooManyRequests").with_code(code)))
        };
        assert!(is_getting_ready(&answer(429, "storage is (re)initializing")));
        assert!(!is_getting_ready(&answer(429, "Too many requests, please try again later.")));
        assert!(!is_getting_ready(&answer(500, "storage is (re)initializing")));
    }
}
