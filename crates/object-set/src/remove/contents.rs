//! What is in a Namespace or of a CRD, before it may go.

use std::collections::BTreeSet;

use futures::{FutureExt, StreamExt as _};
use kube::api::ListParams;

use super::rules::is_looked_at;
use super::{PARALLEL, Run};
use crate::discovery::{Kinds, Mapping, crd_mappings};
use crate::error::{Action, CallError, Failure};
use crate::object::{Identity, Object};
use crate::prune::KeepReason;

/// Objects per page.
const PAGE: u32 = 500;

/// Pages that are read of one kind; what has more cannot be told.
const PAGES: usize = 40;

impl Run<'_> {
    /// Whether objects of a CRD's kind exist, in any namespace. Asked by what the CRD itself says: discovery may
    /// be behind, and what it lacks is no proof.
    pub(super) async fn crd_in_use(
        &self,
        crd: &Identity,
        of_crds: &Mapping,
    ) -> Result<Option<KeepReason>, CallError> {
        let client = &self.cluster.client;
        let live = of_crds.api(client, None).get(&crd.name).await;
        let live = live.map_err(|error| CallError::new(Action::Get, Some(crd), error))?;
        let live = serde_json::to_value(live).ok().and_then(|value| Object::from_value(value).ok());
        let Some(mapping) = live.as_ref().and_then(|crd| crd_mappings(crd).into_iter().next()) else {
            // No version is served: whether objects are stored cannot be told through the API.
            return Ok(Some(KeepReason::CannotTell));
        };
        let list = mapping.api(client, None).list_metadata(&ListParams::default().limit(1)).await;
        match list.map_err(|error| listing(&mapping, error)) {
            Ok(list) if list.items.is_empty() => Ok(None),
            Ok(_) => Ok(Some(KeepReason::InUse)),
            Err(error) => Err(error),
        }
    }

    /// Whether something is in a Namespace that is to stay: every kind that can be listed and deleted is listed.
    pub(super) async fn held_by_contents(&self, namespace: &str) -> Result<Option<KeepReason>, CallError> {
        // A kind that came since the target was asked last counts too.
        let kinds = self.cluster.discovery.newer_than(&self.kinds, &self.cluster.client).await?;
        if kinds.unknown().next().is_some() {
            return Ok(Some(KeepReason::CannotTell));
        }
        let mappings = kinds.all().filter(|mapping| is_looked_at(mapping));
        let lists = mappings.map(|mapping| self.held_by_kind(&kinds, mapping, namespace));
        let lists: Vec<_> = lists.map(FutureExt::boxed).collect();
        let mut lists = futures::stream::iter(lists).buffer_unordered(PARALLEL);
        while let Some(found) = lists.next().await {
            if let Some(reason) = found? {
                return Ok(Some(reason));
            }
        }
        Ok(None)
    }

    async fn held_by_kind(
        &self,
        kinds: &Kinds,
        mapping: &Mapping,
        namespace: &str,
    ) -> Result<Option<KeepReason>, CallError> {
        let api = mapping.api(&self.cluster.client, Some(namespace));
        let mut params = ListParams::default().limit(PAGE);
        let mut known = BTreeSet::new();
        for _ in 0..PAGES {
            let page = match api.list_metadata(&params).await.map_err(|error| listing(mapping, error)) {
                Ok(page) => page,
                // The kind went while we looked.
                Err(error) if error.failure == Failure::NotFound => return Ok(None),
                Err(error) if error.failure == Failure::Forbidden => return Ok(Some(KeepReason::CannotTell)),
                Err(error) => return Err(error),
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

    /// What a controller made that is there and stays is somebody's.
    async fn held_by_controller(
        &self,
        mapping: &Mapping,
        controller: &Identity,
        uid: &str,
    ) -> Result<Option<KeepReason>, CallError> {
        match self.cluster.metadata(mapping, controller).await {
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

fn listing(mapping: &Mapping, error: kube::Error) -> CallError {
    let kind = Identity::new(&mapping.resource.group, &mapping.resource.kind, None, "");
    CallError::new(Action::List, Some(&kind), error)
}
