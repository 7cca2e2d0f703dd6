//! Injects content of the hub's Secrets into Secrets of a module, as KLM does. Pure.
//!
//! Only the module `deployer` receives it, only while it is a restricted module, and only for Secrets of raw
//! manifests: a chart's output depends on users' values. Hashes cover the revision of the hub's Secret instead of its
//! content.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kyma_api::{HelmComponentSpec, Reason, annotations, labels};
use kyma_controller::{CopyError, Failure, Revision, may_be_copied};
use kyma_object_set::Object;
use serde_json::{Map, Value};

/// The only module whose Secrets receive content of the hub, as in KLM.
const DEPLOYER: &str = "deployer";

/// Why a Secret of the module receives no content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InjectionError {
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error(
        "Secret {secret} on the hub belongs to no module; name the module in its label {}={DEPLOYER}",
        labels::MODULE_NAME
    )]
    NoModule { secret: String },
    #[error(
        "Secret {secret} on the hub is for module {module}, not for {DEPLOYER}, as its label {} says",
        labels::MODULE_NAME
    )]
    OtherModule { secret: String, module: String },
}

impl From<InjectionError> for Failure {
    fn from(error: InjectionError) -> Self {
        match error {
            InjectionError::Copy(error) => error.into(),
            InjectionError::NoModule { .. } => Self::new(Reason::InjectionWithoutModule, error.to_string()),
            InjectionError::OtherModule { .. } => {
                Self::new(Reason::InjectionOfOtherModule, error.to_string())
            }
        }
    }
}

/// Reports whether Secrets of the component may receive content of the hub, given the restricted modules.
pub(crate) fn is_for(spec: &HelmComponentSpec, restricted: &BTreeSet<String>) -> bool {
    restricted.contains(DEPLOYER) && spec.module.as_ref().is_some_and(|module| module.name == DEPLOYER)
}

/// Reports whether a Secret of the hub with these labels is meant for the module.
pub(crate) fn is_meant(labels: Option<&BTreeMap<String, String>>) -> bool {
    labels.and_then(|all| all.get(labels::MODULE_NAME)).is_some_and(|module| module == DEPLOYER)
}

/// Returns the names of the hub's Secrets that the objects request.
pub(crate) fn requested_secrets(objects: &[Object]) -> BTreeSet<String> {
    objects.iter().filter(|object| requests_content(object)).map(|object| object.name().to_owned()).collect()
}

fn requests_content(object: &Object) -> bool {
    (object.group(), object.kind()) == ("", "Secret")
        && object.annotation(annotations::INJECT_DATA_FROM_KCP) == Some("true")
}

/// Copies the content of the hub's Secret into the objects that request it.
pub(crate) fn inject(
    objects: &mut [Object],
    name: &str,
    found: Option<&Secret>,
) -> Result<(), InjectionError> {
    let found = found.ok_or_else(|| CopyError::Missing { secret: name.to_owned() })?;
    match found.labels().get(labels::MODULE_NAME) {
        Some(module) if module == DEPLOYER => {}
        Some(module) => {
            let module = module.clone();
            return Err(InjectionError::OtherModule { secret: name.to_owned(), module });
        }
        None => return Err(InjectionError::NoModule { secret: name.to_owned() }),
    }
    let found = may_be_copied(name, Some(found))?;
    let encoded = |(key, content): (&String, &k8s_openapi::ByteString)| {
        (key.clone(), Value::from(STANDARD.encode(&content.0)))
    };
    let data: Map<String, Value> = found.data.iter().flatten().map(encoded).collect();
    let revision = Revision::of(&found.metadata).to_string();
    for object in objects.iter_mut().filter(|object| requests_content(object) && object.name() == name) {
        let body = object.body_mut();
        body.remove("stringData");
        body.insert("data".to_owned(), data.clone().into());
        object.set_annotation(annotations::INJECTED_FROM, &revision);
        object.leave_data_out_of_hashes();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(annotation: &Value) -> Object {
        Object::from_value(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "pull", "annotations": {annotations::INJECT_DATA_FROM_KCP: annotation}},
            "data": {".dockerconfigjson": "e30="}, "stringData": {"other": "text"},
        }))
        .unwrap()
    }

    fn hub_secret(labels: &Value, content: &str, version: &str) -> Secret {
        serde_json::from_value(json!({
            "metadata": {"name": "pull", "labels": labels, "uid": "u", "resourceVersion": version},
            "data": {".dockerconfigjson": STANDARD.encode(content)},
        }))
        .unwrap()
    }

    fn allowed() -> Value {
        json!({labels::MODULE_NAME: DEPLOYER, labels::COPY_TO_TARGETS: "true"})
    }

    fn injected(content: &str, version: &str) -> Object {
        let mut objects = [object(&json!("true"))];
        inject(&mut objects, "pull", Some(&hub_secret(&allowed(), content, version))).unwrap();
        objects[0].clone()
    }

    #[test]
    fn e46_annotated_secret_gets_hub_data_and_others_keep_their_own() {
        let object_of = |annotation: Value| object(&annotation);
        let before = [object_of(json!("true")), object_of(json!("false")), object_of(json!(null))];
        assert_eq!(requested_secrets(&before), BTreeSet::from(["pull".to_owned()]));
        assert_eq!(requested_secrets(&before[1..]), BTreeSet::new());
        let mut after = before.clone();
        inject(&mut after, "pull", Some(&hub_secret(&allowed(), "hush", "1"))).unwrap();
        assert_eq!(after[0].body()["data"], json!({".dockerconfigjson": STANDARD.encode("hush")}));
        assert_eq!(after[0].body().get("stringData"), None);
        assert_eq!(after[0].body()["type"], "kubernetes.io/dockerconfigjson");
        assert_eq!(after[1..], before[1..]);
    }

    #[test]
    fn e46_hash_shows_hub_secret_revision_but_not_its_content() {
        let first = injected("hush", "1");
        assert_eq!(first.intent_hash(), injected("other", "1").intent_hash());
        assert_ne!(first.intent_hash(), injected("hush", "2").intent_hash());
        assert!(!format!("{first:?}").contains(&STANDARD.encode("hush")));
    }

    #[test]
    fn e46_secret_of_other_module_or_not_allowed_has_own_reason() {
        let other = json!({labels::MODULE_NAME: "other", labels::COPY_TO_TARGETS: "true"});
        let rows = [
            (None, Reason::CopiedSecretMissing),
            (Some(hub_secret(&json!({}), "hush", "1")), Reason::InjectionWithoutModule),
            (Some(hub_secret(&other, "hush", "1")), Reason::InjectionOfOtherModule),
            (Some(hub_secret(&json!({labels::MODULE_NAME: DEPLOYER}), "hush", "1")), Reason::CopyNotAllowed),
            (Some(hub_secret(&allowed(), "kind: Config\nclusters: []\n", "1")), Reason::CopyRefused),
        ];
        for (found, reason) in rows {
            let mut objects = [object(&json!("true"))];
            let failure = Failure::from(inject(&mut objects, "pull", found.as_ref()).unwrap_err());
            assert_eq!(failure.reason, reason);
            assert!(failure.message.contains("Secret pull"), "{failure}");
            assert!(!failure.message.contains("hush"), "{failure}");
            assert_eq!(objects[0], object(&json!("true")), "nothing is half done");
        }
    }

    #[test]
    fn e47_only_a_restricted_deployer_gets_secret_content_of_hub() {
        let spec = |module: &str| -> HelmComponentSpec {
            serde_json::from_value(json!({"source": {}, "module": {"name": module, "version": "1.0.0"}}))
                .unwrap()
        };
        let restricted = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert!(is_for(&spec("deployer"), &restricted(&["deployer", "other"])));
        assert!(!is_for(&spec("other"), &restricted(&["deployer", "other"])));
        assert!(!is_for(&spec("deployer"), &restricted(&["other"])));
        assert!(!is_for(&serde_json::from_value(json!({"source": {}})).unwrap(), &restricted(&["deployer"])));
    }
}
