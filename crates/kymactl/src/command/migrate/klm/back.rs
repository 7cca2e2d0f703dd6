//! Decides the next step of giving a Kyma back to Kyma Lifecycle Manager (KLM). Pure.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kyma_api::{DeletionPolicy, HelmComponent, Kyma, annotations, hand_over::klm_entry, labels, names};
use kyma_object_set::{Identity, Ownership};

use super::facts::{
    COMPONENT_MANAGER, MigrationState, Module, ReadComponent as _, hand_over, is_applied_by, is_skipped,
};
use super::note::{self, KymaNote};
use crate::hub::MANAGER;

/// Operators that reconcile Kymas.
pub(super) const OPERATORS: [&str; 2] = [kyma_operator::FIELD_MANAGER, "release-meta-syncer"];
/// Field managers that write a Kyma's status.
pub(super) const STATUS_MANAGERS: [&str; 3] = [OPERATORS[0], OPERATORS[1], MANAGER];

/// A step, in the order of execution.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RollbackStep {
    /// Label the Kyma, so that the operators stop.
    StopOperators,
    /// Wait until this operator has stopped.
    AwaitOperator(&'static str),
    /// Stop the component's reconciler.
    StopComponent(String),
    /// Wait until the component's reconciler has stopped.
    AwaitComponentStop(String),
    /// Give the module's objects on the target back to KLM.
    ReturnObjects(String),
    /// Delete the component; everything on the target stays.
    DeleteComponent(String),
    /// Wait until the component is deleted.
    AwaitDeletion(String),
    /// Restore the Manifest's finalizers and status.
    RestoreManifest(String),
    /// Restore the status of the Kyma and of the target's Kyma.
    RestoreStatus,
    /// Delete remaining copies of components, which KLM would take for its own Manifests.
    DeleteMirrors,
    /// Remove the labels and annotations, from Manifests first: KLM reconciles again.
    RemoveLabels,
    /// Nothing is left.
    Done,
}

impl fmt::Display for RollbackStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StopOperators => f.write_str("stop the operators' work on the Kyma"),
            Self::AwaitOperator(operator) => write!(f, "wait until {operator} has stopped"),
            Self::StopComponent(module) => write!(f, "{module}: stop the component"),
            Self::AwaitComponentStop(module) => write!(f, "{module}: wait until it has stopped"),
            Self::ReturnObjects(module) => write!(f, "{module}: return its objects to KLM"),
            Self::DeleteComponent(module) => {
                write!(f, "{module}: delete the component; everything on the target stays")
            }
            Self::AwaitDeletion(module) => write!(f, "{module}: wait until the component is deleted"),
            Self::RestoreManifest(module) => {
                write!(f, "{module}: restore KLM's finalizers and the Manifest's status")
            }
            Self::RestoreStatus => f.write_str("restore the status"),
            Self::DeleteMirrors => f.write_str("delete the read-only copies of components"),
            Self::RemoveLabels => {
                f.write_str("remove the operators' labels, so that KLM reconciles the Kyma")
            }
            Self::Done => f.write_str("done"),
        }
    }
}

/// Returns the obstacles to giving the Kyma back.
pub(super) fn obstacles(facts: &MigrationState) -> Vec<String> {
    let mut found = Vec::new();
    if next(facts) == RollbackStep::Done {
        return found;
    }
    if note::read::<KymaNote>(&facts.kyma.metadata).is_none() {
        let note = annotations::BEFORE_HAND_OVER;
        found.push(format!(
            "its annotation {note} no longer exists, so its state before the hand-over is unknown"
        ));
    }
    if facts.kyma.metadata.deletion_timestamp.is_some() {
        found.push("the Kyma is being deleted: wait for the end of the deletion".to_owned());
    }
    if let Err(why) = &facts.access {
        found.push(why.clone());
    }
    for (name, module) in &facts.modules {
        found.extend(obstacle(module).map(|why| format!("module {name}: {why}")));
    }
    found
}

fn obstacle(module: &Module) -> Option<String> {
    let (component, manifest) = (module.component.as_ref()?, module.manifest.as_ref());
    let wanted = component.spec.module.as_ref().map(|module| &module.version);
    let Some(manifest) = manifest else {
        return Some(
            "it was installed after the hand-over, so KLM has no Manifest of it: remove it first".to_owned(),
        );
    };
    let status = component.status.as_ref();
    if let Some(Err(error)) = status.map(kyma_api::HelmComponentStatus::entries) {
        return Some(format!("{error}: first let helm-component search the cluster for its objects"));
    }
    let installed = status.and_then(|status| status.version.as_ref());
    let version = manifest.spec.version.as_ref();
    if wanted != version || installed.is_some_and(|installed| Some(installed) != version) {
        let at = installed.or(wanted).map_or("another version", String::as_str);
        let was = version.map_or("none", String::as_str);
        return Some(format!(
            "its version is {at} now, and KLM would install {was} again: such a module is not handed back"
        ));
    }
    None
}

/// Returns the next step if there are no obstacles.
pub(super) fn next(facts: &MigrationState) -> RollbackStep {
    match hand_over(&facts.kyma.metadata) {
        // Without the label no hand-over has begun.
        None => return RollbackStep::Done,
        Some(labels::HAND_OVER_PENDING) => {}
        Some(_) => return RollbackStep::StopOperators,
    }
    if let Some(operator) = OPERATORS.into_iter().find(|operator| is_at_work(&facts.kyma, operator)) {
        return RollbackStep::AwaitOperator(operator);
    }
    let steps = facts.modules.iter().filter_map(|(name, module)| of_module(facts, name, module));
    let last = || match (is_status_ours(facts), facts.mirrors.is_empty()) {
        (true, _) => RollbackStep::RestoreStatus,
        (false, false) => RollbackStep::DeleteMirrors,
        (false, true) => RollbackStep::RemoveLabels,
    };
    steps.min().unwrap_or_else(last)
}

/// Reports whether an operator has reported on the Kyma and has not recorded that it stopped.
pub(super) fn is_at_work(kyma: &Kyma, operator: &str) -> bool {
    let mut entries = kyma.metadata.managed_fields.iter().flatten();
    let reported = entries.any(|entry| {
        entry.manager.as_deref() == Some(operator) && entry.subresource.as_deref() == Some("status")
    });
    reported && !kyma.annotations().contains_key(&annotations::stopped(operator))
}

fn of_module(facts: &MigrationState, name: &str, module: &Module) -> Option<RollbackStep> {
    let name = name.to_owned();
    if let Some(component) = &module.component {
        let is_going = component.metadata.deletion_timestamp.is_some();
        let keeps = component.spec.deletion_policy == DeletionPolicy::Orphan;
        return Some(match (is_going, keeps) {
            (true, true) => RollbackStep::AwaitDeletion(name),
            // A removal was requested: the component is deleted, but nothing is removed from the target.
            (true, false) => RollbackStep::DeleteComponent(name),
            _ if !is_skipped(&component.metadata) => RollbackStep::StopComponent(name),
            _ if component.is_seeded() && !component.has_stopped() => RollbackStep::AwaitComponentStop(name),
            _ if !to_give_back(facts, &facts_owner(component), module).is_empty() => {
                RollbackStep::ReturnObjects(name)
            }
            _ => RollbackStep::DeleteComponent(name),
        });
    }
    let manifest = module.manifest.as_ref()?;
    let owner = names::component_name(&facts.kyma.name_any(), &name);
    let owner = names::owner_hash(&facts.kyma.namespace().unwrap_or_default(), &owner);
    if !to_give_back(facts, &owner, module).is_empty() {
        return Some(RollbackStep::ReturnObjects(name));
    }
    let dropped = hand_over(&manifest.metadata) == Some(labels::HAND_OVER_DONE);
    dropped.then_some(RollbackStep::RestoreManifest(name))
}

fn facts_owner(component: &HelmComponent) -> String {
    names::owner_hash(&component.namespace().unwrap_or_default(), &component.name_any())
}

/// Returns the field managers with which an owner's component applies: its own, and that for objects of several
/// owners.
pub(super) fn managers(owner: &str) -> [String; 2] {
    let manager = COMPONENT_MANAGER.to_owned();
    let ownership = Ownership { manager: manager.clone(), owner: owner.to_owned(), version: String::new() };
    [manager, ownership.share_manager(owner)]
}

/// Returns the module's objects on the target with this owner's label or field managers, or applied by helm-component
/// without a label. Labels are removed before fields, so an interrupted run may leave only fields.
pub(super) fn to_give_back<'a>(
    facts: &'a MigrationState,
    owner: &str,
    module: &Module,
) -> BTreeMap<Identity, &'a ObjectMeta> {
    let share = Ownership::share_label(owner);
    let [alone, with_others] = managers(owner);
    let is_ours = |live: &ObjectMeta| {
        let held = live.labels.as_ref().and_then(|all| all.get(labels::OWNER));
        let by_us = is_applied_by(live, &alone);
        let shared = live.labels.as_ref().is_some_and(|all| all.contains_key(&share));
        shared || is_applied_by(live, &with_others) || held.map_or(by_us, |held| held == owner)
    };
    let objects = module.objects().into_iter();
    let live = objects.filter_map(|(identity, _)| Some((facts.target.get(&identity)?, identity)));
    live.filter(|(live, _)| is_ours(live)).map(|(live, identity)| (identity, live)).collect()
}

/// Reports whether one of these operators wrote the Kyma's status, or KLM's part of it is missing.
fn is_status_ours(facts: &MigrationState) -> bool {
    let meta = &facts.kyma.metadata;
    let mut entries = meta.managed_fields.iter().flatten();
    let ours = entries.any(|entry| {
        let manager = entry.manager.as_deref().unwrap_or_default();
        entry.subresource.as_deref() == Some("status") && STATUS_MANAGERS.contains(&manager)
    });
    let was_klms = note::read::<KymaNote>(meta).is_some_and(|note| note.manager.is_some());
    ours || (was_klms && klm_entry(meta).is_none())
}

#[cfg(test)]
mod tests;
