//! A component, reduced to the fields that kyma-operator reads.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DynamicObject, ObjectMeta};
use kyma_api::condition::types;
use kyma_api::{
    DeletionPolicy, PartialMeta, ReadyView, Reason, ResourcePolicy, State, TrackedObject, annotations,
    finalizers, kyma_owner, labels, names,
};
use kyma_connection::owned_fields;
use kyma_controller::{KymaKey, ResourceVersion};
use serde::Deserialize;
use serde_json::Value;

use super::{ComponentId, ComponentKind, TemplateRecord};
use crate::FIELD_MANAGER;
use crate::hub::config::{self, ConfigUids};

/// Value of [`annotations::UPGRADE_MODE`].
pub(crate) const MANUAL_UPGRADE_MODE: &str = "Manual";

/// The fields of a component that kyma-operator reads.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with its own source")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ComponentView {
    /// API version and kind under which it was read.
    pub(crate) kind: ComponentKind,
    /// Namespace.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
    /// Its uid.
    pub(crate) uid: String,
    /// Its resourceVersion.
    pub(crate) resource_version: ResourceVersion,
    /// Generation of its spec.
    pub(crate) generation: i64,
    /// Generation that its reconciler has observed.
    pub(crate) observed_generation: Option<i64>,
    /// Generation that its reconciler last tried to apply to the target, if reported. A halted reconciler only
    /// observes generations.
    pub(crate) acted_on: Option<i64>,
    /// The Kyma it belongs to.
    pub(crate) kyma: KymaKey,
    /// uid of that Kyma by the owner reference; `None` if the reference was removed, for example by deleting the Kyma
    /// with `--cascade=orphan`.
    pub(crate) owner: Option<String>,
    /// The module it installs, by `spec.module.name`.
    pub(crate) module: String,
    /// State that its reconciler reports.
    pub(crate) state: Option<State>,
    /// Its `Ready` condition.
    pub(crate) ready: Option<ReadyView>,
    /// Version that its reconciler reports.
    pub(crate) running: Option<String>,
    /// Requested version: `spec.module.version`.
    pub(crate) desired_version: Option<String>,
    /// Channel of the requested version.
    pub(crate) channel: Option<String>,
    /// Access Secret of its target.
    pub(crate) secret: Option<String>,
    /// Whether the module is mandatory.
    pub(crate) mandatory: bool,
    /// The existing default CR that the component's reconciler reports.
    pub(crate) default_resource: Option<TrackedObject>,
    /// Default-CR policy in its spec.
    pub(crate) resource_policy: ResourcePolicy,
    /// Deletion policy in its spec: whether a removal was requested.
    pub(crate) deletion_policy: DeletionPolicy,
    /// Whether it has a deletionTimestamp.
    pub(crate) terminating: bool,
    /// Finalizers of other controllers that remain after its reconciler removed its own.
    pub(crate) held_by: Vec<String>,
    /// Time of kyma-operator's last apply.
    pub(crate) applied_at: Option<Timestamp>,
    /// Whether the module's default CR was created, by its reconciler or for an earlier component.
    pub(crate) default_resource_created: bool,
    /// Whether its spec records that the default CR was created for an earlier component.
    pub(crate) default_resource_passed_on: bool,
    /// The ModuleTemplate that it was made from.
    pub(crate) template: Option<TemplateRecord>,
    /// Whether upgrades need the user's approval.
    pub(crate) is_manual: bool,
    /// ModuleConfigs in force when it was written.
    pub(crate) configs: ConfigUids,
    /// When the component was created.
    pub(crate) created: Option<Timestamp>,
    /// Fingerprint of the fields that kyma-operator owns.
    pub(crate) owned_fingerprint: Option<String>,
}

impl ComponentView {
    /// Reduces a component. Returns `None` if it belongs to no Kyma or lacks a required field.
    pub(crate) fn of(kind: &ComponentKind, object: &DynamicObject) -> Option<Self> {
        let meta = &object.metadata;
        let contract = kyma_api::ComponentView::of(object);
        let text = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let is_mandatory = meta.labels.as_ref().and_then(|set| set.get(labels::MANDATORY_MODULE));
        let policy = object.data.pointer("/spec/resourcePolicy");
        let module = text("/spec/module/name").or(contract.module)?;
        let (kyma, owner) = match owner_of(object) {
            Some(owner) => (owner.name.clone(), Some(owner.uid.clone())),
            None => (by_label(object, &contract.name, &module)?, None),
        };
        Some(Self {
            kind: kind.clone(),
            kyma: KymaKey::new(&contract.namespace, kyma),
            owner,
            module,
            resource_version: ResourceVersion::parse(&contract.resource_version?)?,
            generation: contract.generation,
            observed_generation: contract.observed_generation,
            acted_on: acted_on(object),
            state: contract.state.filter(|state| *state != State::Unset),
            ready: contract.ready,
            running: contract.version.filter(|version| !version.is_empty()),
            desired_version: contract.wanted_version,
            channel: text("/spec/module/channel"),
            secret: text("/spec/target/kubeconfigSecretRef/name"),
            mandatory: is_mandatory.is_some_and(|value| value == "true"),
            default_resource: default_resource(object),
            resource_policy: policy
                .and_then(|policy| ResourcePolicy::deserialize(policy).ok())
                .unwrap_or_default(),
            deletion_policy: contract.deletion_policy,
            terminating: contract.deletion_timestamp.is_some(),
            held_by: held_by(object),
            applied_at: owned_fields::applied_at(meta, FIELD_MANAGER),
            default_resource_created: has_default_resource(object) || is_passed_on(meta),
            default_resource_passed_on: is_passed_on(meta),
            template: TemplateRecord::read(meta),
            is_manual: is_manual(meta),
            configs: config::read_record(meta),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            owned_fingerprint: owned_fields::fingerprint(object, FIELD_MANAGER),
            namespace: contract.namespace,
            name: contract.name,
            uid: contract.uid,
        })
    }

    /// Returns the message about what the removal waits for.
    pub(crate) fn removal_message(&self) -> Option<String> {
        if !self.held_by.is_empty() {
            let others = self.held_by.join(", ");
            return Some(format!(
                "waiting as other finalizers are present on component {}: {others}",
                self.name
            ));
        }
        self.ready.as_ref().map(|ready| ready.message.clone()).filter(|message| !message.is_empty())
    }

    /// Returns the component's id.
    pub(crate) fn id(&self) -> ComponentId {
        ComponentId {
            group: self.kind.group().to_owned(),
            kind: self.kind.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// Reports whether its reconciler has observed the current spec.
    pub(crate) fn is_observed(&self) -> bool {
        self.observed_generation.is_some_and(|observed| observed >= self.generation)
    }

    /// Returns the Ready condition if a Pause or `suspend` stopped the reconciler before it applied the requested
    /// version or another change. The reported state is then that of the running version.
    pub(crate) fn pause_condition(&self) -> Option<&ReadyView> {
        let ready = self.ready.as_ref().filter(|ready| ready.status == "Unknown" && self.is_observed())?;
        let desired = self.desired_version.as_ref()?;
        let waits = match &self.running {
            Some(running) => running != desired || self.has_changed(ready),
            // The module was never installed, or its reconciler does not report versions.
            None => self.state != Some(State::Ready),
        };
        waits.then_some(ready)
    }

    /// Reports whether the spec, apart from `suspend`, changed since the reconciler acted on it. Changes made
    /// together with `suspend`, or while the target was unreachable, are not detected.
    fn has_changed(&self, ready: &ReadyView) -> bool {
        let stops = i64::from(ready.reason == Reason::Suspended.as_str());
        self.acted_on.is_some_and(|acted_on| self.generation.saturating_sub(acted_on) > stops)
    }

    /// Reports whether both are equal in all fields that a decision or a status reads.
    pub(crate) fn same_but_resource_version(&self, other: &Self) -> bool {
        let resource_version = ResourceVersion::default();
        Self { resource_version, ..self.clone() } == Self { resource_version, ..other.clone() }
    }
}

/// Reads `status.resource` of the contract: the default CR, unless the status reports it as absent.
fn default_resource(object: &DynamicObject) -> Option<TrackedObject> {
    let reported = object.data.pointer("/status/resource")?;
    if reported["absent"].as_bool() == Some(true) {
        return None;
    }
    let text = |field: &str| reported[field].as_str().map(str::to_owned);
    let metadata = PartialMeta { name: Some(text("name")?), namespace: text("namespace"), generation: None };
    Some(TrackedObject {
        api_version: Some(text("apiVersion")?),
        kind: Some(text("kind")?),
        metadata: Some(metadata),
    })
}

/// Returns the observedGeneration of the condition that every pass sets which opens the target or tries to. A halted
/// pass does not set it.
fn acted_on(object: &DynamicObject) -> Option<i64> {
    let conditions = object.data.pointer("/status/conditions")?.as_array()?;
    let mut conditions = conditions.iter();
    let set = conditions.find(|one| one["type"].as_str() == Some(types::TARGET_REACHABLE))?;
    set["observedGeneration"].as_i64()
}

fn held_by(object: &DynamicObject) -> Vec<String> {
    let all = object.metadata.finalizers.clone().unwrap_or_default();
    let is_done = object.metadata.deletion_timestamp.is_some()
        && !all.iter().any(|finalizer| finalizer == finalizers::COMPONENT);
    if is_done { all } else { Vec::new() }
}

/// Returns the Kyma's controller reference. Unlike a label it holds names of any length.
fn owner_of(object: &DynamicObject) -> Option<&OwnerReference> {
    kyma_owner(object.metadata.owner_references.as_deref()?)
}

fn is_manual(meta: &ObjectMeta) -> bool {
    let mode = meta.annotations.as_ref().and_then(|set| set.get(annotations::UPGRADE_MODE));
    mode.is_some_and(|mode| mode == MANUAL_UPGRADE_MODE)
}

fn has_default_resource(object: &DynamicObject) -> bool {
    object.data.pointer("/status/resource").is_some_and(Value::is_object)
}

fn is_passed_on(meta: &ObjectMeta) -> bool {
    let annotated = meta.annotations.as_ref().and_then(|set| set.get(annotations::DEFAULT_RESOURCE_CREATED));
    annotated.is_some_and(|value| value == "true")
}

/// Returns the Kyma's name from the label if the component's name is the one made for this Kyma and module.
fn by_label(object: &DynamicObject, name: &str, module: &str) -> Option<String> {
    let kyma = object.metadata.labels.as_ref()?.get(labels::KYMA_NAME)?;
    (names::component_name(kyma, module) == name).then(|| kyma.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_component_that_lost_its_owner_is_found_by_label_and_name() {
        let kyma = |name: &str| {
            let object = json!({
                "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
                "metadata": {
                    "name": name, "namespace": "n", "uid": "u", "resourceVersion": "1",
                    "labels": {"operator.kyma-project.io/kyma-name": "sample"},
                },
                "spec": {"module": {"name": "keda", "version": "1.0.0"}},
            });
            let view = ComponentView::of(&ComponentKind::helm(), &serde_json::from_value(object).unwrap());
            view.map(|view| (view.kyma.name, view.owner))
        };
        assert_eq!(kyma(&names::component_name("sample", "keda")), Some(("sample".to_owned(), None)));
        assert_eq!(kyma("made-by-hand"), None);
    }
}
