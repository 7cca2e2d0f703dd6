use kyma_health::HealthStatus;
use kyma_object_set::drift::Drift;
use kyma_object_set::{Entry, Identity, Inventory};

use super::*;
use crate::deadline::Deadline;

mod faults;
mod kinds;
mod release;
mod removal;

pub(crate) fn id(group: &str, kind: &str, name: &str) -> Identity {
    Identity::new(group, kind, Some("here"), name)
}

pub(crate) fn config(name: &str) -> Identity {
    id("", "ConfigMap", name)
}

pub(crate) fn deployment() -> Identity {
    id("apps", "Deployment", "d")
}

pub(crate) fn crd() -> Identity {
    Identity::new("apiextensions.k8s.io", "CustomResourceDefinition", None, "widgets.example.org")
}

pub(crate) fn object(identity: Identity) -> ObjectState {
    ObjectState {
        identity,
        changed: false,
        served: true,
        lacks_version: None,
        drift: None,
        health: Some(HealthStatus::Current),
        why: String::new(),
        health_is_old: false,
        counts: true,
        flapping: false,
        waiting: None,
        fault: None,
    }
}

pub(crate) fn applied(identity: &Identity) -> (Identity, Entry) {
    (identity.clone(), Entry { uid: identity.name.clone(), hash: "sent".to_owned(), ..Entry::default() })
}

/// Returns the state of a first installation of these objects with loaded content.
pub(crate) fn fresh(objects: Vec<ObjectState>) -> Observed {
    Observed {
        operation: Operation::Install,
        refusal: None,
        content: Content::Loaded,
        watching: true,
        watched: false,
        namespace_ready: true,
        hooks: HooksDue::default(),
        history: HistoryDue::default(),
        rollback: ObservedRollback::default(),
        tests_due: false,
        objects,
        applied: false,
        inventory: Inventory::new(),
        unread: false,
        owned: BTreeSet::new(),
        sync_timed_out: false,
        sync_failure: None,
        versioned: false,
        newer: None,
        existing_installation: ExistingInstallation::None,
        helm_release_unread: false,
        as_found: None,
        unrecorded: None,
        set_back: false,
        changes: false,
        unsent: false,
        swept: false,
        kept: BTreeSet::new(),
        pruned: None,
        pruning: false,
        drift: DriftMode::Correct,
        default_resource: DefaultResource::None,
        default_seen: false,
        default_unconfirmed: false,
        deadline: Deadline::default(),
        awaited: false,
        left: vec![],
        stray_manager: None,
        manager: None,
        fails_in: None,
        unjudged: false,
        causes_due: false,
        removal: None,
    }
}

/// Returns the state after these objects were applied and watched.
pub(crate) fn running(objects: Vec<ObjectState>) -> Observed {
    let inventory = objects.iter().map(|object| applied(&object.identity)).collect();
    let owned = objects.iter().map(|object| object.identity.clone()).collect();
    let objects =
        objects.into_iter().map(|object| ObjectState { drift: Some(Drift::Unchanged), ..object }).collect();
    Observed { watched: true, inventory, owned, content: Content::Recorded, ..fresh(objects) }
}

pub(crate) fn fault() -> Failure {
    Failure::new(Reason::ApplyRefused, "no")
}

/// Applies everything that is due.
fn apply(seen: &mut Observed) {
    seen.applied = true;
    for object in &seen.objects {
        if object.served && object.fault.is_none() {
            let (identity, entry) = applied(&object.identity);
            seen.inventory.insert(identity, entry);
        }
    }
}

#[test]
fn first_installation_applies_before_watches_are_synced() {
    let mut seen = Observed { watching: false, ..fresh(vec![object(deployment()), object(config("a"))]) };
    assert_eq!(next(&seen), Step::Watch);
    seen.watching = true;
    assert_eq!(next(&seen), Step::Apply);
    apply(&mut seen);
    assert_eq!(next(&seen), Step::Stop(StopReason::WaitingForSync), "health is known from watches only");
    seen.watched = true;
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready));
}

#[test]
fn an_adopted_object_counts_as_applied_only_after_its_apply() {
    let mut seen = Observed { watched: true, ..fresh(vec![object(deployment())]) };
    seen.inventory.insert(deployment(), Entry { uid: "u".to_owned(), ..Entry::default() });
    seen.objects[0].changed = false;
    assert!(!seen.is_complete());
    assert_eq!(next(&seen), Step::Apply);
    apply(&mut seen);
    assert!(seen.is_complete());
}

#[test]
fn watches_without_sync_for_long_cause_a_new_discovery() {
    for operation in [Operation::Install, Operation::Remove] {
        let mut seen = Observed { operation, watched: false, ..running(vec![object(deployment())]) };
        assert_eq!(next(&seen), Step::Stop(StopReason::WaitingForSync));
        seen.sync_failure = Some(fault());
        assert_eq!(
            next(&seen),
            Step::Stop(StopReason::SyncFailed(fault())),
            "what is not seen is not told to be Ready"
        );
        seen.sync_timed_out = true;
        assert_eq!(next(&seen), Step::Rediscover);
    }
}

#[test]
fn versioned_module_without_inventory_waits_for_watches_first() {
    let mut seen = Observed { versioned: true, ..fresh(vec![object(deployment())]) };
    assert_eq!(next(&seen), Step::Stop(StopReason::WaitingForSync));
    seen.watched = true;
    assert_eq!(next(&seen), Step::Apply);
}

#[test]
fn a_newer_version_on_the_target_is_neither_replaced_nor_pruned() {
    let mut seen = running(vec![object(deployment())]);
    seen.newer = Some("1.1.0".to_owned());
    seen.owned.insert(config("new"));
    let refused = Step::Stop(StopReason::NewerVersion("1.1.0".to_owned()));
    for content in [Content::Recorded, Content::Loaded] {
        seen.content = content;
        seen.objects[0].changed = true;
        assert_eq!(next(&seen), refused, "neither applied nor pruned");
    }
}

#[test]
fn existing_installation_is_replaced_only_if_known_to_be_older() {
    let mut seen = fresh(vec![object(deployment()), object(config("a"))]);
    let rows = [
        (ExistingInstallation::Unread, Step::ReadExistingInstallation),
        (
            ExistingInstallation::Newer("2.0.0".to_owned()),
            Step::Stop(StopReason::NewerInstallation("2.0.0".to_owned())),
        ),
        (
            ExistingInstallation::UnknownVersion("d".to_owned()),
            Step::Stop(StopReason::UnknownInstallation("d".to_owned())),
        ),
        (ExistingInstallation::None, Step::Apply),
    ];
    for namespace_ready in [true, false] {
        seen.namespace_ready = namespace_ready;
        for (existing_installation, expected) in rows.clone() {
            seen.existing_installation = existing_installation;
            let expected =
                if expected == Step::Apply && !namespace_ready { Step::Namespace } else { expected };
            assert_eq!(next(&seen), expected);
        }
    }
}

#[test]
fn a_removal_without_a_reliable_inventory_searches_the_target() {
    let without = Observed { operation: Operation::Remove, watching: false, ..fresh(vec![]) };
    assert_eq!(next(&without), Step::Sweep);
    assert_eq!(next(&Observed { swept: true, ..without.clone() }), Step::Watch);
    assert_eq!(next(&Observed { unread: true, swept: true, ..without }), Step::Sweep);
    let older = Observed { operation: Operation::Remove, ..running(vec![object(deployment())]) };
    let older = Observed { newer: Some("1.1.0".to_owned()), ..older };
    assert_eq!(next(&older), Step::Sweep);
    assert_eq!(next(&Observed { swept: true, ..older.clone() }), Step::Remove);
    assert_eq!(next(&Observed { watched: false, ..older }), Step::Stop(StopReason::WaitingForSync));
}

#[test]
fn unreadable_inventory_causes_a_search_before_any_other_step() {
    for content in [Content::Stale, Content::Loaded, Content::Recorded] {
        let unread = Observed { unread: true, content, ..fresh(vec![object(config("a"))]) };
        assert_eq!(next(&unread), Step::Sweep);
        let refused = Observed { refusal: Some(fault()), ..unread };
        assert_eq!(next(&refused), Step::Stop(StopReason::Failed(fault())));
    }
}

#[test]
fn the_namespace_is_made_before_anything_is_sent() {
    let seen = Observed { namespace_ready: false, ..fresh(vec![object(config("a"))]) };
    assert_eq!(next(&seen), Step::Namespace);
}

#[test]
fn stale_content_is_loaded_before_anything_else() {
    let seen = Observed { content: Content::Stale, ..fresh(vec![]) };
    assert_eq!(next(&seen), Step::Load);
}

#[test]
fn unchanged_content_is_neither_loaded_nor_applied() {
    assert_eq!(
        next(&running(vec![object(config("a")), object(deployment())])),
        Step::Stop(StopReason::Ready)
    );
}

#[test]
fn after_a_restart_the_watches_speak_first() {
    let mut seen = Observed { watching: false, watched: false, ..running(vec![object(config("a"))]) };
    assert_eq!(next(&seen), Step::Watch);
    seen.watching = true;
    assert_eq!(next(&seen), Step::Stop(StopReason::WaitingForSync));
}

#[test]
fn drift_loads_the_content_and_applies() {
    let mut seen = running(vec![object(config("a")), object(config("b"))]);
    seen.objects[1].drift = Some(Drift::Changed);
    assert_eq!(next(&seen), Step::Load);
    seen.content = Content::Loaded;
    assert_eq!(next(&seen), Step::Apply);
    seen.drift = DriftMode::Warn;
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready));
}

#[test]
fn drift_mode_off_leaves_drift_until_new_content_is_requested() {
    for drift in [Drift::Gone, Drift::Changed] {
        let mut seen = Observed { drift: DriftMode::Off, ..running(vec![object(config("a"))]) };
        seen.objects[0].drift = Some(drift);
        for flapping in [true, false] {
            seen.objects[0].flapping = flapping;
            assert_eq!(next(&seen), Step::Stop(StopReason::Ready));
        }
        seen.objects[0].changed = true;
        seen.content = Content::Loaded;
        assert_eq!(next(&seen), Step::Apply);
    }
}

#[test]
fn an_object_on_its_way_out_is_applied_again_once_it_is_gone() {
    let mut seen = running(vec![object(config("a"))]);
    seen.objects[0].drift = Some(Drift::Deleting);
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready));
    seen.objects[0].drift = Some(Drift::Gone);
    assert_eq!(next(&seen), Step::Load);
}

#[test]
fn refused_object_is_reported_and_not_resent_in_the_same_pass() {
    let mut seen = fresh(vec![object(config("a")), object(config("b"))]);
    seen.objects[0].fault = Some(fault());
    apply(&mut seen);
    assert_eq!(next(&seen), Step::Stop(StopReason::Failed(fault())));
}

#[test]
fn a_missing_kind_blocks_only_its_own_objects() {
    let virtual_service = id("networking.istio.io", "VirtualService", "v");
    let mut seen = running(vec![object(deployment()), object(virtual_service.clone())]);
    seen.inventory.remove(&virtual_service);
    seen.objects[1].served = false;
    assert_eq!(
        next(&seen),
        Step::Stop(StopReason::MissingKinds(vec!["VirtualService.networking.istio.io".to_owned()]))
    );
    seen.objects[1].served = true;
    assert_eq!(next(&seen), Step::Load, "its arrival is acted on");
}

#[test]
fn a_kind_whose_crd_is_in_the_set_is_awaited_not_missing() {
    let widget = id("example.org", "Widget", "w");
    let mut seen = running(vec![object(crd()), object(widget.clone())]);
    seen.inventory.remove(&widget);
    seen.objects[1].served = false;
    assert_eq!(
        next(&seen),
        Step::Stop(StopReason::Progressing(vec![format!("{widget} (its kind is not served yet)")]))
    );
}

#[test]
fn surplus_objects_are_pruned_once_all_desired_ones_exist() {
    let mut seen = running(vec![object(config("a")), object(config("b")), object(config("c"))]);
    seen.content = Content::Loaded;
    seen.objects.pop();
    seen.objects[0].changed = true;
    assert_eq!(next(&seen), Step::Apply);
    apply(&mut seen);
    assert_eq!(next(&seen), Step::Prune(vec![config("c")]));
    seen.pruned = Some(Ok(()));
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready));
}

#[test]
fn objects_only_in_adopted_release_stay_until_inputs_change() {
    let mut seen = running(vec![object(config("a"))]);
    seen.content = Content::Loaded;
    seen.inventory.insert(config("b"), Entry { uid: "u".to_owned(), ..Entry::default() });
    seen.as_found = Some(vec!["b".to_owned()]);
    assert_eq!(seen.surplus(), []);
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready));
    let (identity, entry) = applied(&config("b"));
    seen.inventory.insert(identity, entry);
    assert_eq!(seen.surplus(), [config("b")], "we sent it ourselves");
    seen.inventory.insert(config("b"), Entry { uid: "u".to_owned(), ..Entry::default() });
    seen.as_found = None;
    assert_eq!(seen.surplus(), [config("b")]);
}

#[test]
fn replaced_object_stays_until_kind_of_successor_is_served() {
    let rollout = id("argoproj.io", "Rollout", "r");
    let mut seen = running(vec![object(rollout.clone()), object(deployment())]);
    seen.content = Content::Loaded;
    seen.applied = true;
    seen.objects.pop();
    seen.inventory.remove(&rollout);
    seen.objects[0].served = false;
    assert_eq!(next(&seen), Step::Stop(StopReason::MissingKinds(vec!["Rollout.argoproj.io".to_owned()])));
    seen.objects[0].served = true;
    seen.objects[0].waiting = Some("the CRD is not established yet".to_owned());
    assert!(matches!(next(&seen), Step::Stop(StopReason::Progressing(_))));
    seen.objects[0].waiting = None;
    apply(&mut seen);
    assert_eq!(next(&seen), Step::Prune(vec![deployment()]));
}

#[test]
fn a_replaced_object_stays_while_its_successor_waits() {
    let mut seen = running(vec![object(config("a")), object(config("b"))]);
    seen.content = Content::Loaded;
    seen.applied = true;
    seen.objects.pop();
    seen.objects[0].waiting = Some("the old object is being deleted".to_owned());
    let waits = format!("{} (the old object is being deleted)", config("a"));
    assert_eq!(next(&seen), Step::Stop(StopReason::Progressing(vec![waits])));
}

#[test]
fn leftovers_of_unfinished_operation_are_found_by_owner_label() {
    let mut seen = running(vec![object(config("a"))]);
    seen.content = Content::Loaded;
    seen.owned.insert(config("stray"));
    assert_eq!(next(&seen), Step::Prune(vec![config("stray")]));
}

#[test]
fn the_default_resource_is_made_once_and_waits_for_its_kind() {
    let mut seen = running(vec![object(config("a"))]);
    seen.default_resource = DefaultResource::Unserved;
    assert!(matches!(next(&seen), Step::Stop(StopReason::Progressing(_))));
    seen.default_resource = DefaultResource::Due;
    assert_eq!(next(&seen), Step::DefaultResource);
    seen.default_resource = DefaultResource::Created;
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready));
}

#[test]
fn only_what_counts_decides_health() {
    let mut seen = running(vec![object(deployment()), object(id("apps", "StatefulSet", "s"))]);
    seen.objects[0].health = None;
    assert_eq!(next(&seen), Step::Stop(StopReason::Progressing(vec![deployment().to_string()])));
    seen.objects[0].counts = false;
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready));
}

#[test]
fn a_manager_that_the_component_does_not_have_is_never_ready() {
    let mut seen = running(vec![ObjectState { counts: false, ..object(deployment()) }]);
    seen.stray_manager = Some("Deployment.apps other".to_owned());
    assert_eq!(next(&seen), Step::Stop(StopReason::StrayManager("Deployment.apps other".to_owned())));
}

#[test]
fn a_default_resource_that_is_the_manager_decides_health() {
    let mut seen = running(vec![ObjectState { counts: false, ..object(deployment()) }]);
    for (health, stop_reason) in [
        (None, StopReason::Progressing(vec!["Lamp default".to_owned()])),
        (Some(HealthStatus::Failed), StopReason::Unhealthy(vec!["Lamp default".to_owned()])),
        (Some(HealthStatus::Current), StopReason::Ready),
    ] {
        seen.manager = Some(("Lamp default".to_owned(), health));
        assert_eq!(next(&seen), Step::Stop(stop_reason));
    }
}

#[test]
fn unsent_object_is_awaited_once_and_not_reported_unhealthy() {
    let service = id("", "Service", "s");
    let mut seen = running(vec![object(deployment()), object(service.clone())]);
    seen.inventory.remove(&service);
    seen.objects[1] =
        ObjectState { health: None, waiting: Some("its turn".to_owned()), ..object(service.clone()) };
    seen.applied = true;
    assert_eq!(next(&seen), Step::Stop(StopReason::Progressing(vec![format!("{service} (its turn)")])));
    assert_eq!(seen.unready(), Vec::<String>::new());
    assert_eq!(seen.unapplied(), [service.to_string()]);
}

#[test]
fn objects_not_ready_by_the_deadline_are_late_until_ready() {
    let mut seen = running(vec![object(deployment())]);
    seen.objects[0].health = Some(HealthStatus::InProgress);
    seen.deadline = Deadline { waited: 29, limit: Some(30) };
    assert_eq!(next(&seen), Step::Stop(StopReason::Progressing(vec![deployment().to_string()])));
    seen.deadline.waited = 30;
    assert_eq!(next(&seen), Step::Stop(StopReason::HealthTimeout(vec![deployment().to_string()])));
    seen.objects[0].health = Some(HealthStatus::Current);
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready));
}

#[test]
fn object_of_competing_writer_is_reported_and_others_corrected() {
    let mut seen = running(vec![object(config("a")), object(config("b"))]);
    seen.objects[0] = ObjectState { drift: Some(Drift::Changed), flapping: true, ..seen.objects[0].clone() };
    assert_eq!(next(&seen), Step::Stop(StopReason::DriftFlapping(vec![config("a").to_string()])));
    seen.objects[1].drift = Some(Drift::Changed);
    assert_eq!(next(&seen), Step::Load, "the other one");
    seen.objects[1].drift = Some(Drift::Unchanged);
    seen.objects[0].drift = Some(Drift::Unchanged);
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready), "the other writer gave way");
    seen.objects[0] = ObjectState { changed: true, ..seen.objects[0].clone() };
    seen.content = Content::Loaded;
    assert_eq!(next(&seen), Step::Apply, "new content is sent all the same");
}

#[test]
fn a_refused_spec_stops_an_installation_but_not_a_removal() {
    let mut seen = Observed { refusal: Some(fault()), ..running(vec![object(deployment())]) };
    assert_eq!(next(&seen), Step::Stop(StopReason::Failed(fault())));
    seen.operation = Operation::Remove;
    assert_eq!(next(&seen), Step::Remove);
}

#[test]
fn health_under_changed_rules_is_read_before_it_is_reported() {
    let mut seen = running(vec![ObjectState { health: None, ..object(deployment()) }]);
    seen.unjudged = true;
    assert_eq!(next(&seen), Step::Judge);
    seen.unjudged = false;
    seen.objects[0].health = Some(HealthStatus::Current);
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready));
}

#[test]
fn the_cause_of_a_delay_is_read_once_and_reported() {
    let mut seen =
        running(vec![ObjectState { health: Some(HealthStatus::InProgress), ..object(deployment()) }]);
    seen.causes_due = true;
    assert_eq!(next(&seen), Step::ReadCauses);
    seen.causes_due = false;
    seen.objects[0].why = "Pod d-1: container main: ImagePullBackOff".to_owned();
    let named = format!("{} (Pod d-1: container main: ImagePullBackOff)", deployment());
    assert_eq!(next(&seen), Step::Stop(StopReason::Progressing(vec![named])));
}

#[test]
fn news_are_awaited_only_of_what_counts_and_was_applied() {
    let mut seen = running(vec![ObjectState { health_is_old: true, counts: false, ..object(deployment()) }]);
    seen.awaited = true;
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready));
    seen.deadline = Deadline { waited: 9, limit: Some(9) };
    seen.objects[0].counts = true;
    assert!(
        matches!(next(&seen), Step::Stop(StopReason::Progressing(_))),
        "the watch is late, not the object"
    );
}
