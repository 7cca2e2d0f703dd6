use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kyma_controller::Wait;
use serde_json::json;

use super::*;
use crate::driver::failure_times::FailureTimes;

const NAME: &str = "Deployment.apps kyma-system/manager";

fn manager() -> Manager {
    Manager {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "manager".to_owned(),
        namespace: Some("kyma-system".to_owned()),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Judges objects of these healths 10 seconds after a failure was first seen.
fn judged(found: &[Health], grace: i64) -> ManagerHealth {
    let found: Vec<(String, Health)> = found.iter().map(|health| (NAME.to_owned(), health.clone())).collect();
    let clock = FailureClock { now: at(110), since: at(100), grace: SignedDuration::from_secs(grace) };
    judge(NAME, &found, clock)
}

fn health(status: HealthStatus, words: &str) -> Health {
    Health::new(status, words)
}

/// Returns the condition Ready of a status.
fn reported(status: &str, reason: Reason) -> Condition {
    Condition {
        type_: condition::types::READY.to_owned(),
        status: status.to_owned(),
        reason: reason.as_str().to_owned(),
        message: String::new(),
        observed_generation: Some(1),
        last_transition_time: Time(at(0)),
    }
}

fn failed(from: Option<i64>) -> Health {
    Health { failed_from: from.map(at), ..Health::new(HealthStatus::Failed, "it crashes") }
}

#[test]
fn a_manager_is_judged_by_its_health_and_the_age_of_a_failure() {
    let awaited = |words: &str, seconds: Option<u64>| {
        ManagerHealth::Waiting(format!("waiting for {NAME}{words}"), seconds.map(Duration::from_secs))
    };
    let fails = || ManagerHealth::Failed(format!("{NAME} (it crashes)"));
    let current = || health(HealthStatus::Current, "");
    let rows = [
        ("absent", vec![], 30, awaited(" (it does not exist)", None)),
        ("current", vec![current()], 30, ManagerHealth::Healthy),
        ("paused", vec![health(HealthStatus::Current, "it is paused")], 30, ManagerHealth::Healthy),
        ("in progress", vec![health(HealthStatus::InProgress, "0 of 1")], 30, awaited(" (0 of 1)", None)),
        ("without words", vec![health(HealthStatus::InProgress, "")], 30, awaited("", None)),
        ("being deleted", vec![health(HealthStatus::Terminating, "going")], 30, awaited(" (going)", None)),
        ("unknown", vec![health(HealthStatus::Unknown, "")], 30, awaited("", None)),
        ("failed for a short time", vec![failed(None)], 30, awaited(" (it crashes)", Some(20))),
        ("failed for long", vec![failed(None)], 10, fails()),
        ("failed, and was unhealthy", vec![failed(None)], 0, fails()),
        ("failed before it was seen", vec![failed(Some(70))], 30, fails()),
        ("will have failed", vec![failed(Some(115))], 30, awaited(" (it crashes)", Some(35))),
        ("one of several failed", vec![current(), failed(None)], 0, fails()),
        (
            "one of several is awaited",
            vec![current(), health(HealthStatus::InProgress, "")],
            0,
            awaited("", None),
        ),
    ];
    for (name, found, grace, expected) in rows {
        assert_eq!(judged(&found, grace), expected, "{name}");
    }
}

#[test]
fn the_state_follows_the_judgement_and_what_the_step_said_stays() {
    let ready = || Progress::ready("1");
    let waits = || ManagerHealth::Waiting(format!("waiting for {NAME}"), None);
    let state = |progress: Progress| (progress.state, progress.reason, progress.message);

    assert_eq!(ManagerHealth::Healthy.add_to(ready(), None), ready());
    let was_ready = reported("True", Reason::Succeeded);
    let waiting = waits().add_to(ready(), Some(&was_ready));
    assert_eq!(waiting.version.as_deref(), Some("1"));
    assert_eq!(state(waiting), (State::Processing, Reason::Progressing, format!("waiting for {NAME}")));
    let working = waits().add_to(Progress::working("waiting for Pods"), Some(&was_ready));
    assert_eq!(working.message, format!("waiting for Pods; waiting for {NAME}"));
    let timed =
        ManagerHealth::Waiting(String::new(), Some(Duration::from_secs(7))).add_to(ready(), Some(&was_ready));
    assert_eq!(timed.wait, Wait::Timer(Duration::from_secs(7)));

    let unhealthy = ManagerHealth::Failed(NAME.to_owned()).add_to(ready(), Some(&was_ready));
    assert_eq!(unhealthy.failure.clone().map(|failure| failure.reason), Some(Reason::Unhealthy));
    assert_eq!(unhealthy.version.as_deref(), Some("1"));
    assert_eq!(state(unhealthy), (State::Error, Reason::Unhealthy, NAME.to_owned()));
}

#[test]
fn a_failed_read_neither_ends_readiness_nor_grants_it() {
    let failure = || Failure::new(Reason::TargetServerError, "list Deployment manager: 503");
    let unknown = |progress: Progress, reported: Option<&Condition>| {
        let judgement = unreadable(&manager(), failure());
        assert_eq!(judgement, ManagerHealth::Unknown(failure()));
        judgement.add_to(progress, reported)
    };
    let was_ready = reported("True", Reason::Succeeded);
    let stays = Progress::ready("1").again_within(LOOKUP_INTERVAL);
    assert_eq!(unknown(Progress::ready("1"), Some(&was_ready)), stays);
    let message = "the health of spec.manager is unknown: list Deployment manager: 503";
    let first = unknown(Progress::ready("1"), None);
    assert_eq!((first.state, first.message.as_str(), first.wait), (State::Processing, message, stays.wait));
    assert_eq!(first.failure, None);
    let working = unknown(Progress::working("waiting for Pods"), Some(&was_ready));
    assert_eq!(working.message, format!("waiting for Pods; {message}"));
    let was_unhealthy = Condition { message: NAME.to_owned(), ..reported("False", Reason::Unhealthy) };
    let unhealthy = unknown(Progress::ready("1"), Some(&was_unhealthy));
    assert_eq!(
        (unhealthy.state, unhealthy.reason, unhealthy.message.as_str()),
        (State::Error, Reason::Unhealthy, NAME)
    );
    let expected = Failure::new(Reason::Unhealthy, NAME).no_later_than(LOOKUP_INTERVAL);
    assert_eq!(unhealthy.failure, Some(expected));
}

#[test]
fn a_missing_right_is_reported_with_the_rule_that_grants_it() {
    let forbidden = Failure::new(Reason::TargetForbidden, "list Deployment manager: forbidden");
    let progress = unreadable(&manager(), forbidden).add_to(Progress::ready("1"), None);
    assert_eq!((progress.state, progress.reason), (State::Warning, Reason::TargetForbidden));
    let expected =
        "list Deployment manager: forbidden; the role on the target needs list and watch on Deployment.apps";
    assert!(progress.message.starts_with(expected), "{}", progress.message);
    assert!(progress.message.contains("TARGET_RULES"), "{}", progress.message);
}

#[test]
fn only_names_of_objects_are_sent() {
    let place = |name: &str, namespace: Option<&str>| {
        let manager =
            Manager { name: name.to_owned(), namespace: namespace.map(ToOwned::to_owned), ..manager() };
        let place = namespace_and_name(&manager)
            .map(|(namespace, name)| (namespace.map(str::to_owned), name.to_owned()));
        place.map_err(|failure| (failure.reason, failure.message))
    };
    assert_eq!(place("a", Some("b")), Ok((Some("b".to_owned()), "a".to_owned())));
    assert_eq!(place("a", Some("")), Ok((None, "a".to_owned())), "any namespace");
    let wrong = |field: &str| {
        Err((Reason::SpecInvalid, format!("spec.manager.{field} is not the name of an object")))
    };
    assert_eq!(place("a,metadata.namespace=b", None), wrong("name"));
    assert_eq!(place("", None), wrong("name"));
    assert_eq!(place("a", Some("b/pods")), wrong("namespace"));
}

#[test]
fn without_a_namespace_objects_of_the_component_come_first() {
    let object = |name: &str, namespace: &str, owner: &str| -> DynamicObject {
        let label = kyma_api::labels::OWNER;
        let labels = json!({label: owner});
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    };
    let places = |objects: Vec<DynamicObject>, namespace: Option<&str>| -> Vec<String> {
        let named = named(objects, (namespace, "manager"), "us");
        named.into_iter().map(|object| object.metadata.namespace.unwrap_or_default()).collect()
    };
    let others =
        || vec![object("manager", "a", "they"), object("manager", "b", "they"), object("x", "a", "us")];
    assert_eq!(places(others(), None), ["a", "b"]);
    assert_eq!(places(others(), Some("b")), ["b"]);
    let with_own = || [others(), vec![object("manager", "c", "us")]].concat();
    assert_eq!(places(with_own(), None), ["c"]);
    assert_eq!(places(with_own(), Some("a")), ["a"]);
    assert_eq!(places(vec![object("manager", "no name", "us")], None), [""; 0]);
}

#[test]
fn an_item_of_a_list_is_assessed_by_the_rules_of_its_kind() {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
    let item = json!({"metadata": {"name": "manager"}, "spec": {"paused": true, "replicas": 0}});
    let health = assess(&kind, &serde_json::from_value(item).unwrap(), at(0));
    assert_eq!((health.status, health.message.as_str()), (HealthStatus::Current, "it is paused"));
}

#[test]
fn a_failure_is_timed_from_its_first_sight_until_it_ends() {
    let times = FailureTimes::default();
    let mut resource = ConfigMap::default();
    resource.metadata.name = Some("a".to_owned());
    assert_eq!(times.first_seen(&resource, true, at(1)), at(1));
    assert_eq!(times.first_seen(&resource, true, at(5)), at(1));
    assert_eq!(times.first_seen(&resource, false, at(6)), at(6));
    assert_eq!(times.first_seen(&resource, true, at(7)), at(7));
    times.forget(&ObjectRef::from_obj(&resource));
    assert_eq!(times.first_seen(&resource, true, at(9)), at(9));
}
