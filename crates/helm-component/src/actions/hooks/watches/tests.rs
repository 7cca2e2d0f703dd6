use k8s_openapi::api::batch::v1::Job;
use kube::api::ApiResource;
use kyma_controller::Content;
use serde_json::{Value, json};

use super::*;

const RUN: &str = "run";

fn jobs() -> WatchSpec {
    let kind = ApiResource::erase::<Job>(&());
    WatchSpec { content: Content::Whole, ..WatchSpec::in_kind(&kind).marked(labels::HOOK_OF) }
}

fn component_key() -> ComponentKey {
    ComponentKey { namespace: "hub".into(), name: "c".into(), owner: "owner".into() }
}

fn hook(name: &str) -> Identity {
    Identity::new("batch", "Job", Some("n"), name)
}

/// Returns a Job of this run with this condition.
fn job(run: &str, name: &str, condition: Option<&str>) -> DynamicObject {
    let conditions: Vec<Value> = condition
        .map(|type_| json!({"type": type_, "status": "True", "reason": "Reason"}))
        .into_iter()
        .collect();
    serde_json::from_value(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": "n",
            "labels": {labels::HOOK_OF: "owner"}, "annotations": {annotations::HOOK_RUN: run},
        },
        "status": {"conditions": conditions},
    }))
    .unwrap()
}

fn applied(object: DynamicObject) -> ObjectEvent {
    ObjectEvent::Applied(Box::new(object))
}

fn deleted(object: DynamicObject) -> ObjectEvent {
    ObjectEvent::Deleted(Box::new(object))
}

fn listed(objects: Vec<DynamicObject>) -> ObjectEvent {
    ObjectEvent::Listed { objects, version: "1".to_owned() }
}

/// Returns the state for a component that waits for the Jobs `a` and `b` of a run.
fn waiting() -> HookSubscriptions {
    let mut state = HookSubscriptions::default();
    state.subscribe(None, &component_key(), &run(RUN, &["a", "b"]));
    state
}

/// Returns a run of these Jobs.
fn run(mark: &str, names: &[&str]) -> HookRunSpec {
    let hooks = names.iter().map(|name| hook(name)).collect();
    HookRunSpec { mark: mark.to_owned(), watch_specs: vec![jobs()], hooks }
}

fn take(state: &mut HookSubscriptions, event: &ObjectEvent) {
    state.take(&component_key(), None, &jobs(), event);
}

fn hook_state(state: &mut HookSubscriptions, name: &str) -> HookState {
    state.awaited(&component_key(), RUN, &hook(name)).map(|awaited| awaited.state.clone()).unwrap_or_default()
}

#[test]
fn a_result_outlasts_the_object() {
    let mut state = waiting();
    assert_eq!(hook_state(&mut state, "a"), HookState::Unreported);
    take(&mut state, &applied(job(RUN, "a", None)));
    assert_eq!(hook_state(&mut state, "a"), HookState::Running);
    take(&mut state, &applied(job(RUN, "a", Some("Complete"))));
    for after in [deleted(job(RUN, "a", Some("Complete"))), listed(vec![]), applied(job(RUN, "a", None))] {
        take(&mut state, &after);
        assert_eq!(hook_state(&mut state, "a"), HookState::Ended(Ok(())), "{after:?}");
    }
    assert_eq!(hook_state(&mut state, "b"), HookState::Unreported);
}

#[test]
fn the_last_event_of_a_deleted_job_has_its_result() {
    let mut state = waiting();
    take(&mut state, &deleted(job(RUN, "a", Some("Complete"))));
    take(&mut state, &deleted(job(RUN, "b", Some("Failed"))));
    assert_eq!(hook_state(&mut state, "a"), HookState::Ended(Ok(())));
    assert_eq!(hook_state(&mut state, "b"), HookState::Ended(Err("it failed: Reason".to_owned())));
}

#[test]
fn a_running_hook_that_is_deleted_or_unlisted_is_gone() {
    let mut state = waiting();
    take(&mut state, &listed(vec![job(RUN, "a", None), job(RUN, "b", None)]));
    assert_eq!(
        (hook_state(&mut state, "a"), hook_state(&mut state, "b")),
        (HookState::Running, HookState::Running)
    );
    take(&mut state, &deleted(job(RUN, "a", None)));
    take(&mut state, &listed(vec![]));
    assert_eq!(
        (hook_state(&mut state, "a"), hook_state(&mut state, "b")),
        (HookState::Gone, HookState::Gone)
    );
}

#[test]
fn a_list_before_the_creation_changes_no_state() {
    let mut state = waiting();
    take(&mut state, &listed(vec![]));
    assert_eq!(hook_state(&mut state, "a"), HookState::Unreported);
}

#[test]
fn events_of_other_runs_and_targets_are_ignored() {
    let mut state = waiting();
    take(&mut state, &applied(job("earlier", "a", Some("Complete"))));
    assert_eq!(hook_state(&mut state, "a"), HookState::Unreported);
    let target = SecretKey { namespace: "hub".to_owned(), name: "s".to_owned(), key: "config".to_owned() };
    state.take(&component_key(), Some(&target), &jobs(), &applied(job(RUN, "a", Some("Complete"))));
    assert_eq!(hook_state(&mut state, "a"), HookState::Unreported);
}

#[test]
fn ended_runs_are_dropped_and_resubscribed_runs_keep_results() {
    let mut state = waiting();
    take(&mut state, &applied(job(RUN, "a", Some("Complete"))));
    let again = state.subscribe(None, &component_key(), &run(RUN, &["a", "b"]));
    assert_eq!(again, [jobs()]);
    state.subscribe(None, &component_key(), &run("test", &["t"]));
    assert_eq!(hook_state(&mut state, "a"), HookState::Ended(Ok(())));
    let both = [RUN.to_owned(), "test".to_owned()];
    assert_eq!(state.retain(&component_key(), &both), None, "nothing changed");
    assert_eq!(state.retain(&component_key(), &both[1..]), Some(vec![jobs()]));
    assert_eq!(hook_state(&mut state, "a"), HookState::Unreported);
    assert_eq!(state.retain(&component_key(), &[]), Some(vec![]));
    assert!(state.subscriptions.is_empty());
    assert_eq!(state.retain(&component_key(), &[]), None);
}

#[test]
fn a_missing_hook_is_awaited_until_the_timeout() {
    let (mut awaited, now) = (AwaitedHook::default(), Instant::now());
    assert_eq!(awaited.remaining_report_time(now), DELETION_REPORT_TIMEOUT);
    assert_eq!(awaited.remaining_report_time(now + DELETION_REPORT_TIMEOUT / 2), DELETION_REPORT_TIMEOUT / 2);
    assert_eq!(awaited.remaining_report_time(now + DELETION_REPORT_TIMEOUT * 2), Duration::ZERO);
}

#[test]
fn an_event_concerns_the_owner_of_the_hook() {
    let other = ComponentKey { owner: "other".into(), ..component_key() };
    let event = applied(job(RUN, "a", None));
    assert!(concerns(&event, &component_key()) && !concerns(&event, &other));
    assert!(concerns(&listed(vec![]), &other));
}

#[test]
fn first_lists_are_awaited_once_until_the_timeout() {
    let (mut state, start) = (waiting(), Instant::now());
    let mut left = |run: &str, now: Instant| state.remaining_list_time(&component_key(), run, now);
    assert_eq!(left(RUN, start), Some(FIRST_LIST_TIMEOUT));
    assert_eq!(left(RUN, start + FIRST_LIST_TIMEOUT / 5), Some(FIRST_LIST_TIMEOUT * 4 / 5));
    assert_eq!(left(RUN, start + FIRST_LIST_TIMEOUT), None);
    assert_eq!(left("another", start), None, "without a subscription");
}
