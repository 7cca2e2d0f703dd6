//! Marks an object as owned that was never sent: another system left it, and the set lacks it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::cluster::Cluster;
use crate::error::{Action, CallError};
use crate::inventory::Entry;
use crate::managed_fields::drift;
use crate::object::{Gvk, Identity};
use crate::ownership::{OWNER_LABEL, Ownership};

/// Sets the owner label on an object that is recorded by its uid alone, so that it can be pruned like an applied one.
/// Returns its inventory entry. Changes nothing else. `None` if the object is gone, replaced, being deleted or owned
/// already, if its kind is not served, or if `is_meant` returns false. Namespaces and CRDs are never claimed, since
/// existing ones must not be deleted.
///
/// # Errors
/// The target refuses it or does not answer.
pub async fn claim(
    cluster: &Cluster,
    identity: &Identity,
    entry: &Entry,
    ownership: &Ownership,
    is_meant: &(dyn Fn(&ObjectMeta) -> bool + Sync),
) -> Result<Option<Entry>, CallError> {
    if identity.is_namespace() || identity.is_crd() {
        return Ok(None);
    }
    let kinds = cluster.discovery.kinds(&cluster.client).await?;
    let Some(mapping) = kinds.any(&Gvk::new(&identity.group, &entry.version, &identity.kind)) else {
        let unknown = kinds.is_unknown(&identity.group);
        return if unknown { Err(CallError::group_unknown(identity)) } else { Ok(None) };
    };
    let Some(found) = cluster.metadata(mapping, identity).await? else { return Ok(None) };
    let live = found.metadata;
    let owned = live.labels.as_ref().is_some_and(|labels| labels.contains_key(OWNER_LABEL));
    let is_it = live.uid.as_deref() == Some(entry.uid.as_str()) && live.deletion_timestamp.is_none();
    if !is_it || owned || !is_meant(&live) {
        return Ok(None);
    }
    let mark = json!({
        "apiVersion": mapping.resource.api_version,
        "kind": identity.kind,
        "metadata": {
            "name": identity.name,
            "uid": live.uid,
            // The patch fails if the object changed since it was checked.
            "resourceVersion": live.resource_version,
            "labels": {OWNER_LABEL: ownership.owner},
        },
    });
    let api = mapping.api(&cluster.client, identity.namespace.as_deref());
    let params = PatchParams::apply(&ownership.manager).force();
    let params = PatchParams { dry_run: cluster.dry_run.is_some(), ..params };
    match api.patch_metadata(&identity.name, &params, &Patch::Apply(mark)).await {
        Ok(marked) => {
            let fingerprint = drift::fingerprint(&marked.metadata, &ownership.manager);
            if let Some(dry_run) = &cluster.dry_run {
                dry_run.record_marks(identity, marked.metadata);
            }
            let version = mapping.resource.version.clone();
            Ok(Some(Entry { version, fingerprint, ..entry.clone() }))
        }
        Err(error) => match CallError::new(Action::Patch, Some(identity), error) {
            error if error.is_absence(mapping) => Ok(None),
            error => Err(error),
        },
    }
}
