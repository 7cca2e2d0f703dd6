//! Applies the changes of a component's spec to the objects of its content: its patches, then labels and annotations
//! of all.
//!
//! Both come before everything that the operator does to objects, so that its own marks win, and an image that a
//! patch sets is localised as any other.

use std::collections::BTreeMap;

use kyma_api::{CommonMetadata, HelmComponentSpec, Reason, patterns};
use kyma_controller::Failure;
use kyma_object_set::{Kinds, ObjectSet, PatchError, Patches};
use serde_json::{Value, json};
use thiserror::Error;

/// Maximum size of an annotation's value, in bytes.
const MAX_ANNOTATION_BYTES: usize = 4 << 10;

/// Why the spec's changes are refused. Messages contain keys, never values.
#[derive(Debug, Error, PartialEq, Eq)]
enum ChangeError {
    /// The patches are invalid, or their result is.
    #[error("spec.{0}")]
    Patch(#[from] PatchError),
    /// The key is not valid for a label or annotation.
    #[error("spec.commonMetadata.{field}: {key:.100} is not a valid key")]
    Key { field: &'static str, key: String },
    /// The operator or Helm sets this key.
    #[error("spec.commonMetadata.{field}: {key} is set by the operator or by Helm; use another key")]
    Reserved { field: &'static str, key: String },
    /// The value is not valid for a label or annotation.
    #[error("spec.commonMetadata.{field}: the value of {key} is not valid")]
    Value { field: &'static str, key: String },
}

impl From<ChangeError> for Failure {
    fn from(error: ChangeError) -> Self {
        let reason = match error {
            ChangeError::Patch(_) => Reason::PatchInvalid,
            _ => Reason::SpecInvalid,
        };
        Self::new(reason, error.to_string())
    }
}

/// Changes to all objects of a component, checked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    patches: Patches,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Changes {
    /// Reads the changes from the spec.
    pub(crate) fn of(spec: &HelmComponentSpec) -> Result<Self, Failure> {
        Ok(Self::read(spec)?)
    }

    fn read(spec: &HelmComponentSpec) -> Result<Self, ChangeError> {
        let CommonMetadata { labels, annotations } = spec.common_metadata.clone().unwrap_or_default();
        Ok(Self {
            patches: Patches::parse(spec.patches.as_deref().unwrap_or_default())?,
            labels: checked("labels", labels, patterns::is_label_value)?,
            annotations: checked("annotations", annotations, |value| value.len() <= MAX_ANNOTATION_BYTES)?,
        })
    }

    /// Applies the changes to the objects of a manifest, for a target that serves `kinds`.
    pub(crate) fn apply(&self, set: ObjectSet, kinds: &Kinds, namespace: &str) -> Result<ObjectSet, Failure> {
        let mut set = self.patches.apply(set, kinds, namespace).map_err(ChangeError::from)?;
        for object in set.objects_mut() {
            self.labels.iter().for_each(|(key, value)| object.set_label(key, value));
            self.annotations.iter().for_each(|(key, value)| object.set_annotation(key, value));
        }
        Ok(set)
    }
}

/// Adds the spec's changes to the input of a digest. Without changes it adds nothing, so digests of earlier versions
/// stay valid.
pub(crate) fn tell(spec: &HelmComponentSpec, whole: &mut Value) {
    if let Some(patches) = spec.patches.as_ref().filter(|patches| !patches.is_empty()) {
        whole["patches"] = json!(patches);
    }
    let is_empty = |map: &Option<BTreeMap<String, String>>| map.as_ref().is_none_or(BTreeMap::is_empty);
    if let Some(metadata) = &spec.common_metadata
        && !(is_empty(&metadata.labels) && is_empty(&metadata.annotations))
    {
        whole["commonMetadata"] = json!(metadata);
    }
}

/// Checks keys and values again, since the CRD on the hub may be an older one that does not.
fn checked(
    field: &'static str,
    map: Option<BTreeMap<String, String>>,
    is_value: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, String>, ChangeError> {
    let map = map.unwrap_or_default();
    for (key, value) in &map {
        let key = || key.clone();
        if !patterns::is_metadata_key(&key()) {
            return Err(ChangeError::Key { field, key: key() });
        }
        if patterns::is_reserved_metadata_key(&key()) {
            return Err(ChangeError::Reserved { field, key: key() });
        }
        if !is_value(value) {
            return Err(ChangeError::Value { field, key: key() });
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use kyma_object_set::{Limits, Object};

    use super::*;

    fn spec(fields: &Value) -> HelmComponentSpec {
        let mut spec = json!({"source": {}});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    fn told(fields: &Value) -> Value {
        let mut whole = json!({});
        tell(&spec(fields), &mut whole);
        whole
    }

    #[test]
    fn patches_come_before_labels_and_annotations_of_all() {
        let changes = Changes::of(&spec(&json!({
            "patches": [{"target": {"kind": "ConfigMap"}, "patch": "metadata: {labels: {a: patch, b: patch}}"}],
            "commonMetadata": {"labels": {"a": "all"}, "annotations": {"c": "all"}},
        })));
        let text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: own}}}\n---\n\
                    {apiVersion: v1, kind: ConfigMap, metadata: {name: b, annotations: {helm.sh/hook: test}}}\n---\n\
                    {apiVersion: v1, kind: Secret, metadata: {name: c}}";
        let set = ObjectSet::parse(text, &Limits::default()).unwrap();
        let set = changes.unwrap().apply(set, &Kinds::default(), "here").unwrap();
        let labels = |object: &Object| object.body()["metadata"]["labels"].clone();
        assert_eq!(labels(&set.objects()[0]), json!({"a": "all", "b": "patch"}));
        assert_eq!(labels(&set.objects()[1]), json!({"a": "all", "b": "patch"}), "hooks too");
        assert_eq!(labels(&set.objects()[2]), json!({"a": "all"}));
        assert!(set.objects().iter().all(|object| object.annotation("c") == Some("all")));
    }

    #[test]
    fn absent_changes_do_not_count_in_the_digest() {
        for nothing in [
            json!({}),
            json!({"patches": []}),
            json!({"commonMetadata": {}}),
            json!({"commonMetadata": {"labels": {}}}),
        ] {
            assert_eq!(told(&nothing), json!({}), "{nothing}");
        }
        let one = told(&json!({"commonMetadata": {"labels": {"a": "b"}}}));
        let other = told(&json!({"patches": [{"patch": "a"}]}));
        assert!(one != other && one != json!({}) && other != json!({}));
    }

    #[test]
    fn refused_labels_and_annotations_are_named_without_value() {
        let labels = |key: &str, value: &str| json!({"commonMetadata": {"labels": {key: value}}});
        let annotations = |key: &str, value: &str| json!({"commonMetadata": {"annotations": {key: value}}});
        let rows = [
            (
                labels("a b", "hush"),
                Reason::SpecInvalid,
                "spec.commonMetadata.labels: a b is not a valid key",
            ),
            (
                labels("component.kyma-project.io/owner", "hush"),
                Reason::SpecInvalid,
                "component.kyma-project.io/owner is set by",
            ),
            (annotations("kyma-project.io/a", "hush"), Reason::SpecInvalid, "kyma-project.io/a is set by"),
            (annotations("helm.sh/hook", "hush"), Reason::SpecInvalid, "helm.sh/hook is set by"),
            (labels("a", "hush hush"), Reason::SpecInvalid, "the value of a is not valid"),
            (annotations("a", &"hush".repeat(2000)), Reason::SpecInvalid, "the value of a is not valid"),
            (json!({"patches": [{"patch": "hush"}]}), Reason::PatchInvalid, "spec.patches[0]: write a map"),
        ];
        for (fields, reason, expected) in rows {
            let failure = Changes::of(&spec(&fields)).unwrap_err();
            assert_eq!(failure.reason, reason, "{fields}");
            assert!(failure.message.contains(expected), "{}", failure.message);
            assert!(!failure.message.contains("hush"), "{}", failure.message);
        }
        let fine = json!({"commonMetadata": {"labels": {"example.org/a_b": ""}, "annotations": {"helm.sh/resource-policy": "keep"}}});
        assert!(Changes::of(&spec(&fine)).is_ok());
    }
}
