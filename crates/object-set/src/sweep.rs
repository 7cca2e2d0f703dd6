//! What is an owner's on a cluster, found by its marks alone: for when the inventory is lost.

use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{DynamicObject, ListParams, PartialObjectMeta};

use crate::apply::{is_creator, serving_pauses};
use crate::cluster::{Cluster, OWNER_LABEL, Ownership};
use crate::discovery::Mapping;
use crate::drift::{applied_entry, fingerprint};
use crate::error::{Action, CallError, Failure};
use crate::inventory::{Entry, Inventory};
use crate::object::Identity;

/// Lists at the same time.
const PARALLEL: usize = 8;
/// Objects in one page of a list.
const PAGE: u32 = 500;

/// What becomes of a kind that may not be listed, or whose storage the API server does not get ready in two seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlisted {
    /// The search fails: nothing else tells what there is.
    Refused,
    /// It is left out: what is known to be there is gone, and the search only looks for more.
    LeftOut,
}

/// Every object of every kind that carries the owner's mark and was applied by our field manager: an operator that
/// copies labels to what it makes does not make that ours. Kinds that are shared are found by the owner's share.
///
/// One list for each kind that the cluster serves, so it is for when nothing else tells.
///
/// # Errors
/// A kind cannot be listed, or is of an aggregated API that does not answer any more: then what it holds is not known.
pub async fn owned(
    cluster: &Cluster,
    ownership: &Ownership,
    unlisted: Unlisted,
) -> Result<Inventory, CallError> {
    let kinds = cluster.discovery.kinds(&cluster.client).await?;
    let holds_objects = |mapping: &&Mapping| mapping.can("list") && mapping.can("delete");
    if unlisted == Unlisted::Refused
        && let Some(silent) = kinds.silent().find(holds_objects)
    {
        let gvk = silent.gvk();
        return Err(CallError::group_unknown(&Identity::new(&gvk.group, &gvk.kind, None, "")));
    }
    let listable = kinds.all().filter(holds_objects);
    let lists: Vec<_> = listable.map(|mapping| of_kind(cluster, mapping, ownership, unlisted)).collect();
    let found: Vec<Vec<(Identity, Entry)>> =
        futures::stream::iter(lists).buffer_unordered(PARALLEL).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

async fn of_kind(
    cluster: &Cluster,
    mapping: &Mapping,
    ownership: &Ownership,
    unlisted: Unlisted,
) -> Result<Vec<(Identity, Entry)>, CallError> {
    let mut found = listed(cluster, mapping, &format!("{OWNER_LABEL}={}", ownership.owner), unlisted).await?;
    let gvk = mapping.gvk();
    let probe = Identity::new(&gvk.group, &gvk.kind, None, "");
    if probe.is_crd() || probe.is_namespace() {
        found.extend(listed(cluster, mapping, &Ownership::share_label(&ownership.owner), unlisted).await?);
    }
    let managers = [ownership.manager.clone(), ownership.share_manager(&ownership.owner)];
    let entry = |object: PartialObjectMeta<DynamicObject>| {
        let metadata = object.metadata;
        let fingerprint = fingerprint(&metadata, &ownership.manager);
        let applied = managers.iter().any(|manager| applied_entry(&metadata, manager).is_some());
        let identity =
            Identity::new(&gvk.group, &gvk.kind, metadata.namespace.as_deref(), metadata.name.as_deref()?);
        let version = gvk.version.clone();
        let created = is_creator(&metadata, ownership);
        let entry = Entry { version, uid: metadata.uid?, fingerprint, created, ..Entry::default() };
        applied.then_some((identity, entry))
    };
    Ok(found.into_iter().filter_map(entry).collect())
}

/// Whether the API server has no storage of a kind yet, as it says of a CRD that has just come or changed.
/// Source: `storage is (re)initializing` in `staging/src/k8s.io/apiserver/pkg/storage/cacher` of Kubernetes.
fn is_getting_ready(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 429 && status.message.contains("(re)initializing"))
}

async fn listed(
    cluster: &Cluster,
    mapping: &Mapping,
    labels: &str,
    unlisted: Unlisted,
) -> Result<Vec<PartialObjectMeta<DynamicObject>>, CallError> {
    let api = mapping.api(&cluster.client, None);
    let mut params = ListParams::default().labels(labels).limit(PAGE);
    let mut found = Vec::new();
    let mut pauses = serving_pauses();
    loop {
        let page = match api.list_metadata(&params).await {
            Ok(page) => page,
            // No event tells that a storage is ready.
            Err(error) if is_getting_ready(&error) => match (pauses.next(), unlisted) {
                (Some(pause), _) => {
                    tokio::time::sleep(pause).await;
                    continue;
                }
                (None, Unlisted::LeftOut) => return Ok(found),
                (None, Unlisted::Refused) => return Err(CallError::new(Action::List, None, error)),
            },
            Err(error) => match CallError::new(Action::List, None, error) {
                // Its CRD went since discovery, and all objects with it.
                error if error.failure == Failure::NotFound => return Ok(found),
                error if error.failure == Failure::Forbidden && unlisted == Unlisted::LeftOut => {
                    return Ok(found);
                }
                error => return Err(error),
            },
        };
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_storage_that_is_not_ready_is_told_from_a_server_that_wants_fewer_calls() {
        let answer = |code: u16, message: &str| {
            kube::Error::Api(Box::new(Status::failure(message, "TooManyRequests").with_code(code)))
        };
        assert!(is_getting_ready(&answer(429, "storage is (re)initializing")));
        assert!(!is_getting_ready(&answer(429, "Too many requests, please try again later.")));
        assert!(!is_getting_ready(&answer(500, "storage is (re)initializing")));
    }
}
