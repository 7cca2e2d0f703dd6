//! Prerequisites of the copies on a target: the namespace and the CRDs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kube_runtime::wait::{Condition as _, conditions::is_crd_established};
use kyma_api::{Reason, annotations, crds, labels};
use kyma_object_set::{CREATED_BY, drift::fingerprint};
use kyma_sdk::{Failure, find_object, is_conflict};
use kyma_targets::Target;
use semver::Version;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::FIELD_MANAGER;
use crate::memory::ObjectVersion;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the CRDs of the catalogue.
pub(crate) fn catalogue_crds() -> [CustomResourceDefinition; 2] {
    [crds::module_template(), crds::module_release_meta()]
}

/// Creates the namespace if it is missing. It has no owner.
pub(crate) async fn namespace(target: &Target, name: &str) -> Result<(), Failure> {
    let api: Api<Namespace> = Api::all(target.client());
    let failed = |error: kube::Error| Failure::target(&format!("ensure namespace {name}"), &error);
    if api.get_opt(name).await.map_err(failed)?.is_some() {
        return Ok(());
    }
    let labels = BTreeMap::from([
        (labels::MANAGED_BY, labels::MANAGED_BY_KYMA),
        // As KLM sets them: other parts of Kyma read these labels.
        ("istio-injection", "enabled"),
        ("namespaces.warden.kyma-project.io/validate", "enabled"),
    ]);
    let body = json!({ "metadata": { "name": name, "labels": labels } });
    let body: Namespace = serde_json::from_value(body)
        .map_err(|error| Failure::new(Reason::Internal, format!("namespace: {error}")))?;
    let manager = Some(format!("{FIELD_MANAGER}-create"));
    match api.create(&PostParams { field_manager: manager, ..PostParams::default() }, &body).await {
        Err(error) if !is_conflict(&error) => Err(failed(error)),
        _ => Ok(()),
    }
}

/// State of the catalogue's CRDs on a target.
pub(crate) struct Crds {
    pub(crate) marks: BTreeMap<String, ObjectVersion>,
    /// Whether both are established, which takes a moment after the installation.
    pub(crate) are_established: bool,
}

/// Installs or updates the catalogue's CRDs, unless a newer version of this operator did. Returns their state.
pub(crate) async fn crds(target: &Target, owner: &str) -> Result<Crds, Failure> {
    let mut found = Crds { marks: BTreeMap::new(), are_established: true };
    for wanted in catalogue_crds() {
        let live = crd(target, owner, &wanted).await?;
        let fingerprint = fingerprint(&live.metadata, FIELD_MANAGER);
        found
            .marks
            .insert(wanted.name_any(), ObjectVersion { uid: live.uid().unwrap_or_default(), fingerprint });
        found.are_established &= is_crd_established().matches_object(Some(&live));
    }
    Ok(found)
}

async fn crd(
    target: &Target,
    owner: &str,
    wanted: &CustomResourceDefinition,
) -> Result<CustomResourceDefinition, Failure> {
    let name = wanted.name_any();
    let api: Api<CustomResourceDefinition> = Api::all(target.client());
    let failed = |error: kube::Error| Failure::target(&format!("install CRD {name}"), &error);
    // A 404 of a proxy would mark an existing CRD as created here.
    let live = find_object(&api, &name).await.map_err(failed)?;
    let body = body(wanted, owner, live.as_ref());
    match live {
        Some(live) if is_newer(&live) || is_current(&live, &body) => Ok(live),
        _ => {
            let params = PatchParams::apply(FIELD_MANAGER).force();
            api.patch(&name, &params, &Patch::Apply(&body)).await.map_err(failed)
        }
    }
}

fn body(wanted: &CustomResourceDefinition, owner: &str, live: Option<&CustomResourceDefinition>) -> Value {
    let hash = hex::encode(&Sha256::digest(json!(wanted.spec).to_string().as_bytes())[..8]);
    let mut notes = BTreeMap::from([(annotations::CRD_VERSION, VERSION), (annotations::APPLIED, &hash)]);
    let is_ours = live.is_none_or(|live| live.annotations().get(CREATED_BY).is_some_and(|by| by == owner));
    if is_ours {
        notes.insert(CREATED_BY, owner);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": wanted.metadata.name,
            "labels": { labels::MANAGED_BY: labels::MANAGED_BY_KYMA, labels::OWNER: owner },
            "annotations": notes,
        },
        "spec": wanted.spec,
    })
}

fn is_newer(live: &CustomResourceDefinition) -> bool {
    let version = |text: &str| Version::parse(text).ok();
    let held = live.annotations().get(annotations::CRD_VERSION).and_then(|held| version(held));
    held.is_some_and(|held| version(VERSION).is_some_and(|ours| held > ours))
}

/// Reports whether the same content was applied before and the manager still owns all of it.
fn is_current(live: &CustomResourceDefinition, body: &Value) -> bool {
    let live = serde_json::to_value(live).and_then(serde_json::from_value::<DynamicObject>);
    live.is_ok_and(|live| {
        let pairs = |name: &str| body["metadata"][name].as_object().cloned().unwrap_or_default();
        let has = |held: &BTreeMap<String, String>, wanted: serde_json::Map<String, Value>| {
            wanted.iter().all(|(name, value)| held.get(name).map(String::as_str) == value.as_str())
        };
        has(live.labels(), pairs("labels"))
            && has(live.annotations(), pairs("annotations"))
            && owns_spec(&live)
    })
}

/// Reports whether the manager owns `spec`. An edit of the schema takes fields away; an edit of all of it leaves
/// none.
fn owns_spec(live: &DynamicObject) -> bool {
    let ours = live.managed_fields().iter().filter(|entry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.operation.as_deref() == Some("Apply")
    });
    let mut specs = ours.filter_map(|entry| entry.fields_v1.as_ref()?.0.get("f:spec"));
    specs.any(|spec| {
        ["f:group", "f:names", "f:scope", "f:versions"].iter().all(|field| spec.get(field).is_some())
    })
}
