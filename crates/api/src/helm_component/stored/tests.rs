use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{
    Adoption, Digests, FailedRevision, HelmComponentStatus, HookPhase, Hooks, PruneBaseline, ReleaseRecord,
    ResolvedVersion, RollbackTarget,
};

mod schema;

/// Reads a stored status.
fn read(status: Value) -> HelmComponentStatus {
    serde_json::from_value(status).unwrap()
}

fn former_hooks() -> Value {
    json!({
        "content": "sha256:1", "event": "pre-upgrade", "phase": "Failed", "attempt": 2,
        "begunAt": "2026-01-01T00:00:00.000001Z", "failedAt": "2026-01-01T00:01:00Z", "failure": "it failed",
        "done": ["Job.batch shop/a"], "onDelete": true,
    })
}

fn hooks() -> Hooks {
    Hooks {
        digest: "sha256:1".to_owned(),
        event: "pre-upgrade".to_owned(),
        phase: HookPhase::Failed,
        attempts: Some(2),
        start_time: Some("2026-01-01T00:00:00.000001Z".to_owned()),
        last_failure_time: Some("2026-01-01T00:01:00Z".to_owned()),
        message: Some("it failed".to_owned()),
        succeeded: Some(vec!["Job.batch shop/a".to_owned()]),
        has_delete_hooks: true,
        ..Hooks::default()
    }
}

fn former_digests() -> Value {
    json!({
        "inputs": "sha256:i", "kinds": "sha256:k", "source": "sha256:s", "values": "sha256:v",
        "render": "sha256:r", "rendered": "sha256:o",
    })
}

fn digests() -> Digests {
    Digests {
        inputs: Some("sha256:i".to_owned()),
        api_versions: Some("sha256:k".to_owned()),
        source: Some("sha256:s".to_owned()),
        values: Some("sha256:v".to_owned()),
        stored_render: Some("sha256:r".to_owned()),
        objects: Some("sha256:o".to_owned()),
    }
}

#[test]
fn digests_of_an_earlier_version_are_read() {
    assert_eq!(read(json!({"digests": former_digests()})).digests, Some(digests()));
    assert_eq!(read(json!({"digests": {}})).digests, Some(Digests::default()));
}

#[test]
fn current_digests_take_precedence_as_a_whole() {
    let mut both = former_digests();
    both["objects"] = json!("sha256:n");
    let expected = Digests {
        api_versions: None,
        stored_render: None,
        objects: Some("sha256:n".to_owned()),
        ..digests()
    };
    assert_eq!(read(json!({"digests": both})).digests, Some(expected));
}

fn former_version() -> Value {
    json!({"version": "1.2.0", "digest": "sha256:d", "of": "sha256:q", "held": "SourceNotFound: none"})
}

fn resolved_version() -> ResolvedVersion {
    ResolvedVersion {
        version: "1.2.0".to_owned(),
        digest: "sha256:d".to_owned(),
        request_digest: "sha256:q".to_owned(),
        message: Some("SourceNotFound: none".to_owned()),
    }
}

#[test]
fn resolved_version_of_an_earlier_version_is_read() {
    assert_eq!(read(json!({"resolved": former_version()})).resolved, Some(resolved_version()));
    let mut both = former_version();
    both["requestDigest"] = json!("sha256:n");
    let expected =
        ResolvedVersion { request_digest: "sha256:n".to_owned(), message: None, ..resolved_version() };
    assert_eq!(read(json!({"resolved": both})).resolved, Some(expected));
}

fn prune_baseline() -> PruneBaseline {
    PruneBaseline { objects_digest: "sha256:o".to_owned(), object_count: 3, api_version_gone: true }
}

fn former_baseline() -> Value {
    json!({"rendered": "sha256:o", "objects": 3, "apiVersionGone": true})
}

#[test]
fn prune_baseline_of_an_earlier_version_is_read() {
    let former = former_baseline();
    assert_eq!(read(json!({"replaces": former})).prune_baseline, Some(prune_baseline()));
    let current = json!({"objectsDigest": "sha256:n", "objectCount": 5});
    let status = read(json!({"replaces": former, "pruneBaseline": current}));
    let expected =
        PruneBaseline { objects_digest: "sha256:n".to_owned(), object_count: 5, api_version_gone: false };
    assert_eq!(status.prune_baseline, Some(expected));
    assert_eq!(read(json!({"replaces": {"objects": 3}})).prune_baseline, None, "incomplete");
}

fn adoption() -> Adoption {
    Adoption {
        from: vec!["Helm".to_owned()],
        revision: Some(4),
        inputs_digest: Some("sha256:i".to_owned()),
        differing_count: Some(1),
        differing_objects: Some(vec!["ConfigMap shop/a".to_owned()]),
    }
}

fn former_adoption() -> Value {
    json!({
        "from": ["Helm"], "revision": 4, "wish": "sha256:i", "differing": 1, "objects": ["ConfigMap shop/a"],
    })
}

#[test]
fn adoption_of_an_earlier_version_is_read() {
    let former = former_adoption();
    assert_eq!(read(json!({"takenOver": former})).adopted, Some(adoption()));
    let status = read(json!({"takenOver": former, "adopted": {"from": ["Flux"]}}));
    assert_eq!(status.adopted, Some(Adoption { from: vec!["Flux".to_owned()], ..Adoption::default() }));
}

fn release_record() -> ReleaseRecord {
    ReleaseRecord {
        digest: "sha256:c".to_owned(),
        revision: Some(4),
        status: Some("failed".to_owned()),
        message: Some("too large".to_owned()),
    }
}

fn former_record() -> Value {
    json!({"content": "sha256:c", "revision": 4, "status": "failed", "failure": "too large"})
}

#[test]
fn release_record_of_an_earlier_version_is_read() {
    let former = former_record();
    assert_eq!(read(json!({"history": former})).release_record, Some(release_record()));
    let status = read(json!({"history": former, "releaseRecord": {"digest": "sha256:n"}}));
    let expected = ReleaseRecord { digest: "sha256:n".to_owned(), ..ReleaseRecord::default() };
    assert_eq!(status.release_record, Some(expected));
    assert_eq!(read(json!({"history": {"revision": 4}})).release_record, None, "incomplete");
}

fn failed_revision() -> FailedRevision {
    FailedRevision {
        version: "2.0.0".to_owned(),
        inputs_digest: "sha256:i".to_owned(),
        reason: "HealthTimeout".to_owned(),
        message: "not ready".to_owned(),
        last_failure_time: "2026-01-01T00:01:00Z".to_owned(),
        attempts: 2,
        retrying: true,
    }
}

fn former_failure() -> Value {
    json!({
        "version": "2.0.0", "inputs": "sha256:i", "reason": "HealthTimeout", "message": "not ready",
        "failedAt": "2026-01-01T00:01:00Z", "attempt": 2, "retrying": true,
    })
}

#[test]
fn failed_revision_of_an_earlier_version_is_read() {
    let former = former_failure();
    assert_eq!(read(json!({"rollback": former})).failed_revision, Some(failed_revision()));
    let newer = FailedRevision { version: "3.0.0".to_owned(), ..failed_revision() };
    let status = read(json!({"rollback": former, "failedRevision": newer}));
    assert_eq!(status.failed_revision, Some(newer));
    assert_eq!(read(json!({"rollback": {"version": "2.0.0"}})).failed_revision, None, "incomplete");
}

fn rollback_target() -> RollbackTarget {
    RollbackTarget {
        version: "1.0.0".to_owned(),
        digests: Digests { api_versions: None, ..digests() },
        secret_digest: Some("sha256:x".to_owned()),
        message: Some("too large".to_owned()),
    }
}

fn former_target() -> Value {
    json!({
        "version": "1.0.0", "inputs": "sha256:i", "source": "sha256:s", "values": "sha256:v",
        "render": "sha256:r", "rendered": "sha256:o", "digest": "sha256:x", "failure": "too large",
    })
}

#[test]
fn rollback_target_of_an_earlier_version_is_read() {
    let former = former_target();
    assert_eq!(read(json!({"kept": former})).rollback_target, Some(rollback_target()));
    let newer = RollbackTarget { version: "1.1.0".to_owned(), message: None, ..rollback_target() };
    let status = read(json!({"kept": former, "rollbackTarget": newer}));
    assert_eq!(status.rollback_target, Some(newer));
    assert_eq!(read(json!({"kept": {"version": "1.0.0"}})).rollback_target, None, "incomplete");
}

fn condition(type_: &str, reason: &str, seconds: i64) -> Condition {
    Condition {
        last_transition_time: Time(Timestamp::from_second(seconds).unwrap()),
        message: "m".to_owned(),
        observed_generation: Some(1),
        reason: reason.to_owned(),
        status: "False".to_owned(),
        type_: type_.to_owned(),
    }
}

#[test]
fn conditions_of_an_earlier_version_get_their_current_names() {
    let stored = [
        condition("Ready", "NotKept", 1),
        condition("Kept", "NotKept", 2),
        condition("Tested", "TestFailed", 3),
        condition("Healthy", "Succeeded", 4),
    ];
    let expected = vec![
        condition("Ready", "RollbackUnavailable", 1),
        condition("RollbackAvailable", "RollbackUnavailable", 2),
        condition("TestSuccess", "TestFailed", 3),
        condition("Healthy", "Succeeded", 4),
    ];
    assert_eq!(read(json!({"conditions": stored})).conditions, Some(expected));
}

#[test]
fn current_conditions_take_precedence() {
    let current = condition("RollbackAvailable", "Succeeded", 2);
    let stored = [condition("Kept", "NotKept", 1), current.clone()];
    assert_eq!(read(json!({"conditions": stored})).conditions, Some(vec![current]));
}

#[test]
fn hooks_of_an_earlier_version_are_read() {
    let status = read(json!({"hooks": former_hooks(), "tests": former_hooks()}));
    assert_eq!(status.hooks, Some(hooks()));
    assert_eq!(status.tests, Some(hooks()));
    let mut running = former_hooks();
    running["running"] = json!("Job.batch shop/b");
    running["runningUid"] = json!("u");
    let expected =
        Hooks { running: Some("Job.batch shop/b".to_owned()), running_uid: Some("u".to_owned()), ..hooks() };
    assert_eq!(read(json!({"hooks": running})).hooks, Some(expected));
}

#[test]
fn current_hooks_take_precedence_as_a_whole() {
    let mut both = former_hooks();
    both["digest"] = json!("sha256:2");
    both["attempts"] = json!(1);
    let expected = Hooks {
        digest: "sha256:2".to_owned(),
        event: "pre-upgrade".to_owned(),
        phase: HookPhase::Failed,
        attempts: Some(1),
        ..Hooks::default()
    };
    assert_eq!(read(json!({"hooks": both})).hooks, Some(expected));
}

#[test]
fn a_status_of_this_version_is_read_as_it_was_written() {
    let status = HelmComponentStatus {
        digests: Some(digests()),
        prune_baseline: Some(prune_baseline()),
        adopted: Some(adoption()),
        release_record: Some(release_record()),
        failed_revision: Some(failed_revision()),
        rollback_target: Some(rollback_target()),
        resolved: Some(resolved_version()),
        hooks: Some(hooks()),
        ..HelmComponentStatus::default()
    };
    assert_eq!(read(serde_json::to_value(&status).unwrap()), status);
    assert_eq!(read(json!({})), HelmComponentStatus::default());
}

#[test]
fn only_current_names_are_written() {
    let stored = json!({
        "digests": former_digests(), "hooks": former_hooks(), "resolved": former_version(),
        "kept": {"inputs": "i", "rendered": "o"}, "rollback": {"inputs": "i"}, "takenOver": {"from": []},
        "replaces": {"rendered": "o", "objects": 1}, "history": {"content": "c"},
    });
    let written = serde_json::to_value(read(stored)).unwrap();
    let names =
        |record: &Value| -> BTreeSet<String> { record.as_object().unwrap().keys().cloned().collect() };
    let fields = [
        "adopted",
        "digests",
        "failedRevision",
        "hooks",
        "pruneBaseline",
        "releaseRecord",
        "resolved",
        "rollbackTarget",
    ];
    assert_eq!(names(&written), fields.map(str::to_owned).into());
    let digests = ["apiVersions", "inputs", "objects", "source", "storedRender", "values"];
    assert_eq!(names(&written["digests"]), digests.map(str::to_owned).into());
    let version = ["digest", "message", "requestDigest", "version"];
    assert_eq!(names(&written["resolved"]), version.map(str::to_owned).into());
    let hooks = [
        "attempts",
        "digest",
        "event",
        "hasDeleteHooks",
        "lastFailureTime",
        "message",
        "phase",
        "startTime",
        "succeeded",
    ];
    assert_eq!(names(&written["hooks"]), hooks.map(str::to_owned).into());
}
