//! Prerequisites of the target's Kyma: the namespace and the CRD.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kyma_api::{Kyma, annotations, labels, names};
use kyma_sdk::{KymaKey, is_conflict};
use kyma_targets::Target;
use serde_json::{Value, json};

use crate::error::Error;
use crate::owned;
use crate::resolve::compare;
use crate::state::State;
use crate::{BIRTH_MANAGER, FIELD_MANAGER};

/// Labels of the target's namespace under KLM, which other parts of Kyma read.
const NAMESPACE_LABELS: [(&str, &str); 3] = [
    (labels::MANAGED_BY, labels::MANAGED_BY_KYMA),
    ("istio-injection", "enabled"),
    ("namespaces.warden.kyma-project.io/validate", "enabled"),
];

/// Ensures namespace and CRD. Returns how many of them were written.
pub(super) async fn prepare(state: &State, kyma: &Kyma, target: &Target) -> Result<usize, Error> {
    let namespace = namespace(target, &state.runtime.settings.target_namespace).await?;
    let crd = crd(kyma, target).await?;
    Ok(usize::from(namespace) + usize::from(crd))
}

/// Ensures the namespace and its labels. Returns true if it was written.
pub(super) async fn namespace(target: &Target, name: &str) -> Result<bool, Error> {
    let api: Api<Namespace> = Api::all(target.client());
    let set: BTreeMap<&str, &str> = NAMESPACE_LABELS.into_iter().collect();
    let body =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": set } });
    let failed = |source| Error::EnsureNamespace { name: name.to_owned(), source };
    let Some(live) = api.get_opt(name).await.map_err(failed)? else {
        let body: Namespace = serde_json::from_value(body)
            .map_err(|source| Error::Compose { what: "the namespace", source })?;
        let params = PostParams { field_manager: Some(BIRTH_MANAGER.to_owned()), ..PostParams::default() };
        return match api.create(&params, &body).await {
            Err(error) if !is_conflict(&error) => Err(failed(error)),
            _ => Ok(true),
        };
    };
    let held = live.labels();
    if set.iter().all(|(name, value)| held.get(*name).is_some_and(|held| held == value)) {
        return Ok(false);
    }
    api.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&body))
        .await
        .map(|_| true)
        .map_err(failed)
}

/// Installs or updates the Kyma CRD, unless a newer operator did. Returns true if it was written. The following watch
/// shows whether the kind is served.
async fn crd(kyma: &Kyma, target: &Target) -> Result<bool, Error> {
    let wanted = wanted_crd(kyma);
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let api: Api<CustomResourceDefinition> = Api::all(target.client());
    let failed = |source| Error::InstallKymaCrd { name: name.clone(), source };
    let live = api.get_opt(&name).await.map_err(failed)?;
    if live.as_ref().is_some_and(|live| is_current(live, &wanted)) {
        return Ok(false);
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(&wanted)).await.map(|_| true).map_err(failed)
}

fn wanted_crd(kyma: &Kyma) -> Value {
    let crd = kyma_api::crds::kyma();
    let key = KymaKey::of(kyma);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": crd.metadata.name,
            "labels": {
                labels::MANAGED_BY: labels::MANAGED_BY_KYMA,
                labels::OWNER: names::owner_hash(&key.namespace, &key.name),
            },
            "annotations": { annotations::CRD_VERSION: env!("CARGO_PKG_VERSION") },
        },
        "spec": crd.spec,
    })
}

fn is_current(live: &CustomResourceDefinition, wanted: &Value) -> bool {
    let version = live.annotations().get(annotations::CRD_VERSION);
    let is_newer = version.and_then(|version| compare(version, env!("CARGO_PKG_VERSION")));
    if is_newer.is_some_and(std::cmp::Ordering::is_gt) {
        return true;
    }
    let live = serde_json::to_value(live).and_then(serde_json::from_value::<DynamicObject>);
    live.is_ok_and(|live| {
        owned::fingerprint(&live, FIELD_MANAGER).as_deref()
            == Some(owned::fingerprint_of_apply(wanted).as_str())
    })
}
