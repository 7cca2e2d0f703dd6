use kyma_api::Digests;
use kyma_api::condition::Status;

use super::fields::digests;
use super::*;
use crate::plan::tests::{deployment, fault, id, object, running};
use crate::plan::{DriftMode, ObjectState};

#[test]
fn partly_sent_version_is_not_reported_as_the_installed_one() {
    let seen = running(vec![object(deployment())]);
    assert!(is_there(&seen, &StopReason::Ready) && is_there(&seen, &StopReason::Failed(fault())));
    assert!(
        !is_there(&seen, &StopReason::WaitingForSync)
            && !is_there(&seen, &StopReason::NewerVersion("2.0.0".to_owned()))
    );
    let changed = running(vec![ObjectState { changed: true, ..object(deployment()) }]);
    let unsent = [StopReason::Failed(fault()), StopReason::NewerInstallation("2.0.0".to_owned())];
    assert!(unsent.iter().all(|stop_reason| !is_there(&changed, stop_reason)));
    let refused = running(vec![ObjectState { fault: Some(fault()), ..object(deployment()) }]);
    assert!(!is_there(&refused, &StopReason::Failed(fault())));
}

#[test]
fn content_is_not_reported_installed_while_old_objects_remain() {
    let recorded =
        Digests { inputs: Some("i".to_owned()), source: Some("s".to_owned()), ..Digests::default() };
    let told = |is_of_content: bool, seen: &Observed| {
        let digests = digests(&recorded, is_of_content, seen);
        assert_eq!(digests.source, recorded.source);
        digests.inputs.is_some()
    };
    let mut seen = running(vec![object(deployment())]);
    assert!(told(true, &seen));
    seen.inventory.insert(id("", "ConfigMap", "left"), kyma_object_set::Entry::default());
    assert!(told(false, &seen), "it is the content before that is recorded");
    assert!(!told(true, &seen), "not removed yet");
    seen.pruned = Some(Err(fault()));
    assert!(!told(true, &seen), "the guard holds it back");
    seen.pruned = Some(Ok(()));
    assert!(told(true, &seen), "it is gone, whatever the watch shows");
    seen.pruning = true;
    assert!(!told(true, &seen), "what waits for it has to be removed yet");
}

#[test]
fn healthy_says_nothing_of_objects_that_were_not_applied() {
    let service = id("", "Service", "metrics-api");
    let role = id("rbac.authorization.k8s.io", "Role", "refused");
    let mut seen = running(vec![object(role.clone()), object(service.clone())]);
    seen.inventory.remove(&role);
    seen.inventory.remove(&service);
    seen.objects[0] = ObjectState { counts: false, fault: Some(fault()), ..object(role.clone()) };
    seen.objects[1] = ObjectState { health: None, ..object(service.clone()) };
    let healthy = healthy(&seen, &StopReason::Ready);
    assert_eq!((healthy.status, healthy.reason), (Status::Unknown, Reason::Progressing));
    assert_eq!(healthy.message, format!("not applied yet: {service}"));
    let applied = applied(&seen, &StopReason::Failed(fault()));
    assert_eq!((applied.status, applied.reason), (Status::False, fault().reason));
}

#[test]
fn a_manager_that_is_not_there_makes_nothing_healthy() {
    let mut seen = running(vec![ObjectState { counts: false, ..object(deployment()) }]);
    seen.stray_manager = Some("Deployment.apps other".to_owned());
    let healthy = healthy(&seen, &StopReason::Ready);
    assert_eq!((healthy.status, healthy.reason), (Status::Unknown, Reason::SpecInvalid));
    assert_eq!(
        healthy.message,
        "spec.manager names Deployment.apps other, which is not among the component's objects"
    );
}

#[test]
fn a_ready_component_is_not_ready_once_its_watches_fail() {
    let pause = std::time::Duration::from_secs(40);
    let told = |stop_reason: StopReason| {
        let summary = StatusSummary { was_ready: true, watch_wait: Some(pause), ..StatusSummary::default() };
        ReconcileResult { stop_reason, summary }.progress()
    };
    let first = told(StopReason::WaitingForSync);
    assert_eq!((first.state, first.wait), (State::Ready, Wait::Answer(pause)), "nothing was done");
    let why = Failure::new(Reason::TargetForbidden, "Secret (watch Secret: no)");
    let after = told(StopReason::SyncFailed(why.clone()));
    assert_eq!((after.state, after.reason, &after.message), (State::Warning, why.reason, &why.message));
    assert_eq!(after.failure.unwrap().retry_after, Some(pause));

    let mut seen = running(vec![object(deployment())]);
    seen.watched = false;
    let unknown = healthy(&seen, &StopReason::SyncFailed(why.clone()));
    assert_eq!(
        (unknown.status, unknown.reason, unknown.message),
        (Status::Unknown, why.reason, why.message.clone())
    );
    seen.objects[0].health = Some(kyma_health::HealthStatus::Failed);
    let failed = healthy(&seen, &StopReason::SyncFailed(why));
    assert_eq!(failed.reason, Reason::Unhealthy, "what is seen is told");
}

#[test]
fn objects_left_on_the_target_are_reported_with_their_reason() {
    let mut seen = running(vec![object(deployment())]);
    seen.left = vec!["PersistentVolumeClaim here/c (it holds data)".to_owned()];
    let applied = applied(&seen, &StopReason::Ready);
    assert_eq!(applied.message, "left on the target: PersistentVolumeClaim here/c (it holds data)");
    let waiting = with_left("waiting".to_owned(), &seen.left);
    assert_eq!(waiting, "waiting; left on the target: PersistentVolumeClaim here/c (it holds data)");
    assert_eq!(with_left("waiting".to_owned(), &[]), "waiting");
}

#[test]
fn applied_unhealthy_objects_are_named_before_missing_ones() {
    let service = id("", "Service", "later");
    let mut seen = running(vec![object(deployment()), object(service.clone())]);
    seen.inventory.remove(&service);
    seen.objects[0].health = None;
    let healthy = healthy(&seen, &StopReason::Ready);
    assert_eq!((healthy.status, healthy.message), (Status::False, deployment().to_string()));
}

#[test]
fn adopted_objects_that_differ_are_named_with_the_remedy() {
    let mut seen = running(vec![object(deployment())]);
    seen.drift = DriftMode::Warn;
    seen.as_found = Some(vec![]);
    assert_eq!(applied(&seen, &StopReason::Ready).message, "adopted from another system; nothing differs");
    seen.as_found = Some(vec![deployment().to_string()]);
    seen.unrecorded = Some("Helm's record would be too large".to_owned());
    let message = applied(&seen, &StopReason::Ready).message;
    assert!(
        message.contains("although they differ: Deployment.apps here/d; ")
            && message.contains("drift.mode: Correct"),
        "{message}"
    );
    assert!(message.ends_with("; Helm's record would be too large"), "{message}");
}

#[test]
fn a_requeue_is_never_later_than_the_next_health_check() {
    let due = std::time::Duration::from_secs(20);
    let working = || Progress::working("");
    assert_eq!(no_later(working(), due).wait, Wait::Timer(due));
    assert_eq!(no_later(working().again_after(due * 2), due).wait, Wait::Timer(due));
    assert_eq!(no_later(working().again_after(due / 2), due).wait, Wait::Timer(due / 2));
    let stopped = |failure: Failure| no_later(Progress::stopped(failure), due).failure.unwrap();
    let after = |failure: Failure| kyma_controller::longest_delay(&stopped(failure));
    assert_eq!(after(Failure::new(Reason::HealthTimeout, "")), Some(due));
    assert_eq!(after(Failure::new(Reason::DriftFlapping, "").retry_after(due / 2)), Some(due / 2));
    let timeout = stopped(Failure::new(Reason::TargetTimeout, ""));
    assert_eq!(timeout.at_latest, None, "its class says when");
    let forbidden = Failure::new(Reason::TargetForbidden, "");
    let late = no_later(Progress::stopped(forbidden.clone()), due * 9).failure.unwrap();
    let first = |failure: &Failure| kyma_controller::delay_after(failure, 1, 0.5);
    assert_eq!(first(&late), first(&forbidden), "it has its own pauses until then");
}
