//! Checks that the hub's CRDs are at least as new as this program needs.

use std::pin::pin;

use futures::TryStreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition as Crd, JSONSchemaProps,
};
use kube::{Api, Client, ResourceExt};
use kube_runtime::{WatchStreamExt, watcher};

use crate::hub::watch::hub_watch;

/// Error that prevents the start of the program.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// The hub's CRD lacks fields that the program reads or writes; the API server would drop them silently.
    #[error("CRD {name} on the hub is older than this program needs, install its own: no {}", missing.join(", "))]
    Older {
        /// Name of the CRD.
        name: String,
        /// Versions and field paths that are missing, the first ones.
        missing: Vec<String>,
    },
    /// The watch of the CRD ended.
    #[error("CRD {0} cannot be watched")]
    Watch(String),
}

/// Maximum number of missing paths in a message.
const MAX_LISTED_CRDS: usize = 5;

/// Waits until the hub serves each of `needed`, then compares. A CRD that is not there yet is waited for, since
/// kyma-operator may bring it; one that is older is refused.
///
/// # Errors
/// A CRD is older than needed.
pub async fn await_crds(hub: &Client, needed: &[Crd]) -> Result<(), CrdError> {
    for crd in needed {
        let name = crd.name_any();
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let found = hub_watch(Api::<Crd>::all(hub.clone()), config).applied_objects();
        let mut found = pin!(found);
        tracing::info!(crd = name, "waiting for the CRD");
        loop {
            match found.try_next().await {
                Ok(Some(installed)) if is_established(&installed) => {
                    let missing = missing_fields(&installed, crd);
                    if missing.is_empty() {
                        break;
                    }
                    let missing = missing.into_iter().take(MAX_LISTED_CRDS).collect();
                    return Err(CrdError::Older { name, missing });
                }
                // Not served yet, or the watch is being opened again.
                Ok(Some(_)) | Err(_) => {}
                Ok(None) => return Err(CrdError::Watch(name)),
            }
        }
    }
    Ok(())
}

fn is_established(crd: &Crd) -> bool {
    let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// Returns the versions and field paths that `needed` has and `installed` lacks, in order. Pure.
pub fn missing_fields(installed: &Crd, needed: &Crd) -> Vec<String> {
    let mut missing = vec![];
    for version in needed.spec.versions.iter().filter(|version| version.served) {
        let held = installed.spec.versions.iter().find(|held| held.name == version.name && held.served);
        let Some(held) = held else {
            missing.push(format!("version {}", version.name));
            continue;
        };
        let root = |schema: &Option<_>| -> JSONSchemaProps {
            schema
                .as_ref()
                .and_then(|validation: &Validation| validation.open_api_v3_schema.clone())
                .unwrap_or_default()
        };
        compare(&root(&held.schema), &root(&version.schema), "", &mut missing);
    }
    missing
}

type Validation =
    k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceValidation;

fn compare(held: &JSONSchemaProps, needed: &JSONSchemaProps, path: &str, missing: &mut Vec<String>) {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray as Items;
    if held.x_kubernetes_preserve_unknown_fields == Some(true) {
        return;
    }
    for (name, field) in needed.properties.iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match held.properties.as_ref().and_then(|properties| properties.get(name)) {
            Some(held) => compare(held, field, &path, missing),
            None => missing.push(path),
        }
    }
    if let (Some(Items::Schema(held)), Some(Items::Schema(needed))) = (&held.items, &needed.items) {
        compare(held, needed, &format!("{path}[]"), missing);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn crd(version: &str, spec: &Value) -> Crd {
        serde_json::from_value(json!({
            "metadata": {"name": "xs.x.io"},
            "spec": {
                "group": "x.io", "scope": "Namespaced", "names": {"kind": "X", "plural": "xs"},
                "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "properties": {"spec": spec}}}}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_newer_crd_will_do_and_an_older_one_is_told_by_its_paths() {
        let old = crd(
            "v1",
            &json!({"type": "object", "properties": {
            "a": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}}}}),
        );
        let new = crd(
            "v1",
            &json!({"type": "object", "properties": {
            "a": {"type": "string"}, "b": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties":
                {"x": {"type": "string"}, "y": {"type": "string"}}}}}}),
        );
        assert_eq!(missing_fields(&new, &old), [""; 0]);
        assert_eq!(missing_fields(&old, &new), ["spec.b", "spec.list[].y"]);
        assert_eq!(missing_fields(&crd("v2", &json!({})), &old), ["version v1"]);
    }

    #[test]
    fn a_version_that_is_only_listed_is_not_needed() {
        let mut listed = crd("v1beta1", &json!({"type": "object"}));
        listed.spec.versions[0].served = false;
        assert_eq!(missing_fields(&crd("v1", &json!({})), &listed), [""; 0]);
    }

    #[test]
    fn what_keeps_unknown_fields_lacks_nothing() {
        let open = crd("v1", &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
        let needed = crd("v1", &json!({"type": "object", "properties": {"a": {"type": "string"}}}));
        assert_eq!(missing_fields(&open, &needed), [""; 0]);
    }
}
