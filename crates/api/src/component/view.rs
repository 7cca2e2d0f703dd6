//! A component of any kind, reduced to the fields that kyma-operator reads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::{DynamicObject, GroupVersionKind};
use serde_json::Value;

use super::fields::DeletionPolicy;
use super::order::DeletionOrder;
use crate::status::condition::types;
use crate::status::state::State;
use crate::{metadata::annotations, metadata::labels};

/// The fields of a component that kyma-operator reads: identity, labels of the contract, and status.
///
/// The status comes from reconcilers of other teams, so fields of a wrong type count as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentView {
    /// Kind in the object itself; empty parts if it has none.
    pub gvk: GroupVersionKind,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid; empty if the object was never stored.
    pub uid: String,
    /// resourceVersion, for conditional writes.
    pub resource_version: Option<String>,
    /// Generation of the spec.
    pub generation: i64,
    /// Time of its deletion.
    pub deletion_timestamp: Option<Time>,
    /// Creation time; the deadline of `NoReconciler` begins here.
    pub creation_timestamp: Option<Time>,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// Value of the label `kyma-name`.
    pub kyma: Option<String>,
    /// Value of the label `module-name`.
    pub module: Option<String>,
    /// Value of the label `channel`.
    pub channel: Option<String>,
    /// `spec.module.version`: the requested version.
    pub wanted_version: Option<String>,
    /// `spec.deletionPolicy`; Orphan if absent or unknown.
    pub deletion_policy: DeletionPolicy,
    /// The deletion request in its annotations.
    pub deletion_order: Option<DeletionOrder>,
    /// Hash of the last apply.
    pub applied: Option<String>,
    /// `status.observedGeneration`.
    pub observed_generation: Option<i64>,
    /// `status.state`; `None` if absent or not a state of Kyma.
    pub state: Option<State>,
    /// `status.version`: the running version.
    pub version: Option<String>,
    /// The condition Ready.
    pub ready: Option<ReadyView>,
}

/// The condition Ready of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyView {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason, as the reconciler defines it.
    pub reason: String,
    /// Message.
    pub message: String,
    /// Generation that the condition applies to.
    pub observed_generation: Option<i64>,
}

impl ComponentView {
    /// Reduces an object.
    pub fn of(object: &DynamicObject) -> Self {
        let metadata = &object.metadata;
        let label = |key| metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
        let annotations = metadata.annotations.as_ref();
        let text = |pointer| object.data.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Self {
            gvk: object
                .types
                .as_ref()
                .and_then(|t| GroupVersionKind::try_from(t).ok())
                .unwrap_or_else(|| GroupVersionKind::gvk("", "", "")),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone(),
            generation: metadata.generation.unwrap_or_default(),
            deletion_timestamp: metadata.deletion_timestamp.clone(),
            creation_timestamp: metadata.creation_timestamp.clone(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            kyma: label(labels::KYMA_NAME),
            module: label(labels::MODULE_NAME),
            channel: label(labels::CHANNEL),
            wanted_version: text("/spec/module/version"),
            deletion_policy: match object.data.pointer("/spec/deletionPolicy").and_then(Value::as_str) {
                Some("Delete") => DeletionPolicy::Delete,
                _ => DeletionPolicy::Orphan,
            },
            deletion_order: annotations.and_then(DeletionOrder::from_annotations),
            applied: annotations.and_then(|map| map.get(annotations::APPLIED)).cloned(),
            observed_generation: object.data.pointer("/status/observedGeneration").and_then(Value::as_i64),
            state: object.data.pointer("/status/state").and_then(Value::as_str).and_then(State::from_word),
            version: text("/status/version"),
            ready: ready(&object.data),
        }
    }

    /// Reports whether its reconciler has observed the current spec.
    pub fn is_observed(&self) -> bool {
        self.observed_generation.is_some_and(|observed| observed >= self.generation)
    }

    /// Reports whether it has a deletionTimestamp.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

fn ready(data: &Value) -> Option<ReadyView> {
    let conditions = data.pointer("/status/conditions")?.as_array()?;
    let ready =
        conditions.iter().find(|one| one.get("type").and_then(Value::as_str) == Some(types::READY))?;
    let text = |key| ready.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(ReadyView {
        status: text("status"),
        reason: text("reason"),
        message: text("message"),
        observed_generation: ready.get("observedGeneration").and_then(Value::as_i64),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(value: Value) -> ComponentView {
        ComponentView::of(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_component_view_has_the_deciding_fields() {
        let view = view(json!({
            "apiVersion": "x.example.com/v1", "kind": "Thing",
            "metadata": {
                "name": "a-b-12345678", "namespace": "kcp-system", "uid": "u", "generation": 4,
                "labels": {"operator.kyma-project.io/kyma-name": "a", "operator.kyma-project.io/module-name": "b"},
            },
            "spec": {"module": {"name": "b", "version": "1.2.3"}, "deletionPolicy": "Delete"},
            "status": {"state": "Ready", "observedGeneration": 4, "version": "1.2.2",
                "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": ""}]},
        }));
        assert_eq!(view.gvk, GroupVersionKind::gvk("x.example.com", "v1", "Thing"));
        assert_eq!((view.kyma.as_deref(), view.module.as_deref()), (Some("a"), Some("b")));
        assert_eq!((view.wanted_version.as_deref(), view.version.as_deref()), (Some("1.2.3"), Some("1.2.2")));
        assert_eq!((view.state, view.deletion_policy), (Some(State::Ready), DeletionPolicy::Delete));
        assert!(view.is_observed() && !view.is_deleting());
        assert_eq!(view.ready.unwrap().status, "True");
    }

    #[test]
    fn a_report_of_wrong_types_counts_as_none() {
        let view = view(json!({
            "apiVersion": "x.example.com/v1", "kind": "Thing", "metadata": {"name": "n", "generation": 1},
            "spec": {"deletionPolicy": "delete"},
            "status": {"state": "Fine", "observedGeneration": "4", "version": 1, "conditions": {}},
        }));
        assert_eq!((view.state, view.observed_generation, view.version), (None, None, None));
        assert_eq!((view.ready, view.deletion_policy), (None, DeletionPolicy::Orphan));
    }
}
