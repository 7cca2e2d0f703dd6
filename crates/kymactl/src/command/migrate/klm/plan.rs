//! Decides the next step of a hand-over from the state of hub and target only, so that an interrupted run can be
//! continued. Pure.

use std::fmt;

use kube::ResourceExt as _;
use kyma_api::{hand_over::klm_entry, klm, labels, limits};
use kyma_object_set::Identity;

use super::facts::{
    COMPONENT_MANAGER, Manifest, MigrationState, Module, ReadComponent as _, ReadManifest as _, hand_over,
    is_applied_by, is_noted, is_skipped,
};
use super::{component, lease::KlmState, note};

/// Maximum size of a record on an object, in bytes; the API limits all annotations to 256 KiB.
const MAX_NOTE_BYTES: usize = 200 << 10;

/// A step, in the order of execution; those of modules name the module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HandOverStep {
    /// Record the Kyma and its Manifests, and label them, so that all operators stop.
    RecordAndLabel,
    /// Create a component whose reconciler is stopped.
    CreateComponent(String),
    /// Write the inventory to its status.
    WriteInventory(String),
    /// Start its reconciler.
    StartReconciler(String),
    /// Wait until it has applied its objects.
    AwaitApplied(String),
    /// Report that the target differs from the inventory.
    ReportDifferences(String, Vec<String>),
    /// Remove KLM's finalizers from the Manifest.
    RemoveFinalizers(String),
    /// Start the operators for the Kyma.
    StartOperators,
    /// Wait until kyma-operator has reported on the Kyma.
    AwaitReport,
    /// Remove fields that only KLM writes from the Kyma's status.
    CleanStatus,
    /// Remove KLM's finalizers from a terminating Manifest, after its module is removed.
    RemoveLastFinalizers(String),
    /// Nothing is left.
    Done,
}

impl fmt::Display for HandOverStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecordAndLabel => f.write_str("record the current state, and label the objects"),
            Self::CreateComponent(module) => {
                write!(f, "{module}: create the component, without reconciling it")
            }
            Self::WriteInventory(module) => {
                write!(f, "{module}: write the installed objects into the component's status")
            }
            Self::StartReconciler(module) => write!(f, "{module}: start the reconciliation of the component"),
            Self::AwaitApplied(module) => write!(f, "{module}: wait until the component owns its objects"),
            Self::ReportDifferences(module, _) => {
                write!(f, "{module}: the target differs from the inventory")
            }
            Self::RemoveFinalizers(module) => {
                write!(f, "{module}: the target equals the inventory; remove KLM's finalizers")
            }
            Self::StartOperators => f.write_str("start the operators' work on the Kyma"),
            Self::AwaitReport => f.write_str("wait until kyma-operator has reported"),
            Self::CleanStatus => f.write_str("remove the status fields that only KLM writes"),
            Self::RemoveLastFinalizers(module) => {
                write!(f, "{module}: it is removed; remove KLM's finalizers")
            }
            Self::Done => f.write_str("done"),
        }
    }
}

/// Returns the obstacles to a hand-over; each names its module.
pub(super) fn obstacles(facts: &MigrationState) -> Vec<String> {
    if hand_over(&facts.kyma.metadata) == Some(labels::HAND_OVER_DONE) || is_ours(facts) {
        return Vec::new();
    }
    let mut found = Vec::new();
    if facts.kyma.metadata.deletion_timestamp.is_some() {
        found.push("the Kyma is being deleted: let KLM finish the deletion".to_owned());
    }
    found.extend(klm_obstacle(facts).filter(|_| !is_marked_by_hand(facts)));
    if let Err(why) = &facts.access {
        found.push(why.clone());
    }
    found.extend(facts.strays.iter().cloned());
    if note::text(&note::of_kyma(facts)).len() > MAX_NOTE_BYTES {
        found.push("the Kyma's status is too large for an annotation".to_owned());
    }
    let unmade = facts.modules.iter().filter(|(_, module)| module.component.is_none());
    let manifests = unmade.filter_map(|(name, module)| Some((name, module, module.manifest.as_ref()?)));
    for (name, module, manifest) in manifests {
        found.extend(obstacle(facts, module, manifest).map(|why| format!("module {name}: {why}")));
    }
    found
}

/// Reports whether KLM must be stopped for the hand-over.
pub(super) fn needs_klm_stopped(facts: &MigrationState) -> bool {
    let is_done = hand_over(&facts.kyma.metadata) == Some(labels::HAND_OVER_DONE) || is_ours(facts);
    !is_done && !is_marked_by_hand(facts)
}

/// Returns the obstacle that KLM's Lease shows.
fn klm_obstacle(facts: &MigrationState) -> Option<String> {
    let why = match facts.klm {
        KlmState::Stopped => return None,
        KlmState::Runs => format!("KLM renews its Lease {}: stop it", klm::LEASE),
        KlmState::Unknown => format!(
            "there is no Lease {}, which does not show that KLM is stopped: stop it and repeat with --klm-is-stopped",
            klm::LEASE
        ),
    };
    Some(format!(
        "{why}, or label the Kyma and all its Manifests {}=true and {}={}",
        labels::SKIP_RECONCILIATION,
        labels::HAND_OVER,
        labels::HAND_OVER_PENDING
    ))
}

/// Returns the obstacle to creating a component from a Manifest.
fn obstacle(facts: &MigrationState, module: &Module, manifest: &Manifest) -> Option<String> {
    if let Some(kind) = &module.own_kind {
        return Some(format!(
            "its ModuleTemplate names a component of kind {kind}, which KLM did not install"
        ));
    }
    if manifest.spec.version.is_none() || manifest.ocm_component().is_none() {
        return Some("its Manifest names no version or no OCM component".to_owned());
    }
    if manifest.annotations().get(kyma_api::annotations::IS_UNMANAGED).is_some_and(|value| value == "true") {
        return Some("KLM is ending its management: wait until its Manifest is deleted".to_owned());
    }
    if !manifest.is_settled() {
        return Some("KLM has not applied its Manifest yet: wait until it has".to_owned());
    }
    let synced = manifest.synced().iter().map(super::facts::SyncedObject::identity);
    let missing = synced.filter(|identity| !facts.target.contains_key(identity)).count();
    if manifest.metadata.deletion_timestamp.is_some() && missing > 0 {
        return Some("KLM is removing it: wait until its Manifest is deleted".to_owned());
    }
    let note = note::text(&note::of_manifest(manifest, &module.manifest_status)).len();
    let body = component::body(facts, "", manifest, true).unwrap_or_default();
    if note > MAX_NOTE_BYTES || !limits::fits(&body, limits::OBJECT_BYTES) {
        return Some("its Manifest is too large".to_owned());
    }
    None
}

/// Reports whether KLM has nothing to hand over.
fn is_ours(facts: &MigrationState) -> bool {
    let meta = &facts.kyma.metadata;
    let is_klms = hand_over(meta).is_some() || klm_entry(meta).is_some();
    !is_klms && facts.strays.is_empty() && manifests(facts).next().is_none()
}

/// Reports whether a user set both labels on the Kyma and its Manifests: KLM skips them although it runs.
fn is_marked_by_hand(facts: &MigrationState) -> bool {
    let mut all = manifests(facts).map(|(_, manifest)| &manifest.metadata);
    let is_marked = |meta| is_skipped(meta) && hand_over(meta).is_some();
    is_marked(&facts.kyma.metadata) && all.all(is_marked)
}

/// Reports whether everything is labelled and recorded.
fn is_marked(facts: &MigrationState) -> bool {
    is_marked_by_hand(facts)
        && is_noted(&facts.kyma.metadata)
        && manifests(facts).all(|(_, manifest)| is_noted(&manifest.metadata))
}

fn manifests(facts: &MigrationState) -> impl Iterator<Item = (&String, &Manifest)> {
    facts.modules.iter().filter_map(|(name, module)| Some((name, module.manifest.as_ref()?)))
}

/// Returns the next step if there are no obstacles.
pub(super) fn next(facts: &MigrationState) -> HandOverStep {
    if hand_over(&facts.kyma.metadata) == Some(labels::HAND_OVER_DONE) {
        return after(facts);
    }
    if is_ours(facts) {
        return HandOverStep::Done;
    }
    if !is_marked(facts) {
        return HandOverStep::RecordAndLabel;
    }
    let steps = facts.modules.iter().filter_map(|(name, module)| of_module(facts, name, module));
    steps.min().unwrap_or(HandOverStep::StartOperators)
}

/// Returns the next step of a module until it is fully handed over.
fn of_module(facts: &MigrationState, name: &str, module: &Module) -> Option<HandOverStep> {
    let manifest = module.manifest.as_ref()?;
    let is_handed_over = hand_over(&manifest.metadata) == Some(labels::HAND_OVER_DONE);
    let name = name.to_owned();
    let Some(component) = &module.component else {
        return (!is_handed_over).then_some(HandOverStep::CreateComponent(name));
    };
    let waits = is_skipped(&component.metadata);
    if waits && !component.is_seeded() {
        return Some(HandOverStep::WriteInventory(name));
    }
    if waits {
        return Some(HandOverStep::StartReconciler(name));
    }
    if !component.is_applied() {
        return Some(HandOverStep::AwaitApplied(name));
    }
    if is_handed_over {
        return None;
    }
    let problems = unverified(facts, module);
    Some(if problems.is_empty() {
        HandOverStep::RemoveFinalizers(name)
    } else {
        HandOverStep::ReportDifferences(name, problems)
    })
}

/// Returns the differences between the target and the inventory of an applied component.
fn unverified(facts: &MigrationState, module: &Module) -> Vec<String> {
    let status = module.component.as_ref().and_then(|component| component.status.as_ref());
    let inventory = match status.map(kyma_api::HelmComponentStatus::entries).transpose() {
        Ok(inventory) => inventory.unwrap_or_default(),
        Err(error) => return vec![error.to_string()],
    };
    let mut problems = Vec::new();
    for entry in inventory {
        let identity = Identity::new(&entry.group, &entry.kind, entry.namespace.as_deref(), &entry.name);
        let mut problem = |what: &str| problems.push(format!("{identity} {what}"));
        let Some(live) = facts.target.get(&identity) else {
            problem("does not exist");
            continue;
        };
        // Namespaces, and objects of other components, need not have these fields.
        let is_ours = identity.is_namespace()
            || (entry.fingerprint.is_empty() && !entry.hash.is_empty())
            || is_applied_by(live, COMPONENT_MANAGER);
        if live.uid.as_ref() != Some(&entry.uid) {
            problem("was replaced by another object");
        } else if !is_ours {
            problem("is not owned by the component");
        } else if is_applied_by(live, klm::APPLIER) && !entry.fingerprint.is_empty() {
            problem("is still owned by KLM too");
        }
    }
    problems
}

/// Returns the step after the operators were started.
fn after(facts: &MigrationState) -> HandOverStep {
    if klm_entry(&facts.kyma.metadata).is_some() {
        return if is_reported_by_us(&facts.kyma) {
            HandOverStep::CleanStatus
        } else {
            HandOverStep::AwaitReport
        };
    }
    let gone = manifests(facts).find(|(name, manifest)| {
        let is_held = manifest.metadata.deletion_timestamp.is_some() && !manifest.klm_finalizers().is_empty();
        is_held && facts.modules[*name].component.is_none() && remains(facts, manifest).is_empty()
    });
    gone.map_or(HandOverStep::Done, |(name, _)| HandOverStep::RemoveLastFinalizers(name.clone()))
}

/// Returns the remaining objects of a module that is being removed, without CRDs and Namespaces: those that existed
/// before stay.
pub(super) fn remains(facts: &MigrationState, manifest: &Manifest) -> Vec<String> {
    let objects = manifest.synced().iter().map(super::facts::SyncedObject::identity);
    let objects = objects.filter(|identity| !identity.is_crd() && !identity.is_namespace());
    objects
        .filter(|identity| facts.target.contains_key(identity))
        .map(|identity| identity.to_string())
        .collect()
}

/// Reports whether kyma-operator wrote the Kyma's status and no module refers to a Manifest.
pub(super) fn is_reported_by_us(kyma: &kyma_api::Kyma) -> bool {
    let entries = kyma.metadata.managed_fields.iter().flatten();
    let wrote = |manager: Option<&str>| manager == Some(kyma_operator::FIELD_MANAGER);
    let is_ours = |entry: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| {
        wrote(entry.manager.as_deref())
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref() == Some("status")
    };
    let modules = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
    let mut tracked = modules.filter_map(|module| module.manifest.as_ref());
    entries.into_iter().any(is_ours) && tracked.all(|object| object.kind.as_deref() != Some(klm::MANIFEST))
}

#[cfg(test)]
mod tests;
