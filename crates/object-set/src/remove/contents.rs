//! Objects in a Namespace or of a CRD, which block its deletion.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{FutureExt, StreamExt as _};
use kube::api::ListParams;

use super::crd_hold::{CrdContents, block_creation, is_in_use};
use super::rules::{Rules, is_looked_at};
use crate::cluster::Cluster;
use crate::cluster::discovery::{Kinds, Mapping};
use crate::error::{Action, CallError, Failure};
use crate::object::Identity;
use crate::ownership::Ownership;
use crate::prune::KeepReason;
use crate::sweep::is_broken;

/// Maximum number of concurrent lists.
const MAX_PARALLEL_LISTS: usize = 8;

/// Objects per page of a list.
const LIST_PAGE_SIZE: u32 = 500;

/// Maximum number of pages of one kind; the content of a kind with more is unknown.
const MAX_LIST_PAGES: usize = 40;

/// Returns the resourceVersion of a CRD at which none of its objects exist and none can be created; otherwise the
/// reason to keep it. Uses the versions in the CRD itself, since discovery may lag behind.
pub(super) async fn crd_in_use(
    cluster: &Cluster,
    ownership: &Ownership,
    crd: &Identity,
    of_crds: &Mapping,
) -> Result<Result<String, KeepReason>, CallError> {
    let client = &cluster.client;
    let failed = |error| CallError::new(Action::Get, Some(crd), error);
    let live = of_crds.api(client, None).get(&crd.name).await.map_err(failed)?;
    if cluster.dry_run.is_some() {
        return match is_in_use(client, &live).await.map_err(|error| crd_call_error(crd, error))? {
            Some(false) => Ok(Ok(String::new())),
            Some(true) => Ok(Err(KeepReason::InUse)),
            None => Ok(Err(KeepReason::CannotTell)),
        };
    }
    if let Some(deleter) = &cluster.deleter {
        deleter.permit(crd).await?;
    }
    let contents = block_creation(client, &live, &ownership.creator()).await;
    match contents.map_err(|error| crd_call_error(crd, error))? {
        CrdContents::Empty { resource_version } => Ok(Ok(resource_version)),
        CrdContents::InUse => Ok(Err(KeepReason::InUse)),
        // The API does not show whether objects are stored.
        CrdContents::Unknown => Ok(Err(KeepReason::CannotTell)),
    }
}

/// The objects in a Namespace.
pub(super) struct NamespaceContents<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) kinds: &'a Arc<Kinds>,
    pub(super) rules: &'a Rules<'a>,
}

impl NamespaceContents<'_> {
    /// Returns the reason to keep a Namespace, if it contains objects that stay. Lists every kind that can be listed
    /// and deleted.
    pub(super) async fn held_by(&self, namespace: &str) -> Result<Option<KeepReason>, CallError> {
        // Includes kinds that were added since the last discovery.
        let kinds = self.cluster.discovery.newer_than(self.kinds, &self.cluster.client).await?;
        if kinds.unknown().next().is_some() {
            return Ok(Some(KeepReason::CannotTell));
        }
        let mappings = kinds.all().filter(|mapping| is_looked_at(mapping));
        let lists = mappings.map(|mapping| self.held_by_some_version(&kinds, mapping, namespace));
        let lists: Vec<_> = lists.map(FutureExt::boxed).collect();
        let mut lists = futures::stream::iter(lists).buffer_unordered(MAX_PARALLEL_LISTS);
        while let Some(found) = lists.next().await {
            if let Some(reason) = found? {
                return Ok(Some(reason));
            }
        }
        Ok(None)
    }

    /// Lists a kind in the first version that can be listed. If none can, the content of the Namespace is unknown.
    async fn held_by_some_version(
        &self,
        kinds: &Kinds,
        mapping: &Mapping,
        namespace: &str,
    ) -> Result<Option<KeepReason>, CallError> {
        let kind = mapping.gvk().group_kind();
        let others = kinds.versions(&kind).iter().filter(|other| *other != mapping);
        for version in std::iter::once(mapping).chain(others) {
            match self.held_by_kind(kinds, version, namespace).await {
                Err(error) if is_broken(&error) => {}
                told => return told,
            }
        }
        Ok(Some(KeepReason::CannotTell))
    }

    async fn held_by_kind(
        &self,
        kinds: &Kinds,
        mapping: &Mapping,
        namespace: &str,
    ) -> Result<Option<KeepReason>, CallError> {
        let api = mapping.api(&self.cluster.client, Some(namespace));
        let mut params = ListParams::default().limit(LIST_PAGE_SIZE);
        let mut known = BTreeSet::new();
        for _ in 0..MAX_LIST_PAGES {
            let page = match api.list_metadata(&params).await.map_err(|error| listing(mapping, error)) {
                Ok(page) => page,
                Err(error) if error.failure == Failure::Forbidden => return Ok(Some(KeepReason::CannotTell)),
                Err(error) => {
                    // The kind may have been removed meanwhile, and with it its objects.
                    let is_unserved = self.cluster.is_unserved(mapping, &error).await?;
                    return if is_unserved { Ok(None) } else { Err(error) };
                }
            };
            let kind = mapping.gvk().group_kind();
            if let Some(reason) =
                page.items.iter().find_map(|item| self.rules.held_by(kinds, &kind, &item.metadata))
            {
                return Ok(Some(reason));
            }
            for item in &page.items {
                let Some((mapping, controller, uid)) = self.rules.hangs_on(kinds, &item.metadata) else {
                    continue;
                };
                if !known.insert(uid.clone()) {
                    continue;
                }
                if let Some(reason) = self.held_by_controller(mapping, &controller, &uid).await? {
                    return Ok(Some(reason));
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(None),
            }
        }
        Ok(Some(KeepReason::CannotTell))
    }

    /// Returns the reason to keep a Namespace with an object of this controller: the controller exists and is not
    /// being deleted, or it may not be read.
    async fn held_by_controller(
        &self,
        mapping: &Mapping,
        controller: &Identity,
        uid: &str,
    ) -> Result<Option<KeepReason>, CallError> {
        match self.cluster.proven_metadata(mapping, controller).await {
            Ok(Some(found)) => {
                let live = found.metadata;
                let stays = live.uid.as_deref() == Some(uid) && live.deletion_timestamp.is_none();
                Ok(stays.then_some(KeepReason::ForeignObjects))
            }
            Ok(None) => Ok(None),
            Err(error) if error.failure == Failure::Forbidden => Ok(Some(KeepReason::CannotTell)),
            Err(error) => Err(error),
        }
    }
}

/// Returns the error of a call for a CRD. A refused patch is a conflict: the CRD changed since it was read.
fn crd_call_error(crd: &Identity, error: kube::Error) -> CallError {
    let mut error = CallError::new(Action::Patch, Some(crd), error);
    if matches!(error.failure, Failure::Refused(_)) {
        error.failure = Failure::Conflict;
    }
    error
}

fn listing(mapping: &Mapping, error: kube::Error) -> CallError {
    let kind = Identity::new(&mapping.resource.group, &mapping.resource.kind, None, "");
    CallError::new(Action::List, Some(&kind), error)
}
