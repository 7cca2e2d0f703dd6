//! What has to be on a target before its Kyma can be: the namespace and our CRD. And taking it away again.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kyma_api::{Kyma, annotations, labels, names};
use kyma_sdk::{delete_of_uid, gone_is_fine, is_conflict, remove_finalizer};
use kyma_targets::{STAMP_NAME, STAMP_NAMESPACE, Stamp, Target};
use serde_json::{Value, json};

use crate::admission;
use crate::error::Error;
use crate::owned;
use crate::resolve::compare;
use crate::state::{State, key_of};
use crate::target_kyma::{self, TargetKyma};
use crate::{BIRTH_MANAGER, FIELD_MANAGER};

/// Labels that the target's namespace has under KLM: other parts of Kyma look at them.
const NAMESPACE_LABELS: [(&str, &str); 3] = [
    (labels::MANAGED_BY, labels::MANAGED_BY_KYMA),
    ("istio-injection", "enabled"),
    ("namespaces.warden.kyma-project.io/validate", "enabled"),
];

/// Namespace and CRD. Tells how many of them had to be written.
pub(super) async fn prepare(state: &State, kyma: &Kyma, target: &Target) -> Result<usize, Error> {
    let namespace = namespace(target, &state.runtime.settings.target_namespace).await?;
    let crd = crd(kyma, target).await?;
    Ok(usize::from(namespace) + usize::from(crd))
}

/// Ensures the namespace: made if it is missing, labelled if a label is. True if it had to be.
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

/// Installs or updates our Kyma CRD, unless a newer operator did. True if it had to be. Whether the kind is served
/// yet is for the watch to tell that follows.
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
    let key = key_of(kyma);
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

/// Removes what is ours of a target whose Kyma is being deleted: policies, which ask something of modules that are
/// gone, its Kyma, then the CRD unless somebody else's Kymas are left, then the stamp. True once nothing is left.
pub(crate) async fn clean(state: &State, kyma: &Kyma, target: &Target) -> Result<bool, Error> {
    let client = target.client();
    let namespace = &state.runtime.settings.target_namespace;
    admission::clean(&key_of(kyma), target).await?;
    if !is_crd_there(&client).await? {
        return remove_stamp(kyma, &client).await.map(|()| true);
    }
    let is_ours = |object: &DynamicObject| {
        object.namespace().as_deref() == Some(namespace.as_str()) && object.name_any() == target_kyma::NAME
    };
    let mut listed = kymas(&client).await?;
    if let Some(ours) = listed.iter().find(|object| is_ours(object)) {
        remove_kyma(&client, kyma, ours).await?;
        // It is gone at once unless somebody else's finalizer holds it.
        listed = kymas(&client).await?;
    }
    if listed.iter().any(is_ours) {
        return Ok(false);
    }
    if listed.is_empty() {
        remove_crd(kyma, &client).await?;
    }
    remove_stamp(kyma, &client).await.map(|()| true)
}

async fn kymas(client: &Client) -> Result<Vec<DynamicObject>, Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kube::api::ApiResource::erase::<Kyma>(&()));
    let listed = api.list(&ListParams::default()).await;
    listed.map(|listed| listed.items).map_err(|source| Error::ListKymas { source })
}

async fn is_crd_there(client: &Client) -> Result<bool, Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let live = api.get_opt(crd_name()).await;
    let live = live.map_err(|source| Error::ReadKymaCrd { source })?;
    Ok(live.is_some_and(|crd| crd.metadata.deletion_timestamp.is_none()))
}

fn crd_name() -> &'static str {
    "kymas.operator.kyma-project.io"
}

/// Whether the target's Kyma is the one that this hub Kyma made or took over.
fn is_ours(kyma: &Kyma, remote: &TargetKyma) -> bool {
    target_kyma::annotations_for(kyma).iter().all(|(name, value)| remote.annotations.get(name) == Some(value))
}

async fn remove_kyma(client: &Client, kyma: &Kyma, object: &DynamicObject) -> Result<(), Error> {
    let Some(remote) = TargetKyma::of(object).filter(|remote| is_ours(kyma, remote)) else {
        return Err(Error::ClaimKyma);
    };
    let namespace = object.namespace().unwrap_or_default();
    let resource = kube::api::ApiResource::erase::<Kyma>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    let failed = |source| Error::DeleteKyma { source };
    if !remote.terminating {
        gone_is_fine(api.delete(target_kyma::NAME, &delete_of_uid(&remote.uid)).await.map(drop))
            .map_err(failed)?;
    }
    if let Some(patch) = remove_finalizer(&object.metadata, kyma_api::finalizers::KYMA) {
        let patched = api.patch(target_kyma::NAME, &PatchParams::default(), &Patch::<()>::Json(patch)).await;
        gone_is_fine(patched.map(drop)).map_err(failed)?;
    }
    Ok(())
}

async fn remove_crd(kyma: &Kyma, client: &Client) -> Result<(), Error> {
    let key = key_of(kyma);
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let failed = |source| Error::DeleteKymaCrd { source };
    let Some(live) = api.get_opt(crd_name()).await.map_err(failed)? else { return Ok(()) };
    if live.labels().get(labels::OWNER) != Some(&names::owner_hash(&key.namespace, &key.name)) {
        return Ok(());
    }
    let uid = live.uid().unwrap_or_default();
    gone_is_fine(api.delete(crd_name(), &delete_of_uid(&uid)).await.map(drop)).map_err(failed)
}

async fn remove_stamp(kyma: &Kyma, client: &Client) -> Result<(), Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), STAMP_NAMESPACE);
    let failed = |source| Error::DeleteStamp { source };
    let Some(live) = api.get_opt(STAMP_NAME).await.map_err(failed)? else { return Ok(()) };
    if Some(Stamp::from_config_map(&live).kyma.uid) != kyma.uid() {
        return Ok(());
    }
    let uid = live.uid().unwrap_or_default();
    gone_is_fine(api.delete(STAMP_NAME, &delete_of_uid(&uid)).await.map(drop)).map_err(failed)
}
