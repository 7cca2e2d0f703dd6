//! State of one Kyma from which a hand-over is decided. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::{ResourceExt as _, core::Object};
use kyma_api::{
    FreeForm, HelmComponent, Kyma, Manager, ResourcePolicy, SecretKeyRef, annotations,
    condition::{self, types},
    klm, labels,
};
use kyma_object_set::{Identity, drift::fingerprint};
use serde::Deserialize;
use serde_json::Value;

use super::lease::KlmState;

/// Field manager of helm-component on targets.
pub(super) const COMPONENT_MANAGER: &str = <helm_component::HelmComponents as kyma_sdk::Component>::NAME;

/// The fields of a Kyma Lifecycle Manager (KLM) Manifest that kymactl reads.
pub(super) type Manifest = Object<ManifestSpec, ManifestStatus>;

/// Content that KLM installs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ManifestSpec {
    pub(super) version: Option<String>,
    pub(super) custom_resource_policy: ResourcePolicy,
    /// The default CR.
    pub(super) resource: Option<FreeForm>,
    pub(super) manager: Option<Manager>,
    install: Install,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Install {
    source: FreeForm,
}

/// Content that KLM installed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ManifestStatus {
    pub(super) synced: Vec<SyncedObject>,
    pub(super) conditions: Vec<Condition>,
}

/// An object that KLM applied.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SyncedObject {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl SyncedObject {
    pub(super) fn identity(&self) -> Identity {
        let namespace = Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        Identity::new(&self.group, &self.kind, namespace, &self.name)
    }
}

/// One module of the Kyma, with its Manifest and its component.
#[derive(Clone, Debug, Default)]
pub(super) struct Module {
    pub(super) manifest: Option<Manifest>,
    /// The Manifest's stored status.
    pub(super) manifest_status: Value,
    pub(super) component: Option<HelmComponent>,
    /// The component kind of its ModuleTemplate, if it is not the base kind.
    pub(super) own_kind: Option<String>,
}

/// State of one Kyma.
#[derive(Clone, Debug)]
pub(super) struct MigrationState {
    pub(super) kyma: Kyma,
    /// The Kyma's stored status.
    pub(super) status: Value,
    /// Whether KLM runs.
    pub(super) klm: KlmState,
    pub(super) modules: BTreeMap<String, Module>,
    /// Manifests that cannot be assigned to a module.
    pub(super) strays: Vec<String>,
    /// Name and uid of Manifests that kyma-operator created as copies of components.
    pub(super) mirrors: Vec<(String, String)>,
    /// The access Secret, or the reason why there is none.
    pub(super) access: Result<SecretKeyRef, String>,
    /// The Kyma on the target.
    pub(super) target_kyma: Identity,
    /// Metadata of the existing objects.
    pub(super) target: BTreeMap<Identity, ObjectMeta>,
}

/// Returns the value of the hand-over label.
pub(super) fn hand_over(meta: &ObjectMeta) -> Option<&str> {
    meta.labels.as_ref()?.get(labels::HAND_OVER).map(String::as_str)
}

/// Reports whether KLM skips the object.
pub(super) fn is_skipped(meta: &ObjectMeta) -> bool {
    meta.labels.as_ref().and_then(|all| all.get(labels::SKIP_RECONCILIATION)).is_some_and(|it| it == "true")
}

/// Reports whether the object has fields from a server-side apply of this manager.
pub(super) fn is_applied_by(meta: &ObjectMeta, manager: &str) -> bool {
    !fingerprint(meta, manager).is_empty()
}

/// Reports whether the object's state before the hand-over is recorded.
pub(super) fn is_noted(meta: &ObjectMeta) -> bool {
    meta.annotations.as_ref().is_some_and(|all| all.contains_key(annotations::BEFORE_HAND_OVER))
}

impl Module {
    /// Returns all objects on the target that Manifest or component lists. Unreadable lists are skipped here and are
    /// obstacles in both directions.
    pub(super) fn objects(&self) -> Vec<(Identity, String)> {
        let synced = self.manifest.iter().flat_map(ReadManifest::synced);
        let synced = synced.map(|object| (object.identity(), object.version.clone()));
        let status = self.component.iter().filter_map(|component| component.status.as_ref());
        let inventory = status.filter_map(|status| status.entries().ok()).flatten();
        let inventory = inventory.map(|entry| {
            let namespace = entry.namespace.as_deref();
            (Identity::new(&entry.group, &entry.kind, namespace, &entry.name), entry.version.clone())
        });
        synced.chain(inventory).collect::<BTreeMap<_, _>>().into_iter().collect()
    }
}

/// Read access to a Manifest.
pub(super) trait ReadManifest {
    /// Returns the name of the module.
    fn module(&self) -> Option<String>;
    /// Returns the name of the OCM component.
    fn ocm_component(&self) -> Option<String>;
    /// Returns the objects that KLM applied.
    fn synced(&self) -> &[SyncedObject];
    /// Reports whether the applied content is that of `spec`.
    fn is_settled(&self) -> bool;
    /// Reports whether KLM has created the default CR, which is then never created again.
    fn has_made_default_cr(&self) -> bool;
    /// Returns KLM's finalizers on the Manifest.
    fn klm_finalizers(&self) -> Vec<String>;
    /// Returns the default CR and its API version.
    fn default_cr(&self) -> Option<(Identity, String)>;
}

impl ReadManifest for Manifest {
    fn module(&self) -> Option<String> {
        self.labels().get(labels::MODULE_NAME).filter(|name| !name.is_empty()).cloned()
    }

    fn ocm_component(&self) -> Option<String> {
        self.annotations().get(annotations::OCM_COMPONENT_NAME).filter(|name| !name.is_empty()).cloned()
    }

    fn synced(&self) -> &[SyncedObject] {
        self.status.as_ref().map_or(&[], |status| &status.synced)
    }

    fn is_settled(&self) -> bool {
        let wanted = self.spec.install.source.get("ref").and_then(Value::as_str);
        wanted.is_none_or(|wanted| self.annotations().get(klm::SYNCED_REF).is_some_and(|held| held == wanted))
    }

    fn has_made_default_cr(&self) -> bool {
        let conditions = self.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        condition::is_true(conditions, klm::MODULE_CR)
    }

    fn klm_finalizers(&self) -> Vec<String> {
        let held = self.finalizers().iter();
        held.filter(|name| klm::MANIFEST_FINALIZERS.contains(&name.as_str())).cloned().collect()
    }

    fn default_cr(&self) -> Option<(Identity, String)> {
        let resource = self.spec.resource.as_ref()?;
        let version = resource.get("apiVersion")?.as_str()?;
        let metadata = resource.get("metadata")?;
        let namespace = metadata.get("namespace").and_then(Value::as_str);
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        let identity = Identity::new(
            group,
            resource.get("kind")?.as_str()?,
            namespace.filter(|namespace| !namespace.is_empty()),
            metadata.get("name")?.as_str()?,
        );
        Some((identity, version.to_owned()))
    }
}

/// Read access to a component.
pub(super) trait ReadComponent {
    /// Reports whether its status has the inventory.
    fn is_seeded(&self) -> bool;
    /// Reports whether all of its objects are applied.
    fn is_applied(&self) -> bool;
    /// Reports whether its reconciler has stopped because of the label.
    fn has_stopped(&self) -> bool;
    /// Returns its state and message.
    fn says(&self) -> String;
}

impl ReadComponent for HelmComponent {
    fn is_seeded(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.has_entries() && status.version.is_some())
    }

    fn is_applied(&self) -> bool {
        let applied = condition(self, types::APPLIED);
        let is_current = |applied: &Condition| applied.observed_generation == self.metadata.generation;
        let applied = applied.is_some_and(|applied| applied.status == "True" && is_current(applied));
        applied && !self.has_stopped()
    }

    fn has_stopped(&self) -> bool {
        let skipped = kyma_api::Reason::SkipReconciliation.as_str();
        condition(self, types::READY).is_some_and(|ready| ready.reason == skipped)
    }

    fn says(&self) -> String {
        match condition(self, types::READY) {
            Some(ready) => format!("{}: {}", ready.reason, ready.message),
            None => "nothing yet: is helm-component running?".to_owned(),
        }
    }
}

fn condition<'a>(component: &'a HelmComponent, type_: &str) -> Option<&'a Condition> {
    condition::get(component.status.as_ref()?.conditions.as_deref()?, type_)
}
