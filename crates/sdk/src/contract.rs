//! The component contract as types: to build kinds from, and to read any kind that keeps it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kyma_api::{
    DeletionPolicy, Dependency, FreeForm, GroupKind, Manager, ModuleRef, Reason, ResourcePolicy, State,
    TargetRef, annotations, component::DeletionOrder, finalizers, kyma_owner, labels,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ComponentResource, Failure, unreadable_fields};

/// The field of a status that says which request was followed last.
pub(crate) const HANDLED: &str = "lastHandledReconcileAt";

/// What kyma-operator writes into `spec` of every component. Flatten it into your own spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentSpec {
    /// The cluster to work on.
    #[serde(default)]
    pub target: TargetRef,
    /// The module to install. Absent for a component that somebody made by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<ModuleRef>,
    /// The user's values for the module, from the Kyma.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub user_values: Option<FreeForm>,
    /// Values that win over the user's, set centrally.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub overrides: Option<FreeForm>,
    /// What the module needs: kinds, for which only their objects wait, and modules or components, for which all of it
    /// waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub depends_on: Vec<Dependency>,
    /// The module's default CR, from the ModuleTemplate. Creating it is the component's task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub resource: Option<FreeForm>,
    /// The workload whose readiness is the module's state, from the ModuleTemplate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Manager>,
    /// Kinds whose objects on the target hold up the removal, beside those that the component names itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub managed_resources: Vec<GroupKind>,
    /// What happens with the module's default CR.
    #[serde(default)]
    pub resource_policy: ResourcePolicy,
    /// What the end of this object means for the target: Orphan (the default) leaves everything there.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// While true nothing is done on the target.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

/// What every component reports in `status`. Flatten it into your own status, or use it as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// State of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Ready, `TargetReachable`, and the component's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Generation of the spec that this report is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Version whose objects are on the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The annotation `component.kyma-project.io/reconcile-requested-at`, as of the last request that was followed. A
    /// kind without this field knows no requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}

fn free_form(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-map-type": "atomic",
    })
}

/// A component of any kind, reduced to the contract.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contract {
    /// The spec's part of the contract.
    pub spec: ComponentSpec,
    /// The status' part of the contract.
    pub status: ComponentStatus,
    /// The whole status as last reported.
    pub whole_status: FreeForm,
}

#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    spec: ComponentSpec,
    #[serde(default)]
    status: Option<FreeForm>,
}

impl Contract {
    /// Reads the contract's part of `resource`.
    ///
    /// # Errors
    /// `ContractViolated`: a field has another type than the contract says.
    pub fn of<R: ComponentResource>(resource: &R) -> Result<Self, Failure> {
        let violated = |_| Failure::new(Reason::ContractViolated, "the component cannot be written as JSON");
        Self::of_value(&serde_json::to_value(resource).map_err(violated)?)
    }

    /// Reads the contract's part of an object of any kind, given without its metadata or as a whole.
    pub(crate) fn of_value(object: &serde_json::Value) -> Result<Self, Failure> {
        let parts = Parts::deserialize(object).map_err(|_| {
            let message = format!("a field of the component is {}", unreadable_fields::<Parts>(object));
            Failure::new(Reason::ContractViolated, message)
        })?;
        let whole_status = parts.status.unwrap_or_default();
        // What an earlier reconciler reported may be of any form and must not stop this one.
        let status = serde_json::from_value(whole_status.clone().into()).unwrap_or_default();
        Ok(Self { spec: parts.spec, status, whole_status })
    }

    /// What a person asks for by the annotation `component.kyma-project.io/reconcile-requested-at`, unless it was
    /// followed.
    pub fn request<'a, R: ComponentResource>(&self, resource: &'a R) -> Option<&'a str> {
        let asked = resource.annotations().get(annotations::RECONCILE_REQUESTED_AT)?;
        (self.status.last_handled_reconcile_at.as_ref() != Some(asked)).then_some(asked)
    }

    /// Whether another version is wanted than the one that is on the target.
    pub fn is_upgrade(&self) -> bool {
        let wanted = self.spec.module.as_ref().map(|module| module.version.as_str());
        wanted.zip(self.status.version.as_deref()).is_some_and(|(wanted, held)| wanted != held)
    }
}

/// What the deletion of a component means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The finalizer goes and nothing on the target is touched.
    Orphan,
    /// The module is removed from the target; kyma-operator ordered it.
    Ordered(DeletionOrder),
    /// A component that nobody manages: removed unless its namespace or CRD is going too, which has to be asked
    /// first.
    Standalone,
    /// `Delete` without a valid order on a managed component: no order, so everything stays.
    Unproven,
}

/// Reads the order from a component that is being deleted. Pure.
///
/// Managed is a component with an owner reference to a Kyma or the label `kyma-name`; its order must name the uid
/// of the Kyma that owns it.
pub fn deletion<R: ComponentResource>(resource: &R, policy: DeletionPolicy) -> Deletion {
    if policy == DeletionPolicy::Orphan {
        return Deletion::Orphan;
    }
    let owners = resource.owner_references();
    let kyma = kyma_owner(owners);
    let order = DeletionOrder::from_annotations(resource.annotations());
    match (kyma, order) {
        (Some(kyma), Some(order)) if kyma.uid == order.kyma_uid => Deletion::Ordered(order),
        (None, None) if !resource.labels().contains_key(labels::KYMA_NAME) => Deletion::Standalone,
        _ => Deletion::Unproven,
    }
}

/// Whether nothing is to be done: the label `skip-reconciliation`, or `spec.suspend`. A deletion goes on.
pub fn is_suspended<R: ComponentResource>(resource: &R, spec: &ComponentSpec) -> bool {
    spec.suspend || is_true(resource.labels(), labels::SKIP_RECONCILIATION)
}

fn is_true(map: &BTreeMap<String, String>, key: &str) -> bool {
    map.get(key).is_some_and(|value| value == "true")
}

/// Whether the contract's finalizer is on `resource`.
pub fn has_finalizer<R: ComponentResource>(resource: &R) -> bool {
    resource.finalizers().iter().any(|one| one == finalizers::COMPONENT)
}

#[cfg(test)]
mod tests {
    use kube::CustomResource;
    use kyma_api::component::DeletionReason;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Clone, Debug, CustomResource, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "test.io", version = "v1", kind = "Thing", namespaced, status = "ComponentStatus")]
    struct ThingSpec {
        #[serde(flatten)]
        component: ComponentSpec,
    }

    fn thing(metadata: &Value, spec: &Value, status: &Value) -> Thing {
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn owned(order: Option<&str>) -> Thing {
        let order = order.map(|uid| DeletionOrder {
            reason: DeletionReason::Disabled,
            kyma_uid: uid.to_owned(),
            kyma_generation: 3,
        });
        let annotations = order.map(|order| order.to_annotations()).unwrap_or_default();
        let owner = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "name": "k", "uid": "u"});
        thing(
            &json!({"name": "a", "ownerReferences": [owner], "annotations": annotations}),
            &json!({}),
            &json!({}),
        )
    }

    #[test]
    fn another_version_over_one_that_is_there_is_an_upgrade() {
        let is_upgrade = |wanted: &Value, held: &Value| {
            let thing =
                thing(&json!({"name": "a"}), &json!({ "module": wanted }), &json!({ "version": held }));
            Contract::of(&thing).unwrap().is_upgrade()
        };
        let module = |version: &str| json!({"name": "m", "version": version});
        assert!(
            is_upgrade(&module("1.1.0"), &json!("1.0.0")) && is_upgrade(&module("1.0.0"), &json!("1.1.0"))
        );
        assert!(!is_upgrade(&module("1.0.0"), &json!("1.0.0")));
        assert!(!is_upgrade(&module("1.0.0"), &Value::Null), "the first installation");
        assert!(!is_upgrade(&Value::Null, &json!("1.0.0")), "made by hand, it has no version");
    }

    #[test]
    fn violation_of_the_contract_names_fields_and_no_values() {
        let object =
            json!({"spec": {"module": "hunter2", "target": {"kubeconfigSecretRef": {"name": ["hunter2"]}}}});
        let failure = Contract::of_value(&object).unwrap_err();
        assert_eq!(failure.reason, Reason::ContractViolated);
        assert!(failure.message.contains("spec.module, spec.target"), "{failure}");
        assert!(!failure.message.contains("hunter2"), "{failure}");
    }

    #[test]
    fn only_the_owning_kyma_can_order_a_removal() {
        assert!(matches!(deletion(&owned(Some("u")), DeletionPolicy::Delete), Deletion::Ordered(_)));
        assert_eq!(deletion(&owned(Some("another")), DeletionPolicy::Delete), Deletion::Unproven);
        assert_eq!(deletion(&owned(None), DeletionPolicy::Delete), Deletion::Unproven);
        assert_eq!(deletion(&owned(Some("u")), DeletionPolicy::Orphan), Deletion::Orphan);
    }

    #[test]
    fn a_component_that_lost_its_owner_is_not_taken_for_a_standalone_one() {
        let labelled = json!({"name": "a", "labels": {labels::KYMA_NAME: "k"}});
        let labelled = thing(&labelled, &json!({}), &json!({}));
        assert_eq!(deletion(&labelled, DeletionPolicy::Delete), Deletion::Unproven);
        let order = owned(Some("u")).metadata.annotations;
        let with_order = thing(&json!({"name": "a", "annotations": order}), &json!({}), &json!({}));
        assert_eq!(deletion(&with_order, DeletionPolicy::Delete), Deletion::Unproven);
        let alone = thing(&json!({"name": "a"}), &json!({}), &json!({}));
        assert_eq!(deletion(&alone, DeletionPolicy::Delete), Deletion::Standalone);
    }

    #[test]
    fn orphan_is_what_nothing_said_means() {
        let contract = Contract::of(&thing(&json!({"name": "a"}), &json!({}), &json!({}))).unwrap();
        assert_eq!(contract.spec.deletion_policy, DeletionPolicy::Orphan);
        assert_eq!(contract.spec.target.kubeconfig_secret_ref, None);
    }

    #[test]
    fn suspension_comes_by_field_or_label() {
        let by_field = thing(&json!({"name": "a"}), &json!({"suspend": true}), &json!({}));
        let label = json!({"name": "a", "labels": {labels::SKIP_RECONCILIATION: "true"}});
        let by_label = thing(&label, &json!({}), &json!({}));
        let neither = thing(&json!({"name": "a"}), &json!({}), &json!({}));
        let suspended = |thing: &Thing| is_suspended(thing, &Contract::of(thing).unwrap().spec);
        assert!(suspended(&by_field) && suspended(&by_label) && !suspended(&neither));
    }
}
