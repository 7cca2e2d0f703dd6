//! Prerequisites of the copies on a target: the namespace and the CRDs.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use kube_runtime::wait::{Condition as _, conditions::is_crd_established};
use kyma_api::{Reason, annotations, crds, labels};
use kyma_object_set::{CREATED_BY, drift::fingerprint};
use kyma_sdk::{Failure, create_new, find_object};
use kyma_targets::Target;
use semver::Version;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::memory::ObjectVersion;
use crate::names::FIELD_MANAGER;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the CRDs of the catalogue.
pub(crate) fn catalogue_crds() -> [CustomResourceDefinition; 2] {
    [crds::module_template(), crds::module_release_meta()]
}

/// Creates the namespace if it is missing. It has no owner.
pub(crate) async fn ensure_namespace(target: &Target, name: &str) -> Result<(), Failure> {
    let (client, manager) = (target.client(), format!("{FIELD_MANAGER}-create"));
    let ensured =
        kyma_targets::ensure_namespace(&client, name, &labels::TARGET_NAMESPACE_LABELS, &manager).await;
    ensured.map(drop).map_err(|error| Failure::target(&format!("ensure namespace {name}"), &error))
}

/// State of the catalogue's CRDs on a target.
pub(crate) struct Crds {
    pub(crate) versions: BTreeMap<String, ObjectVersion>,
    /// Whether both are established, which takes a moment after the installation.
    pub(crate) are_established: bool,
}

/// Installs or updates the catalogue's CRDs, unless a newer version of this operator did. Returns their state.
pub(crate) async fn ensure_crds(target: &Target, owner: &str) -> Result<Crds, Failure> {
    let mut found = Crds { versions: BTreeMap::new(), are_established: true };
    for desired in catalogue_crds() {
        let live = ensure_crd(target.client(), owner, &desired).await?;
        let fingerprint = fingerprint(&live.metadata, FIELD_MANAGER);
        found
            .versions
            .insert(desired.name_any(), ObjectVersion { uid: live.uid().unwrap_or_default(), fingerprint });
        found.are_established &= is_crd_established().matches_object(Some(&live));
    }
    Ok(found)
}

/// Installs or updates a CRD and returns its state. A CRD that another writer creates or replaces after the read is
/// left unchanged and causes a conflict; the next pass adopts it.
async fn ensure_crd(
    client: Client,
    owner: &str,
    desired: &CustomResourceDefinition,
) -> Result<CustomResourceDefinition, Failure> {
    let name = desired.name_any();
    let api: Api<CustomResourceDefinition> = Api::all(client);
    let failed = |error: kube::Error| Failure::target(&format!("install CRD {name}"), &error);
    // A 404 of a proxy would mark an existing CRD as created here.
    let live = find_object(&api, &name).await.map_err(failed)?;
    let body = crd_body(desired, owner, live.as_ref());
    match live {
        Some(live) if is_newer(&live) || is_current(&live, &body) => Ok(live),
        Some(_) => {
            let params = PatchParams::apply(FIELD_MANAGER).force();
            api.patch(&name, &params, &Patch::Apply(&body)).await.map_err(failed)
        }
        None => {
            let new: CustomResourceDefinition = serde_json::from_value(body)
                .map_err(|error| Failure::new(Reason::Internal, format!("CRD {name}: {error}")))?;
            // Boxed: every pass that opens a session holds this future.
            Box::pin(create_new(&api, FIELD_MANAGER, &new)).await.map_err(failed)
        }
    }
}

/// Returns the CRD to apply. It is marked as created by the operator if none exists, or an existing one has the mark.
/// The uid of an existing CRD keeps the mark from another one of the same name.
fn crd_body(
    desired: &CustomResourceDefinition,
    owner: &str,
    live: Option<&CustomResourceDefinition>,
) -> Value {
    let hash = hex::encode(&Sha256::digest(json!(desired.spec).to_string().as_bytes())[..8]);
    let mut notes = BTreeMap::from([(annotations::CRD_VERSION, VERSION), (annotations::APPLIED, &hash)]);
    let is_ours = live.is_none_or(|live| live.annotations().get(CREATED_BY).is_some_and(|by| by == owner));
    if is_ours {
        notes.insert(CREATED_BY, owner);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": desired.metadata.name,
            "uid": live.and_then(ResourceExt::uid),
            "labels": { labels::MANAGED_BY: labels::MANAGED_BY_KYMA, labels::OWNER: owner },
            "annotations": notes,
        },
        "spec": desired.spec,
    })
}

fn is_newer(live: &CustomResourceDefinition) -> bool {
    let version = |text: &str| Version::parse(text).ok();
    let actual = live.annotations().get(annotations::CRD_VERSION).and_then(|actual| version(actual));
    actual.is_some_and(|actual| version(VERSION).is_some_and(|ours| actual > ours))
}

/// Reports whether the same content was applied before and the manager still owns all of it.
fn is_current(live: &CustomResourceDefinition, body: &Value) -> bool {
    let live = serde_json::to_value(live).and_then(serde_json::from_value::<DynamicObject>);
    live.is_ok_and(|live| {
        let pairs = |name: &str| body["metadata"][name].as_object().cloned().unwrap_or_default();
        let has = |actual: &BTreeMap<String, String>, desired: serde_json::Map<String, Value>| {
            desired.iter().all(|(name, value)| actual.get(name).map(String::as_str) == value.as_str())
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

#[cfg(test)]
mod tests {
    use testbed::{Answer, RequestMatcher, ScriptedServer};

    use super::*;

    const OWNER: &str = "owner";
    const CRD: &str =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/moduletemplates.operator.kyma-project.io";

    #[tokio::test]
    async fn crd_created_after_the_read_is_adopted_by_the_next_pass() {
        let target = ScriptedServer::start().await.unwrap();
        let desired = crds::module_template();
        let theirs = Answer::json(&serde_json::to_value(&desired).unwrap());
        let forced = RequestMatcher::path(CRD).method("PATCH").query("force=true");
        let absent =
            Answer::not_found("apiextensions.k8s.io", "customresourcedefinitions", &desired.name_any());
        target.next(1, RequestMatcher::path(CRD).method("GET"), absent);
        target.always(RequestMatcher::path(CRD).method("GET"), theirs.clone());
        target.always(forced.clone(), theirs);
        target.always(RequestMatcher::path(CRD).method("PATCH"), Answer::failure(409, "Conflict", "exists"));
        let client = target.access().client().unwrap();
        let raced = ensure_crd(client.clone(), OWNER, &desired).await;
        assert!(raced.is_err_and(|failure| failure.reason == Reason::ApplyConflict));
        assert_eq!(target.count(&forced), 0, "the CRD of another writer got the mark of its creator");
        ensure_crd(client, OWNER, &desired).await.unwrap();
        assert_eq!(target.count(&forced), 1);
    }

    #[test]
    fn only_a_crd_that_the_operator_created_is_marked_as_created() {
        let desired = crds::module_template();
        let meta = |creator: Option<&str>| {
            let mut live = desired.clone();
            live.metadata.uid = Some("u".to_owned());
            live.metadata.annotations = creator.map(|by| [(CREATED_BY.to_owned(), by.to_owned())].into());
            crd_body(&desired, OWNER, Some(&live))["metadata"].take()
        };
        for (creator, mark) in
            [(Some(OWNER), json!(OWNER)), (Some("another"), Value::Null), (None, Value::Null)]
        {
            let meta = meta(creator);
            assert_eq!((&meta["annotations"][CREATED_BY], &meta["uid"]), (&mark, &json!("u")), "{creator:?}");
        }
        let created = crd_body(&desired, OWNER, None);
        assert_eq!(created["metadata"]["annotations"][CREATED_BY], json!(OWNER));
    }
}
