//! Prerequisites of the target's Kyma: the namespace and the CRD.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use kyma_api::{Kyma, annotations, labels, names};
use kyma_connection::owned_fields;
use kyma_sdk::{KymaKey, create_new, find_object};
use kyma_targets::Target;
use serde_json::{Value, json};

use crate::error::Error;
use crate::resolve::compare;
use crate::state::State;
use crate::{CREATE_FIELD_MANAGER, FIELD_MANAGER};

/// Ensures namespace and CRD. Returns how many of them were written.
pub(super) async fn ensure_namespace_and_crd(
    state: &State,
    kyma: &Kyma,
    target: &Target,
) -> Result<usize, Error> {
    let namespace = ensure_namespace(target, &state.runtime.settings.target_namespace).await?;
    let crd = ensure_crd(kyma, target.client()).await?;
    Ok(usize::from(namespace) + usize::from(crd))
}

/// Ensures the namespace and its labels. Returns true if it was written.
pub(super) async fn ensure_namespace(target: &Target, name: &str) -> Result<bool, Error> {
    let (client, set) = (target.client(), labels::TARGET_NAMESPACE_LABELS);
    let failed = |source| Error::EnsureNamespace { name: name.to_owned(), source };
    let found = kyma_targets::ensure_namespace(&client, name, &set, CREATE_FIELD_MANAGER).await;
    let Some(found) = found.map_err(failed)? else { return Ok(true) };
    let actual = found.labels.unwrap_or_default();
    if set.iter().all(|(name, value)| actual.get(*name).is_some_and(|actual| actual == value)) {
        return Ok(false);
    }
    let set: BTreeMap<&str, &str> = set.into_iter().collect();
    let body =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": set } });
    Api::<Namespace>::all(client)
        .patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&body))
        .await
        .map(|_| true)
        .map_err(failed)
}

/// Installs or updates the Kyma CRD, unless a newer operator did. Returns true if it was written. The following watch
/// shows whether the kind is served. A CRD that another writer creates or replaces after the read is left unchanged
/// and causes a conflict; the next pass adopts it.
async fn ensure_crd(kyma: &Kyma, client: Client) -> Result<bool, Error> {
    let name = Kyma::crd_name();
    let api: Api<CustomResourceDefinition> = Api::all(client);
    let failed = |source| Error::InstallKymaCrd { name: name.to_owned(), source };
    // A 404 of a proxy would mark an existing CRD as created here.
    let live = find_object(&api, name).await.map_err(failed)?;
    let desired = desired_crd(kyma, live.as_ref());
    let Some(live) = live else {
        // Boxed: every pass that opens a session holds this future.
        return Box::pin(create_crd(&api, desired)).await.map(|()| true);
    };
    if is_current(&live, &desired) {
        return Ok(false);
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(name, &params, &Patch::Apply(&desired)).await.map(|_| true).map_err(failed)
}

/// Creates the Kyma CRD.
///
/// # Errors
/// A conflict if it exists.
async fn create_crd(api: &Api<CustomResourceDefinition>, desired: Value) -> Result<(), Error> {
    let crd: CustomResourceDefinition =
        serde_json::from_value(desired).map_err(|source| Error::Compose { what: "the Kyma CRD", source })?;
    let created = create_new(api, FIELD_MANAGER, &crd).await;
    created.map(drop).map_err(|source| Error::InstallKymaCrd { name: crd.name_any(), source })
}

/// Returns the CRD to apply. It is marked as created by the operator if none exists, or an existing one has the mark:
/// an adopted CRD is never deleted. The uid of an existing CRD keeps the mark from another one of the same name.
fn desired_crd(kyma: &Kyma, live: Option<&CustomResourceDefinition>) -> Value {
    let crd = kyma_api::crds::kyma();
    let key = KymaKey::of(kyma);
    let owner = names::owner_hash(&key.namespace, &key.name);
    let mut notes = BTreeMap::from([(annotations::CRD_VERSION, env!("CARGO_PKG_VERSION"))]);
    if live.is_none_or(|live| live.annotations().get(annotations::CREATED_BY) == Some(&owner)) {
        notes.insert(annotations::CREATED_BY, owner.as_str());
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": crd.metadata.name,
            "uid": live.and_then(ResourceExt::uid),
            "labels": {
                labels::MANAGED_BY: labels::MANAGED_BY_KYMA,
                labels::OWNER: owner,
            },
            "annotations": notes,
        },
        "spec": crd.spec,
    })
}

fn is_current(live: &CustomResourceDefinition, desired: &Value) -> bool {
    let version = live.annotations().get(annotations::CRD_VERSION);
    let is_newer = version.and_then(|version| compare(version, env!("CARGO_PKG_VERSION")));
    if is_newer.is_some_and(std::cmp::Ordering::is_gt) {
        return true;
    }
    let live = serde_json::to_value(live).and_then(serde_json::from_value::<DynamicObject>);
    live.is_ok_and(|live| {
        owned_fields::fingerprint(&live, FIELD_MANAGER).as_deref()
            == Some(owned_fields::fingerprint_of_apply(desired).as_str())
    })
}

#[cfg(test)]
mod tests {
    use kyma_sdk::is_conflict;
    use testbed::{Answer, RequestMatcher, ScriptedServer};

    use super::*;

    const CRD: &str =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kymas.operator.kyma-project.io";

    fn kyma() -> Kyma {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": { "name": "blue", "namespace": "kcp-system" }, "spec": { "channel": "regular" },
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn crd_created_after_the_read_is_adopted_by_the_next_pass() {
        let target = ScriptedServer::start().await.unwrap();
        let mut theirs = kyma_api::crds::kyma();
        theirs.metadata.uid = Some("u".to_owned());
        let theirs = Answer::json(&serde_json::to_value(theirs).unwrap());
        let forced = RequestMatcher::path(CRD).method("PATCH").query("force=true");
        let absent = Answer::not_found("apiextensions.k8s.io", "customresourcedefinitions", Kyma::crd_name());
        target.next(1, RequestMatcher::path(CRD).method("GET"), absent);
        target.always(RequestMatcher::path(CRD).method("GET"), theirs.clone());
        target.always(forced.clone(), theirs);
        target.always(RequestMatcher::path(CRD).method("PATCH"), Answer::failure(409, "Conflict", "exists"));
        let client = target.access().client().unwrap();
        let raced = ensure_crd(&kyma(), client.clone()).await;
        assert!(
            matches!(&raced, Err(Error::InstallKymaCrd { source, .. }) if is_conflict(source)),
            "{raced:?}"
        );
        assert_eq!(target.count(&forced), 0, "the CRD of another writer got the mark of its creator");
        assert!(ensure_crd(&kyma(), client).await.unwrap());
        assert_eq!(target.count(&forced), 1);
    }

    #[test]
    fn an_update_names_the_uid_of_the_crd_that_was_read() {
        let mut live = kyma_api::crds::kyma();
        live.metadata.uid = Some("u".to_owned());
        assert_eq!(desired_crd(&kyma(), Some(&live))["metadata"]["uid"], json!("u"));
        assert_eq!(desired_crd(&kyma(), None)["metadata"]["uid"], Value::Null);
    }

    #[test]
    fn only_a_crd_that_the_operator_created_is_marked_as_created() {
        let kyma = kyma();
        let owner = names::owner_hash("kcp-system", "blue");
        let creator = |live: Option<Value>| {
            let live = live.map(|notes| {
                let mut crd = kyma_api::crds::kyma();
                crd.metadata.annotations = serde_json::from_value(notes).unwrap();
                crd
            });
            desired_crd(&kyma, live.as_ref())["metadata"]["annotations"].get(annotations::CREATED_BY).cloned()
        };
        assert_eq!(creator(None), Some(json!(owner)));
        assert_eq!(creator(Some(json!({ annotations::CREATED_BY: owner }))), Some(json!(owner)));
        assert_eq!(creator(Some(json!({ annotations::CREATED_BY: "another" }))), None);
        assert_eq!(creator(Some(json!({}))), None, "a user or Kyma Lifecycle Manager created it");
    }
}
