//! Content of copies on targets. Pure.

use std::collections::BTreeMap;

use kube::Resource;
use kube::api::{ApiResource, DynamicObject};
use kyma_api::{ModuleReleaseMeta, ModuleTemplate, annotations, labels};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// The two kinds of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Template,
    Release,
}

impl Kind {
    pub(crate) const BOTH: [Self; 2] = [Self::Template, Self::Release];

    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::Template => ApiResource::erase::<ModuleTemplate>(&()),
            Self::Release => ApiResource::erase::<ModuleReleaseMeta>(&()),
        }
    }

    /// Returns the kind's word for messages.
    pub(crate) fn word(self) -> String {
        match self {
            Self::Template => ModuleTemplate::kind(&()).into_owned(),
            Self::Release => ModuleReleaseMeta::kind(&()).into_owned(),
        }
    }
}

/// Kind and name of a catalogue object; the same on hub and target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.word(), self.name)
    }
}

/// Content of a copy, without target namespace and owner.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Copy {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    spec: Value,
    /// Hash of all fields above, 16 hex digits. An annotation of the copy has it, so that removed fields are detected
    /// after a restart too.
    pub(crate) hash: String,
}

impl Copy {
    /// Returns a copy with these labels, annotations and spec. Labels and annotations that tools or operators use on
    /// the hub are dropped.
    pub(crate) fn new(
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
        spec: Value,
    ) -> Self {
        let labels = copied_metadata(labels);
        let annotations = copied_metadata(annotations);
        let text = json!([labels, annotations, spec]).to_string();
        let hash = hex::encode(&Sha256::digest(text.as_bytes())[..8]);
        Self { labels, annotations, spec, hash }
    }

    /// Returns the body of the apply. `uid` is that of the existing object.
    pub(crate) fn body(&self, key: &Key, namespace: &str, owner: &str, uid: Option<&str>) -> Value {
        let resource = key.kind.resource();
        let mut labels = self.labels.clone();
        labels.insert(labels::MANAGED_BY.to_owned(), labels::MANAGED_BY_KYMA.to_owned());
        labels.insert(labels::OWNER.to_owned(), owner.to_owned());
        let mut annotations = self.annotations.clone();
        annotations.insert(annotations::APPLIED.to_owned(), self.hash.clone());
        let mut metadata = Map::from_iter([
            ("name".to_owned(), json!(key.name)),
            ("namespace".to_owned(), json!(namespace)),
            ("labels".to_owned(), json!(labels)),
            ("annotations".to_owned(), json!(annotations)),
        ]);
        if let Some(uid) = uid {
            metadata.insert("uid".to_owned(), json!(uid));
        }
        json!({
            "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": self.spec,
        })
    }

    /// Reports whether applying this over `live` would change nothing.
    pub(crate) fn is_applied(&self, live: &DynamicObject, owner: &str) -> bool {
        let none = BTreeMap::new();
        let (actual, noted) = (
            live.metadata.labels.as_ref().unwrap_or(&none),
            live.metadata.annotations.as_ref().unwrap_or(&none),
        );
        noted.get(annotations::APPLIED) == Some(&self.hash)
            && actual.get(labels::OWNER).map(String::as_str) == Some(owner)
            && actual.get(labels::MANAGED_BY).map(String::as_str) == Some(labels::MANAGED_BY_KYMA)
            && self.labels.iter().all(|(name, value)| actual.get(name) == Some(value))
            && self.annotations.iter().all(|(name, value)| noted.get(name) == Some(value))
            && live.data.get("spec").is_some_and(|spec| includes(spec, &self.spec))
    }
}

/// Field of a release that may name other customers. Tools repeat it in annotations of the objects that they apply.
const SELECTOR_FIELD: &str = "kymaSelector";

/// Returns the labels or annotations that are useful on a target.
fn copied_metadata(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let hub_only = |name: &str| {
        name.starts_with("kubectl.kubernetes.io/")
            || name.starts_with("component.kyma-project.io/")
            || name == labels::MANAGED_BY
    };
    all.iter()
        .filter(|(name, value)| !hub_only(name) && !value.contains(SELECTOR_FIELD))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Reports whether `live` has every value of `desired`. Other managers' list entries are ignored.
fn includes(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            desired.iter().all(|(name, value)| match live.get(name) {
                Some(actual) => includes(actual, value),
                None => value.is_null(),
            })
        }
        (Value::Array(live), Value::Array(desired)) => {
            desired.iter().all(|value| live.iter().any(|actual| includes(actual, value)))
        }
        _ => live == desired,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy() -> Copy {
        let labels = BTreeMap::from([
            ("operator.kyma-project.io/module-name".into(), "keda".into()),
            ("component.kyma-project.io/shard".into(), "7".into()),
        ]);
        let annotations = BTreeMap::from([
            ("kubectl.kubernetes.io/last-applied-configuration".into(), "{}".into()),
            ("kapp.k14s.io/original".into(), r#"{"spec":{"kymaSelector":{}}}"#.into()),
        ]);
        Copy::new(&labels, &annotations, json!({"a": 1, "list": [{"name": "x"}]}))
    }

    fn key() -> Key {
        Key { kind: Kind::Template, name: "keda-1.0.0".into() }
    }

    fn live() -> Value {
        copy().body(&key(), "kyma-system", "owner", Some("uid"))
    }

    fn is_applied(live: &Value) -> bool {
        copy().is_applied(&serde_json::from_value(live.clone()).unwrap(), "owner")
    }

    #[test]
    fn copy_carries_the_owner_and_leaves_hub_metadata_on_the_hub() {
        let body = live();
        let labels = body["metadata"]["labels"].as_object().unwrap();
        let names: Vec<_> = labels.keys().map(String::as_str).collect();
        assert_eq!(names, [labels::OWNER, labels::MANAGED_BY, labels::MODULE_NAME]);
        let annotations = body["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations.keys().collect::<Vec<_>>(), [annotations::APPLIED]);
        assert_eq!(body["metadata"]["uid"], "uid");
    }

    #[test]
    fn what_was_applied_is_in_step_whatever_others_add() {
        let mut live = live();
        assert!(is_applied(&live));
        live["spec"]["extra"] = json!(true);
        live["spec"]["list"] = json!([{"name": "theirs"}, {"name": "x", "more": 1}]);
        live["metadata"]["labels"]["theirs"] = json!("x");
        assert!(is_applied(&live));
    }

    #[test]
    fn every_change_of_ours_is_noticed() {
        for (pointer, value) in [
            ("/spec/a", json!(2)),
            ("/spec/list", json!([])),
            ("/metadata/labels/operator.kyma-project.io~1module-name", json!("other")),
            ("/metadata/labels/component.kyma-project.io~1owner", json!("other")),
            ("/metadata/labels/operator.kyma-project.io~1managed-by", json!("other")),
            ("/metadata/annotations/component.kyma-project.io~1applied", json!("other")),
        ] {
            let mut live = live();
            *live.pointer_mut(pointer).unwrap() = value;
            assert!(!is_applied(&live), "{pointer}");
        }
    }
}
