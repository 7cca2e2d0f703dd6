//! Assembles the current state for [`plan`].

use std::collections::BTreeSet;
use std::time::Instant;

use kyma_api::condition::{self, types};
use kyma_api::{
    CreatedResource, FreeForm, HelmComponent, HelmComponentSpec, Manager, ResolvedVersion, ResourcePolicy,
    State, labels,
};
use kyma_controller::Failure;
use kyma_health::HealthStatus;
use kyma_object_set::{GroupKind, Gvk, Identity};
use kyma_sdk::Context;

use crate::actions::{history, hooks, rollback, test};
use crate::content::{self, Inputs};
use crate::deadline::Deadline;
use crate::hub_secrets::Additions;
use crate::objects::Marks;
use crate::pass::Pass;
use crate::plan::{Content, DefaultResource, DriftMode, ObjectState, Observed, Operation};
use crate::release;
use crate::target_cache::Snapshot;
use crate::values::from::FromLayer;

pub(crate) mod adoption;
pub(crate) mod existing_installation;
pub(crate) mod health;
mod missing_kinds;
mod objects;
mod version;

use health::HealthContext;
pub(crate) use missing_kinds::MissingKinds;
use objects::{ObservedTarget, objects};

/// Returns all inputs that determine the objects, except the content and the target's kinds.
pub(crate) fn inputs(
    context: &Context<HelmComponent>,
    owner: &str,
    kube_version: &str,
    resolved: Option<&ResolvedVersion>,
    from: &FromLayer,
    additions: Additions,
) -> Result<Inputs, Failure> {
    let component = &*context.resource;
    let metadata = &component.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let is_kymas = metadata.labels.as_ref().is_some_and(|all| all.contains_key(labels::KYMA_NAME));
    let marks = Marks {
        owner: owner.to_owned(),
        kyma: is_kymas.then(|| format!("{namespace}/{name}")),
        version: component.spec.module.as_ref().map(|module| module.version.clone()),
    };
    let release =
        release::of(name, &component.spec, component.status.as_ref(), &context.settings.target_namespace);
    Inputs::of(&component.spec, resolved, from, release, marks, kube_version, additions)
}

/// Assembles the state that is known at this point of a pass.
pub(crate) fn observe(pass: &Pass<'_>) -> Observed {
    let recorded = &pass.state.recorded;
    let snapshot = pass.shared.target_cache.snapshot(&pass.context.target, &pass.key, &recorded.inventory);
    let spec = &pass.context.resource.spec;
    let refusal = pass.rules.as_ref().err().or(pass.inputs.as_ref().err()).cloned();
    let watched = pass.done.watching && snapshot.complete;
    // Without drift correction, changes of other managers stay.
    let requested = pass.context.is_requested() && drift_mode(pass) == DriftMode::Correct;
    let sent_anew = requested || adoption::needs_correction(pass) || version::is_set_back(pass, &snapshot);
    let set_back = watched && !pass.done.applied && sent_anew;
    let content = content(pass, set_back);
    let default = made_identity(pass);
    let objects = objects(pass, &ObservedTarget { snapshot: &snapshot, watched, set_back }, content);
    let existing_installation = existing_installation::of(pass, &objects);
    let made = default.as_ref().filter(|made| spec.manager.as_ref().is_some_and(|one| is_manager(one, made)));
    Observed {
        operation: pass.operation,
        refusal,
        content,
        watching: pass.done.watching,
        watched,
        namespace_ready: pass.state.namespace_ready,
        hooks: hooks::observe(pass, content),
        history: history::observed(pass, content),
        rollback: rollback::observed(pass, content),
        tests_due: test::is_due(pass),
        stray_manager: stray_manager(spec, &objects).filter(|_| content != Content::Stale),
        manager: made_manager(pass, &snapshot),
        left: recorded.left.clone(),
        fails_in: health::fails_in(HealthContext::of(pass), &snapshot, &objects, made),
        unjudged: health::is_unjudged(pass, &snapshot, &objects),
        causes_due: health::are_causes_due(pass, &objects),
        objects,
        applied: pass.done.applied,
        inventory: recorded.inventory.clone(),
        unread: recorded.encoding.is_unread(),
        owned: owned(pass, &snapshot, default.as_ref()),
        sync_timed_out: sync_timed_out(pass),
        sync_failure: sync_failure(pass).filter(|_| !watched),
        versioned: pass.inputs.as_ref().is_ok_and(Inputs::are_versioned),
        newer: version::newer(pass, &snapshot),
        existing_installation,
        helm_release_unread: adoption::needs_search(pass, content),
        as_found: adoption::as_found(pass),
        unrecorded: history::unrecorded(pass),
        set_back,
        changes: changes(pass),
        unsent: content == Content::Loaded
            && pass.state.loaded.as_ref().is_some_and(|loaded| !recorded.is(loaded)),
        swept: pass.state.swept,
        kept: pass.done.kept.clone(),
        pruned: pass.done.pruned.clone(),
        pruning: pass.done.pruning,
        drift: drift_mode(pass),
        default_resource: default_resource(pass),
        default_seen: is_seen(&snapshot, default.as_ref()),
        default_unconfirmed: watched && is_unconfirmed(pass, &snapshot, default.as_ref()),
        deadline: deadline(pass),
        awaited: pass.state.unready_since.is_some() || !was_ready(pass),
        removal: pass.done.removal.clone(),
    }
}

/// Reports whether the lists of the watches are overdue.
fn sync_timed_out(pass: &Pass<'_>) -> bool {
    pass.state.watch_wait.is_some_and(|watch_wait| watch_wait.remaining(Instant::now()).is_zero())
}

/// Returns why the streams of some kinds deliver nothing, once that lasts.
fn sync_failure(pass: &Pass<'_>) -> Option<Failure> {
    let watch_wait = pass.state.watch_wait.filter(|watch_wait| watch_wait.is_reportable())?;
    watch_wait.failure(&pass.shared.target_cache.unsynced_kinds(&pass.context.target, &pass.key))
}

/// Returns the elapsed time and the limit of the current operation: from the apply until objects are ready, or from
/// the deletion request of a removal.
fn deadline(pass: &Pass<'_>) -> Deadline {
    let component = &pass.context.resource;
    let timeouts = component.spec.timeouts.as_ref();
    let (since, limit) = match pass.operation {
        Operation::Install => {
            (pass.state.unready_since, timeouts.and_then(|timeouts| timeouts.health_seconds))
        }
        Operation::Remove => {
            let ordered = component.metadata.deletion_timestamp.as_ref().map(|time| time.0.as_second());
            (ordered, timeouts.and_then(|timeouts| timeouts.delete_seconds))
        }
    };
    Deadline::since(since, jiff::Timestamp::now().as_second(), limit)
}

/// Reports whether the last report was Ready, even if newer content is not healthy yet.
pub(crate) fn was_ready(pass: &Pass<'_>) -> bool {
    let status = pass.context.resource.status.as_ref();
    status.is_some_and(|status| {
        status.state == Some(State::Ready)
            && condition::is_true(status.conditions.as_deref().unwrap_or_default(), types::READY)
    })
}

fn content(pass: &Pass<'_>, set_back: bool) -> Content {
    let Some(desired) = rollback::desired_inputs(pass) else { return Content::Stale };
    // The rollback target is applied as it was rendered, whatever kinds the target serves now.
    let is_rolled_back = rollback::active_target(pass).is_some();
    let kinds_fit = |kinds: Option<&String>| {
        is_rolled_back || kinds.is_none_or(|held| *held == content::kinds_digest(&pass.kinds))
    };
    if let Some(loaded) = &pass.state.loaded
        && loaded.inputs == desired
        && kinds_fit(loaded.kinds.as_ref())
    {
        return Content::Loaded;
    }
    let recorded = &pass.state.recorded;
    let unchanged = recorded.digests.inputs.as_deref() == Some(desired);
    let complete =
        unchanged && kinds_fit(recorded.digests.api_versions.as_ref()) && !recorded.pending && !set_back;
    if complete { Content::Recorded } else { Content::Stale }
}

/// Reports whether the desired content differs from the completely applied one.
fn changes(pass: &Pass<'_>) -> bool {
    let applied = &pass.state.recorded.digests;
    let desired = rollback::desired_inputs(pass);
    desired.is_some_and(|desired| applied.source.is_some() && applied.inputs.as_deref() != Some(desired))
}

pub(crate) fn is_manager(manager: &Manager, identity: &Identity) -> bool {
    identity.is(&manager.group, &manager.kind)
        && identity.name == manager.name
        && (manager.namespace.is_none() || manager.namespace == identity.namespace)
}

/// Returns the object of `spec.manager` if neither the content nor the default custom resource is it.
fn stray_manager(spec: &HelmComponentSpec, objects: &[ObjectState]) -> Option<String> {
    let manager = spec.manager.as_ref()?;
    let default = |resource: &FreeForm| {
        let text = |field: &str| resource.get(field).and_then(serde_json::Value::as_str).unwrap_or_default();
        let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
        let name = resource.get("metadata").and_then(|metadata| metadata.get("name")?.as_str());
        (group, text("kind"), name) == (&*manager.group, &*manager.kind, Some(&*manager.name))
    };
    let found = objects.iter().any(|object| object.counts) || spec.resource.as_ref().is_some_and(default);
    let Manager { group, kind, namespace, name, .. } = manager;
    (!found).then(|| Identity::new(group, kind, namespace.as_deref(), name).to_string())
}

/// Returns the default custom resource that the operator created and its health, if it is the manager.
fn made_manager(pass: &Pass<'_>, snapshot: &Snapshot) -> Option<(String, Option<HealthStatus>)> {
    let manager = pass.context.resource.spec.manager.as_ref()?;
    pass.state.recorded.resource.as_ref()?.uid.as_ref()?;
    let made = made_identity(pass).filter(|made| is_manager(manager, made))?;
    let health =
        snapshot.objects.get(&made).and_then(|seen| HealthContext::of(pass).observed_health(seen).status);
    Some((made.to_string(), health))
}

/// Returns the objects with the component's owner label, except the default custom resource, which belongs to the
/// user. Objects that were handed over carry the label too, even if no stream of their kind is open.
fn owned(pass: &Pass<'_>, snapshot: &Snapshot, default: Option<&Identity>) -> BTreeSet<Identity> {
    let owner = &*pass.key.owner;
    let ours = snapshot
        .objects
        .iter()
        .filter(|(_, seen)| seen.observed.owner.as_deref() == Some(owner) && !seen.observed.deleting);
    ours.filter(|(_, seen)| !seen.observed.fingerprint.is_empty())
        .map(|(identity, _)| identity)
        .chain(pass.received.keys())
        .filter(|identity| Some(*identity) != default)
        .cloned()
        .collect()
}

fn made_identity(pass: &Pass<'_>) -> Option<Identity> {
    let made = pass.state.recorded.resource.as_ref()?;
    Some(Identity::new(&gvk_of(made).group, &made.kind, made.namespace.as_deref(), &made.name))
}

/// Returns the kind of a default custom resource in the version in which it was created.
pub(crate) fn gvk_of(made: &CreatedResource) -> Gvk {
    let (group, version) = made.api_version.rsplit_once('/').unwrap_or(("", &made.api_version));
    Gvk::new(group, version, &made.kind)
}

fn default_resource(pass: &Pass<'_>) -> DefaultResource {
    let spec = &pass.context.resource.spec;
    let Some(resource) =
        spec.resource.as_ref().filter(|_| spec.resource_policy == ResourcePolicy::CreateAndDelete)
    else {
        return DefaultResource::None;
    };
    if pass.state.recorded.resource.is_some() {
        return DefaultResource::Created;
    }
    let text = |key: &str| resource.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
    let served = pass.served.get(&Gvk::new(group, version, text("kind"))).is_some();
    if served { DefaultResource::Due } else { DefaultResource::Unserved }
}

fn is_seen(snapshot: &Snapshot, default: Option<&Identity>) -> bool {
    default.is_some_and(|default| snapshot.objects.contains_key(default))
}

/// Returns whether the record of the default custom resource needs a read of the target. The watches select by owner
/// label, which a resource that existed before lacks, so absence from a watch proves nothing.
fn is_unconfirmed(pass: &Pass<'_>, snapshot: &Snapshot, default: Option<&Identity>) -> bool {
    let Some(made) = &pass.state.recorded.resource else { return false };
    let is_absent = made.absent == Some(true);
    let differs =
        if is_seen(snapshot, default) { is_absent } else { !is_absent && !pass.state.default_confirmed };
    differs && !pass.done.default_confirmed
}

/// Returns the mode in the spec. Without one, objects that were taken over stay as they were found until the user
/// requests other content.
fn drift_mode(pass: &Pass<'_>) -> DriftMode {
    let absent = || {
        if adoption::is_as_found(pass) { kyma_api::DriftMode::Warn } else { kyma_api::DriftMode::default() }
    };
    match adoption::requested_mode(&pass.context.resource.spec).unwrap_or_else(absent) {
        kyma_api::DriftMode::Correct => DriftMode::Correct,
        kyma_api::DriftMode::Warn => DriftMode::Warn,
        kyma_api::DriftMode::Off => DriftMode::Off,
    }
}

/// Reports whether the component waits for kinds that are not served yet, or its chart reads the served kinds.
pub(crate) fn kinds_may_come(pass: &Pass<'_>) -> bool {
    let asks = |kinds: Option<&String>| kinds.is_some();
    let state = &pass.state;
    let prepared = state.loaded.iter().map(|loaded| &loaded.prepared);
    let missing = prepared.flat_map(|prepared| prepared.objects.iter().chain(prepared.hook_objects()));
    let mut missing = missing.filter(|object| pass.kinds.get(&object.gvk()).is_none());
    let mut recorded = state.recorded.inventory.iter().map(|(identity, _)| identity);
    let is_lost = |kind: &GroupKind| pass.kinds.preferred(kind).is_none();
    let mut made = state.recorded.resource.iter().map(|made| gvk_of(made).group_kind());
    asks(state.recorded.digests.api_versions.as_ref())
        || asks(state.loaded.as_ref().and_then(|loaded| loaded.kinds.as_ref()))
        || state.recorded.pending
        || state.render_awaits_kinds
        || !pass.done.waiting.is_empty()
        || missing.next().is_some()
        || (pass.operation == Operation::Install
            && (recorded.any(|identity| is_lost(&identity.group_kind())) || made.any(|kind| is_lost(&kind))))
        || default_resource(pass) == DefaultResource::Unserved
}

/// Reports whether the API group of a recorded object does not answer, so that the object is not watched until it
/// does.
pub(crate) fn awaits_groups(pass: &Pass<'_>) -> bool {
    let mut recorded = pass.state.recorded.inventory.iter();
    recorded.any(|(identity, _)| {
        pass.kinds.is_unknown(&identity.group) && pass.kinds.preferred(&identity.group_kind()).is_none()
    })
}

/// Reports whether an object, or the default custom resource, has a kind that the content's own CRD defines and that
/// discovery does not show yet.
pub(crate) fn kinds_lag(pass: &Pass<'_>) -> bool {
    let objects = pass.state.loaded.iter().flat_map(|loaded| &loaded.prepared.objects);
    let made = pass.state.recorded.resource.iter().map(gvk_of);
    let mut gvks = objects.map(kyma_object_set::Object::gvk).chain(made);
    gvks.any(|gvk| pass.served.get(&gvk).is_some() && pass.kinds.get(&gvk).is_none())
}

/// Returns the drifted objects that are not corrected, for messages.
pub(crate) fn drifted(seen: &Observed) -> Vec<String> {
    let drifted = seen.objects.iter().filter(|object| object.has_drifted());
    drifted.map(|object| object.identity.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::tests::{deployment, object};

    #[test]
    fn a_manager_has_to_be_of_the_content_or_the_default_resource() {
        let spec = |resource: serde_json::Value| -> HelmComponentSpec {
            let manager = json!({"group": "apps", "version": "v1", "kind": "Deployment", "name": "d"});
            serde_json::from_value(json!({"source": {}, "manager": manager, "resource": resource})).unwrap()
        };
        let none = json!({"apiVersion": "v1", "kind": "Deployment", "metadata": {"name": "d"}});
        let default = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}});
        let of_content = vec![object(deployment())];
        let others = vec![ObjectState { counts: false, ..object(deployment()) }];
        let stray = Some("Deployment.apps d".to_owned());
        assert_eq!(stray_manager(&spec(none.clone()), &others), stray);
        assert_eq!(stray_manager(&spec(none), &of_content), None);
        assert_eq!(stray_manager(&spec(default), &others), None);
        let unnamed = serde_json::from_value(json!({"source": {}})).unwrap();
        assert_eq!(stray_manager(&unnamed, &others), None);
    }
}
