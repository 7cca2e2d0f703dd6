//! CRDs that operators install on targets for their own objects.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ObjectMeta, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use kyma_api::{annotations, labels};
use kyma_controller::{Failure, Operator, create_new, find_object};
use semver::Version;
use serde_json::json;

use crate::error::Error;
use crate::owned_fields;

/// A CRD on a target.
#[derive(Clone, Debug)]
pub struct InstalledCrd {
    /// The CRD as it now is on the target.
    pub crd: CustomResourceDefinition,
    /// Whether it was created or changed.
    pub is_written: bool,
}

/// Installs or updates a CRD, unless a newer version of the operator did. Applies name, annotations and spec of
/// `definition`. `owner` is the owner hash of the Kyma that has this target. If another writer creates or replaces the
/// CRD after the read, the call changes nothing and fails with a conflict; the next pass adopts that CRD.
///
/// # Errors
/// The target does not answer or forbids a call, or another writer changed the CRD (conflict).
pub async fn ensure_crd(
    client: Client,
    operator: Operator,
    owner: &str,
    definition: &CustomResourceDefinition,
) -> Result<InstalledCrd, Failure> {
    let name = definition.name_any();
    let api: Api<CustomResourceDefinition> = Api::all(client);
    let failed = |source| Error::InstallCrd { name: name.clone(), source };
    // Accepts only a 404 of the API server: with a 404 of a proxy, an existing CRD would be marked as created by this
    // operator.
    let live = find_object(&api, &name).await.map_err(failed)?;
    let desired = desired_crd(definition, operator, owner, live.as_ref());
    let written = match live {
        Some(live) if is_newer(&live, operator.version) || is_current(&live, &desired, operator.name) => {
            return Ok(InstalledCrd { crd: live, is_written: false });
        }
        Some(_) => {
            let params = PatchParams::apply(operator.name).force();
            api.patch(&name, &params, &Patch::Apply(&desired)).await
        }
        // This future is boxed, since it would enlarge the future of every pass that opens a session.
        None => Box::pin(create_new(&api, operator.name, &desired)).await,
    };
    Ok(InstalledCrd { crd: written.map_err(failed)?, is_written: true })
}

/// Returns the CRD to apply. The CRD gets the mark of its creator only if it does not exist yet or has the mark
/// already: an adopted CRD has no such mark, and is never deleted. The uid of an existing CRD is a precondition, so a
/// CRD of the same name that replaced it does not get the mark.
fn desired_crd(
    definition: &CustomResourceDefinition,
    operator: Operator,
    owner: &str,
    live: Option<&CustomResourceDefinition>,
) -> CustomResourceDefinition {
    let mut annotations = definition.annotations().clone();
    annotations.insert(annotations::CRD_VERSION.to_owned(), operator.version.to_owned());
    let is_creator = |live: &CustomResourceDefinition| {
        live.annotations().get(annotations::CREATED_BY).is_some_and(|creator| creator == owner)
    };
    if live.is_none_or(is_creator) {
        annotations.insert(annotations::CREATED_BY.to_owned(), owner.to_owned());
    }
    let labels = [(labels::MANAGED_BY, labels::MANAGED_BY_KYMA), (labels::OWNER, owner)];
    let labels: BTreeMap<String, String> =
        labels.map(|(label, value)| (label.to_owned(), value.to_owned())).into();
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: definition.metadata.name.clone(),
            uid: live.and_then(ResourceExt::uid),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: definition.spec.clone(),
        status: None,
    }
}

/// Reports whether a newer version of the operator wrote the CRD.
fn is_newer(live: &CustomResourceDefinition, version: &str) -> bool {
    let crd_version =
        live.annotations().get(annotations::CRD_VERSION).and_then(|text| Version::parse(text).ok());
    let operator_version = Version::parse(version).ok();
    crd_version
        .zip(operator_version)
        .is_some_and(|(crd_version, operator_version)| crd_version.cmp_precedence(&operator_version).is_gt())
}

/// Reports whether an apply of `desired` by `manager` would change nothing.
fn is_current(live: &CustomResourceDefinition, desired: &CustomResourceDefinition, manager: &str) -> bool {
    let live = serde_json::to_value(live).and_then(serde_json::from_value::<DynamicObject>);
    live.is_ok_and(|live| {
        owned_fields::fingerprint(&live, manager).as_deref()
            == Some(owned_fields::fingerprint_of_apply(&json!(desired)).as_str())
    })
}

#[cfg(test)]
mod tests {
    use kyma_api::{Reason, crds};
    use serde_json::Value;
    use testbed::{Answer, RequestMatcher, ScriptedServer};

    use super::*;

    const OPERATOR: Operator = Operator { name: "an-operator", version: "0.2.0" };
    const OWNER: &str = "owner";
    const CRD: &str =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kymas.operator.kyma-project.io";

    /// Returns the CRD as the API server stores it after an apply of the operator.
    fn applied() -> CustomResourceDefinition {
        let mut live = json!(desired_crd(&crds::kyma(), OPERATOR, OWNER, None));
        live["metadata"]["uid"] = json!("u");
        live["metadata"]["managedFields"] = json!([{
            "manager": OPERATOR.name, "operation": "Apply", "apiVersion": "apiextensions.k8s.io/v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": { "f:metadata": { "f:annotations": {}, "f:labels": {} }, "f:spec": {} },
        }]);
        serde_json::from_value(live).unwrap()
    }

    fn with_version(version: &str) -> CustomResourceDefinition {
        let mut live = applied();
        live.annotations_mut().insert(annotations::CRD_VERSION.to_owned(), version.to_owned());
        live
    }

    #[tokio::test]
    async fn crd_created_after_the_read_is_adopted_by_the_next_pass() {
        let target = ScriptedServer::start().await.unwrap();
        let mut existing = crds::kyma();
        existing.metadata.uid = Some("u".to_owned());
        let existing = Answer::json(&json!(existing));
        let forced = RequestMatcher::path(CRD).method("PATCH").query("force=true");
        let absent = Answer::not_found(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "kymas.operator.kyma-project.io",
        );
        target.next(1, RequestMatcher::path(CRD).method("GET"), absent);
        target.always(RequestMatcher::path(CRD).method("GET"), existing.clone());
        target.always(forced.clone(), existing);
        target.always(RequestMatcher::path(CRD).method("PATCH"), Answer::failure(409, "Conflict", "exists"));
        let client = target.access().client().unwrap();
        let raced = ensure_crd(client.clone(), OPERATOR, OWNER, &crds::kyma()).await;
        assert_eq!(raced.unwrap_err().reason, Reason::ApplyConflict);
        assert_eq!(target.count(&forced), 0, "a CRD of another writer was marked as created by the operator");
        assert!(ensure_crd(client, OPERATOR, OWNER, &crds::kyma()).await.unwrap().is_written);
        assert_eq!(target.count(&forced), 1);
    }

    #[tokio::test]
    async fn current_and_newer_crds_are_not_written() {
        let target = ScriptedServer::start().await.unwrap();
        let reads = RequestMatcher::path(CRD).method("GET");
        for live in [applied(), with_version("0.3.0")] {
            target.next(1, reads.clone(), Answer::json(&json!(live)));
            let client = target.access().client().unwrap();
            let installed = ensure_crd(client, OPERATOR, OWNER, &crds::kyma()).await.unwrap();
            assert!(!installed.is_written);
            assert_eq!(installed.crd.metadata.uid.as_deref(), Some("u"));
        }
        assert_eq!(target.count(&RequestMatcher::any()), target.count(&reads));
    }

    #[test]
    fn an_edit_of_an_applied_field_is_overwritten() {
        let desired = desired_crd(&crds::kyma(), OPERATOR, OWNER, Some(&applied()));
        let is_current_with = |edit: &dyn Fn(&mut CustomResourceDefinition)| {
            let mut live = applied();
            edit(&mut live);
            is_current(&live, &desired, OPERATOR.name)
        };
        assert!(is_current_with(&|_| {}));
        assert!(is_current_with(&|live| live.metadata.generation = Some(2)));
        assert!(!is_current_with(&|live| live.spec.versions.truncate(1)));
        assert!(!is_current_with(&|live| live.labels_mut().clear()));
        assert!(
            !is_current_with(&|live| live.metadata.managed_fields = None),
            "another manager owns all fields"
        );
        assert!(!is_current(&applied(), &desired, "another-operator"));
    }

    #[test]
    fn only_a_higher_version_is_newer() {
        for (version, expected) in
            [("0.3.0", true), ("0.2.0", false), ("0.1.9", false), ("0.2.0+build", false), ("newest", false)]
        {
            assert_eq!(is_newer(&with_version(version), OPERATOR.version), expected, "{version}");
        }
        assert!(!is_newer(&crds::kyma(), OPERATOR.version), "Kyma Lifecycle Manager created it");
    }

    #[test]
    fn only_a_crd_that_the_operator_created_is_marked_as_created() {
        let metadata = |live: Option<&CustomResourceDefinition>| {
            json!(desired_crd(&crds::kyma(), OPERATOR, OWNER, live))["metadata"].take()
        };
        for (creator, mark) in
            [(Some(OWNER), json!(OWNER)), (Some("another"), Value::Null), (None, Value::Null)]
        {
            let mut live = crds::kyma();
            live.metadata.uid = Some("u".to_owned());
            live.metadata.annotations =
                creator.map(|by| [(annotations::CREATED_BY.to_owned(), by.to_owned())].into());
            let found = metadata(Some(&live));
            let marked = &found["annotations"][annotations::CREATED_BY];
            assert_eq!((marked, &found["uid"]), (&mark, &json!("u")), "{creator:?}");
        }
        let created = metadata(None);
        assert_eq!(created["annotations"][annotations::CREATED_BY], json!(OWNER));
        assert_eq!(created["uid"], Value::Null);
    }

    #[test]
    fn annotations_of_the_definition_are_applied() {
        let mut definition = crds::module_template();
        definition.annotations_mut().insert("note".to_owned(), "text".to_owned());
        let desired = json!(desired_crd(&definition, OPERATOR, OWNER, None));
        assert_eq!(desired["metadata"]["annotations"]["note"], json!("text"));
        assert_eq!(desired["metadata"]["annotations"][annotations::CRD_VERSION], json!("0.2.0"));
        assert_eq!(desired["metadata"]["labels"][labels::OWNER], json!(OWNER));
    }
}
