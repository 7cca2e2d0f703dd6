//! The component contract as types, for new kinds and for reading any kind that satisfies it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResourceExt, ResourceExt};
use kyma_api::{
    CreatedResource, DeletionPolicy, Dependency, FreeForm, GroupKind, Manager, ModuleRef, Reason,
    ResourcePolicy, State, TargetRef, annotations, component::DeletionOrder, finalizers, kyma_owner, labels,
};
use kyma_controller::default_resource::RESOURCE;
use kyma_controller::{Failure, HubResource, unreadable_fields};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Status field with the last handled request.
pub(crate) const HANDLED: &str = "lastHandledReconcileAt";

/// A kind that can be a component: namespaced, with the fields of [`crate::ComponentSpec`] in its spec and those
/// of [`crate::ComponentStatus`] in its status. Implemented for every custom resource; the fields are checked when
/// the program starts ([`kyma_api::component::check`]).
pub trait ComponentResource: HubResource + CustomResourceExt + Serialize {}

impl<T: HubResource + CustomResourceExt + Serialize> ComponentResource for T {}

/// Fields that kyma-operator writes into `spec` of every component. Flatten it into your own spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentSpec {
    /// Target cluster.
    #[serde(default)]
    pub target: TargetRef,
    /// Module to install. Absent for a component without a Kyma.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<ModuleRef>,
    /// The user's values for the module, from the Kyma.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub user_values: Option<FreeForm>,
    /// Central values; they take precedence over the user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub overrides: Option<FreeForm>,
    /// Dependencies. A missing kind delays only objects of that kind; a module or component that is not ready
    /// delays the whole module.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub depends_on: Vec<Dependency>,
    /// The module's default CR, from the ModuleTemplate. It is created once, and belongs to the user from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub resource: Option<FreeForm>,
    /// Workload whose readiness determines the module's state, from the ModuleTemplate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Manager>,
    /// Kinds whose objects on the target block the removal, besides those of the component itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub managed_resources: Vec<GroupKind>,
    /// Policy for the module's default CR.
    #[serde(default)]
    pub resource_policy: ResourcePolicy,
    /// Effect of this object's deletion on the target: Orphan (the default) leaves everything there.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// True suspends reconciliation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

/// Fields that every component reports in `status`. Flatten it into your own status, or use it as it is.
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
    /// Generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Installed version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Value of the annotation `component.kyma-project.io/reconcile-requested-at` in the last handled request. A
    /// kind without this field does not support requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The default CR, once it was created or found. It is not created again. A kind without this field gets none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<CreatedResource>,
}

fn free_form(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-map-type": "atomic",
    })
}

/// A component of any kind, reduced to the contract.
///
/// ```
/// use kyma_sdk::api::{DeletionPolicy, HelmComponent};
/// use kyma_sdk::{Contract, Failure};
/// use serde_json::json;
///
/// let component: HelmComponent = serde_json::from_value(json!({
///     "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
///     "metadata": {"name": "greeting"},
///     "spec": {"source": {"manifests": {"url": "https://example.org/greeting.yaml"}}, "suspend": true},
/// }))
/// .unwrap();
/// let contract = Contract::of(&component)?;
/// assert!(contract.spec.suspend);
/// assert_eq!(contract.spec.deletion_policy, DeletionPolicy::Orphan);
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contract {
    /// Contract fields of the spec.
    pub spec: ComponentSpec,
    /// Contract fields of the status.
    pub status: ComponentStatus,
    /// The complete status as last reported.
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
    /// Reads the contract fields of `resource`.
    ///
    /// # Errors
    /// `ContractViolated`: a field has another type than in the contract.
    pub fn of<R: ComponentResource>(resource: &R) -> Result<Self, Failure> {
        let violated = |_| Failure::new(Reason::ContractViolated, "the component cannot be written as JSON");
        Self::of_value(&serde_json::to_value(resource).map_err(violated)?)
    }

    /// Reads the contract fields of an object of any kind, with or without its metadata.
    pub(crate) fn of_value(object: &serde_json::Value) -> Result<Self, Failure> {
        let parts = Parts::deserialize(object).map_err(|_| {
            let message = format!("a field of the component is {}", unreadable_fields::<Parts>(object));
            Failure::new(Reason::ContractViolated, message)
        })?;
        let whole_status = parts.status.unwrap_or_default();
        // The status of an earlier reconciler may have any form and must not stop this one.
        let mut readable = whole_status.clone();
        readable.retain(|field, value| field != RESOURCE || CreatedResource::deserialize(&*value).is_ok());
        let status = serde_json::from_value(readable.into()).unwrap_or_default();
        Ok(Self { spec: parts.spec, status, whole_status })
    }

    /// Returns the request in the annotation `component.kyma-project.io/reconcile-requested-at`, unless it was
    /// handled.
    pub fn request<'a, R: ComponentResource>(&self, resource: &'a R) -> Option<&'a str> {
        let asked = resource.annotations().get(annotations::RECONCILE_REQUESTED_AT)?;
        (self.status.last_handled_reconcile_at.as_ref() != Some(asked)).then_some(asked)
    }

    /// Returns whether the desired version differs from the installed one.
    pub fn is_upgrade(&self) -> bool {
        let wanted = self.spec.module.as_ref().map(|module| module.version.as_str());
        wanted.zip(self.status.version.as_deref()).is_some_and(|(wanted, held)| wanted != held)
    }
}

/// Effect of a component's deletion on its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeletionEffect {
    /// Only the finalizer is removed; everything on the target stays.
    Orphan,
    /// The module is removed from the target, as kyma-operator requested.
    Requested,
    /// A component without a Kyma: the module is removed, unless the namespace or CRD is being deleted too, which
    /// the caller has to check first.
    Standalone,
    /// `Delete` on a managed component without a valid deletion request: everything stays.
    Unproven,
}

/// Returns the effect of the deletion of a component. Pure.
///
/// A component is managed if it has an owner reference to a Kyma or the label `kyma-name`; its deletion request
/// must name the uid of the Kyma that owns it.
pub(crate) fn deletion_effect<R: ComponentResource>(resource: &R, policy: DeletionPolicy) -> DeletionEffect {
    if policy == DeletionPolicy::Orphan {
        return DeletionEffect::Orphan;
    }
    let owners = resource.owner_references();
    let kyma = kyma_owner(owners);
    let order = DeletionOrder::from_annotations(resource.annotations());
    match (kyma, order) {
        (Some(kyma), Some(order)) if kyma.uid == order.kyma_uid => DeletionEffect::Requested,
        (None, None) if !resource.labels().contains_key(labels::KYMA_NAME) => DeletionEffect::Standalone,
        _ => DeletionEffect::Unproven,
    }
}

/// Returns whether reconciliation is suspended, by the label `skip-reconciliation` or `spec.suspend`. A deletion is
/// still carried out.
pub(crate) fn is_suspended<R: ComponentResource>(resource: &R, spec: &ComponentSpec) -> bool {
    spec.suspend || is_true(resource.labels(), labels::SKIP_RECONCILIATION)
}

fn is_true(map: &BTreeMap<String, String>, key: &str) -> bool {
    map.get(key).is_some_and(|value| value == "true")
}

/// Returns whether `resource` has the contract's finalizer.
pub(crate) fn has_finalizer<R: ComponentResource>(resource: &R) -> bool {
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
    fn an_unreadable_default_resource_hides_no_other_field() {
        let status = json!({"version": "1.0.0", "resource": "of another form"});
        let contract = Contract::of_value(&json!({"spec": {}, "status": status})).unwrap();
        assert_eq!(contract.status.version.as_deref(), Some("1.0.0"));
        assert_eq!(contract.status.resource, None);
        assert_eq!(contract.whole_status["resource"], "of another form");
    }

    #[test]
    fn only_the_owning_kyma_can_order_a_removal() {
        assert_eq!(deletion_effect(&owned(Some("u")), DeletionPolicy::Delete), DeletionEffect::Requested);
        assert_eq!(
            deletion_effect(&owned(Some("another")), DeletionPolicy::Delete),
            DeletionEffect::Unproven
        );
        assert_eq!(deletion_effect(&owned(None), DeletionPolicy::Delete), DeletionEffect::Unproven);
        assert_eq!(deletion_effect(&owned(Some("u")), DeletionPolicy::Orphan), DeletionEffect::Orphan);
    }

    #[test]
    fn component_that_lost_its_owner_does_not_count_as_standalone() {
        let labelled = json!({"name": "a", "labels": {labels::KYMA_NAME: "k"}});
        let labelled = thing(&labelled, &json!({}), &json!({}));
        assert_eq!(deletion_effect(&labelled, DeletionPolicy::Delete), DeletionEffect::Unproven);
        let order = owned(Some("u")).metadata.annotations;
        let with_order = thing(&json!({"name": "a", "annotations": order}), &json!({}), &json!({}));
        assert_eq!(deletion_effect(&with_order, DeletionPolicy::Delete), DeletionEffect::Unproven);
        let alone = thing(&json!({"name": "a"}), &json!({}), &json!({}));
        assert_eq!(deletion_effect(&alone, DeletionPolicy::Delete), DeletionEffect::Standalone);
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
