//! Objects of ours that no inventory knows: what an operation that was cut off left behind.

use std::collections::BTreeSet;

use futures::{FutureExt, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;

use crate::cluster::{CREATED_BY, Cluster, OWNER_LABEL, Ownership};
use crate::discovery::Mapping;
use crate::drift::Observed;
use crate::error::{Action, CallError, Failure};
use crate::inventory::{Entry, Inventory};
use crate::object::{Gvk, Identity};

/// Pages of 500 objects that are read of one kind: a set of objects is far smaller.
const PAGES: usize = 20;

/// An object that carries our mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which object.
    pub identity: Identity,
    /// The version in which it was listed.
    pub version: String,
    /// Its metadata, reduced.
    pub observed: Observed,
    /// Whether it says that it was created by one of us.
    pub created: bool,
}

/// Lists the objects that carry an owner's mark, over these kinds (those of the old and the new set). Kinds
/// that the target does not serve are passed over.
///
/// # Errors
/// The first list that failed: what cannot be listed is not proven to be empty.
pub async fn find(
    cluster: &Cluster,
    ownership: &Ownership,
    kinds: &BTreeSet<Gvk>,
) -> Result<Vec<Found>, CallError> {
    let served = cluster.discovery.covering(&cluster.client, kinds).await?;
    let mappings: Vec<Mapping> = kinds.iter().filter_map(|kind| served.any(kind)).cloned().collect();
    let lists = mappings.iter().map(|mapping| list(cluster, ownership, mapping));
    let lists: Vec<_> = lists.map(FutureExt::boxed).collect();
    let mut lists = futures::stream::iter(lists).buffer_unordered(8);
    let mut found = Vec::new();
    while let Some(part) = lists.next().await {
        found.extend(part?);
    }
    found.sort_by(|a, b| a.identity.cmp(&b.identity));
    found.dedup_by(|a, b| a.identity == b.identity);
    Ok(found)
}

/// The inventory with what was found and it did not know. Such an entry has no hash, so that the object is
/// applied again when the set has it, and pruned when not.
pub fn merge(mut inventory: Inventory, found: Vec<Found>) -> Inventory {
    for found in found {
        if !inventory.contains(&found.identity) {
            let entry = Entry {
                version: found.version,
                uid: found.observed.uid,
                hash: String::new(),
                fingerprint: found.observed.fingerprint,
                created: found.created,
            };
            inventory.insert(found.identity, entry);
        }
    }
    inventory
}

async fn list(cluster: &Cluster, ownership: &Ownership, mapping: &Mapping) -> Result<Vec<Found>, CallError> {
    let kind = Identity::new(&mapping.resource.group, &mapping.resource.kind, None, "");
    let owned = format!("{OWNER_LABEL}={}", ownership.owner);
    let mut selectors = vec![owned];
    if kind.is_namespace() || kind.is_crd() {
        selectors.push(Ownership::share_label(&ownership.owner));
    }
    let api = mapping.api(&cluster.client, None);
    let mut found = Vec::new();
    for selector in selectors {
        let mut params = ListParams::default().labels(&selector).limit(500);
        for _ in 0..PAGES {
            let page = match api.list_metadata(&params).await {
                Ok(page) => page,
                Err(error) => match CallError::new(Action::List, Some(&kind), error) {
                    error if error.failure == Failure::NotFound => break,
                    error => return Err(error),
                },
            };
            found
                .extend(page.items.into_iter().filter_map(|item| of_ours(item.metadata, mapping, ownership)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
    }
    Ok(found)
}

/// A listed object, unless it only carries a copy of our label: operators copy labels to objects of their own.
fn of_ours(metadata: ObjectMeta, mapping: &Mapping, ownership: &Ownership) -> Option<Found> {
    let (group, kind) = (&mapping.resource.group, &mapping.resource.kind);
    let name = metadata.name.as_deref().unwrap_or_default();
    let identity = Identity::new(group, kind, metadata.namespace.as_deref(), name);
    let observed = Observed::from_metadata(&metadata, &ownership.manager, OWNER_LABEL);
    let shared = identity.is_namespace() || identity.is_crd();
    if observed.fingerprint.is_empty() && !shared {
        return None;
    }
    let created = metadata.annotations.is_some_and(|all| all.contains_key(CREATED_BY));
    Some(Found { identity, version: mapping.resource.version.clone(), observed, created })
}
