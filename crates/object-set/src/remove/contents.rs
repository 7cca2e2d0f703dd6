//! What is in a Namespace or of a CRD, before it may go.

use futures::{FutureExt, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;

use super::{PARALLEL, Run};
use crate::cluster::{OWNER_LABEL, Ownership};
use crate::discovery::{Mapping, crd_mappings};
use crate::drift::applied_entry;
use crate::error::{Action, CallError, Failure};
use crate::object::{GroupKind, Identity, Object};
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

    /// Whether somebody else's objects are in a Namespace: every kind that can be listed and deleted is listed.
    pub(super) async fn foreign_in(&self, namespace: &str) -> Result<Option<KeepReason>, CallError> {
        // A kind that came since the target was asked last counts too.
        let kinds = self.cluster.discovery.newer_than(&self.kinds, &self.cluster.client).await?;
        if kinds.unknown().next().is_some() {
            return Ok(Some(KeepReason::CannotTell));
        }
        let mappings = kinds.all().filter(|m| m.namespaced && m.can("list") && m.can("delete"));
        let lists = mappings.map(|mapping| self.has_foreign(mapping, namespace));
        let lists: Vec<_> = lists.map(FutureExt::boxed).collect();
        let mut lists = futures::stream::iter(lists).buffer_unordered(PARALLEL);
        while let Some(found) = lists.next().await {
            match found? {
                Contents::Ours => {}
                Contents::Foreign => return Ok(Some(KeepReason::ForeignObjects)),
                Contents::Unknown => return Ok(Some(KeepReason::CannotTell)),
            }
        }
        Ok(None)
    }

    async fn has_foreign(&self, mapping: &Mapping, namespace: &str) -> Result<Contents, CallError> {
        let api = mapping.api(&self.cluster.client, Some(namespace));
        let mut params = ListParams::default().limit(PAGE);
        for _ in 0..PAGES {
            let page = match api.list_metadata(&params).await.map_err(|error| listing(mapping, error)) {
                Ok(page) => page,
                // The kind went while we looked.
                Err(error) if error.failure == Failure::NotFound => return Ok(Contents::Ours),
                Err(error) if error.failure == Failure::Forbidden => return Ok(Contents::Unknown),
                Err(error) => return Err(error),
            };
            let us = self.ownership;
            if page.items.iter().any(|item| is_foreign(&mapping.gvk().group_kind(), &item.metadata, us)) {
                return Ok(Contents::Foreign);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(Contents::Ours),
            }
        }
        Ok(Contents::Unknown)
    }
}

/// What is of one kind in a Namespace.
enum Contents {
    /// Nothing, or what may go with it.
    Ours,
    /// Something of somebody else.
    Foreign,
    /// It cannot be told.
    Unknown,
}

/// Whether an object is there because somebody wants it: not made by Kubernetes for every Namespace, not
/// derived from another object, not ours, not about to go anyway.
fn is_foreign(kind: &GroupKind, metadata: &ObjectMeta, us: &Ownership) -> bool {
    let name = metadata.name.as_deref().unwrap_or_default();
    let automatic = match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "ConfigMap") => name == "kube-root-ca.crt",
        ("", "ServiceAccount") => name == "default",
        // Leases, events and endpoints are traces of what ran here; nobody keeps anything in them. Kinds of
        // other groups that are called the same may be anything.
        ("" | "events.k8s.io", "Event")
        | ("", "Endpoints")
        | ("discovery.k8s.io", "EndpointSlice")
        | ("coordination.k8s.io", "Lease") => true,
        _ => false,
    };
    let derived =
        metadata.owner_references.iter().flatten().any(|reference| reference.controller == Some(true));
    // A label alone proves nothing: operators copy labels of ours to objects of their own.
    let labelled = metadata.labels.as_ref().and_then(|labels| labels.get(OWNER_LABEL)) == Some(&us.owner);
    let ours = labelled && applied_entry(metadata, &us.manager).is_some();
    !automatic && !derived && !ours && metadata.deletion_timestamp.is_none()
}

fn listing(mapping: &Mapping, error: kube::Error) -> CallError {
    let kind = Identity::new(&mapping.resource.group, &mapping.resource.kind, None, "");
    CallError::new(Action::List, Some(&kind), error)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_kubernetes_and_we_make_is_not_foreign() {
        let metadata = |value: serde_json::Value| -> ObjectMeta { serde_json::from_value(value).unwrap() };
        let us = Ownership { manager: "m".into(), owner: "us".into(), version: String::new() };
        let applied = json!([{"manager": "m", "operation": "Apply"}]);
        let controlled =
            json!([{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u", "controller": true}]);
        let owned = json!([{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"}]);
        let cases = [
            ("ConfigMap", json!({"name": "kube-root-ca.crt"}), false),
            ("ConfigMap", json!({"name": "users"}), true),
            ("ServiceAccount", json!({"name": "default"}), false),
            ("ServiceAccount", json!({"name": "builder"}), true),
            ("Event", json!({"name": "e"}), false),
            ("Event.events.k8s.io", json!({"name": "e"}), false),
            ("Event.calendar.example.org", json!({"name": "e"}), true),
            ("Endpoints", json!({"name": "e"}), false),
            ("EndpointSlice.discovery.k8s.io", json!({"name": "e"}), false),
            ("EndpointSlice.cilium.example.org", json!({"name": "e"}), true),
            ("Lease.coordination.k8s.io", json!({"name": "leader"}), false),
            ("Lease.flats.example.org", json!({"name": "leader"}), true),
            ("ConfigMap.example.org", json!({"name": "kube-root-ca.crt"}), true),
            ("Pod", json!({"name": "p", "ownerReferences": controlled}), false),
            ("Pod", json!({"name": "p", "ownerReferences": owned}), true),
            ("Secret", json!({"name": "s", "labels": {OWNER_LABEL: "us"}, "managedFields": applied}), false),
            ("Secret", json!({"name": "copied", "labels": {OWNER_LABEL: "us"}}), true),
            ("Secret", json!({"name": "s", "labels": {OWNER_LABEL: "them"}}), true),
            ("Secret", json!({"name": "s", "deletionTimestamp": "2026-01-01T00:00:00Z"}), false),
        ];
        for (kind, value, foreign) in cases {
            let (name, group) = kind.split_once('.').unwrap_or((kind, ""));
            let group_kind = GroupKind::new(group, name);
            assert_eq!(is_foreign(&group_kind, &metadata(value.clone()), &us), foreign, "{kind} {value}");
        }
    }
}
