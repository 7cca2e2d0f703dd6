//! Tests the obstacles and steps of giving a Kyma back.

use serde_json::{Value, json};

use super::*;
use crate::command::migrate::klm::sample::Sample;

fn handed_over() -> Sample {
    let mut sample = Sample::installed();
    sample.mark(labels::HAND_OVER_DONE);
    sample.component(false, &sample.recorded());
    sample.applied();
    sample.taken_over();
    sample.dropped();
    sample.reported();
    sample.settled();
    sample
}

#[test]
fn each_step_follows_from_what_the_one_before_left() {
    let keda = || "keda".to_owned();
    let mut sample = handed_over();
    assert_eq!(obstacles(&sample.facts()), Vec::<String>::new());
    assert_eq!(next(&sample.facts()), RollbackStep::StopOperators);
    sample.kyma_label(labels::HAND_OVER_PENDING);
    assert_eq!(next(&sample.facts()), RollbackStep::AwaitOperator("kyma-operator"));
    sample.kyma["metadata"]["annotations"][annotations::stopped("kyma-operator")] = json!("true");
    assert_eq!(next(&sample.facts()), RollbackStep::StopComponent(keda()));
    let recorded = sample.recorded();
    sample.component(true, &recorded);
    assert_eq!(next(&sample.facts()), RollbackStep::AwaitComponentStop(keda()));
    sample.stopped();
    assert_eq!(next(&sample.facts()), RollbackStep::ReturnObjects(keda()));
    sample.given_back();
    assert_eq!(next(&sample.facts()), RollbackStep::DeleteComponent(keda()));
    sample.component.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(next(&sample.facts()), RollbackStep::AwaitDeletion(keda()));
    sample.component = None;
    assert_eq!(next(&sample.facts()), RollbackStep::RestoreManifest(keda()));
    sample.manifest["metadata"]["labels"][labels::HAND_OVER] = json!(labels::HAND_OVER_PENDING);
    assert_eq!(next(&sample.facts()), RollbackStep::RestoreStatus);
    sample.kyma["metadata"]["managedFields"] = Sample::installed().kyma["metadata"]["managedFields"].clone();
    sample.mirrors.push(("sample-nats-1".to_owned(), "m".to_owned()));
    assert_eq!(next(&sample.facts()), RollbackStep::DeleteMirrors, "or KLM would never act on that module");
    sample.mirrors.clear();
    assert_eq!(next(&sample.facts()), RollbackStep::RemoveLabels);
    sample.kyma = Sample::installed().kyma;
    assert_eq!(next(&sample.facts()), RollbackStep::Done);
}

#[test]
fn interrupted_hand_over_can_be_handed_back_from_every_step() {
    let mut sample = Sample::installed();
    sample.mark(labels::HAND_OVER_PENDING);
    assert_eq!(next(&sample.facts()), RollbackStep::RemoveLabels);
    sample.component(true, &json!({}));
    assert_eq!(
        next(&sample.facts()),
        RollbackStep::DeleteComponent("keda".to_owned()),
        "it was never told what there is"
    );
    sample.component = None;
    sample.taken_over();
    assert_eq!(
        next(&sample.facts()),
        RollbackStep::ReturnObjects("keda".to_owned()),
        "its component is gone, its marks are not"
    );
}

#[test]
fn an_ordered_removal_is_taken_back() {
    let mut sample = handed_over();
    sample.kyma_label(labels::HAND_OVER_PENDING);
    sample.kyma["metadata"]["annotations"][annotations::stopped("kyma-operator")] = json!("true");
    let component = sample.component.as_mut().unwrap();
    component["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    component["spec"]["deletionPolicy"] = json!("Delete");
    assert_eq!(next(&sample.facts()), RollbackStep::DeleteComponent("keda".to_owned()));
}

#[test]
fn a_kyma_that_klm_could_not_continue_is_not_given_back() {
    type Change = fn(&mut Sample);
    let cases: [(Change, &str); 7] = [
        (
            |sample| sample.component.as_mut().unwrap()["spec"]["module"]["version"] = json!("1.1.0"),
            "would install 1.0.0 again",
        ),
        (|sample| sample.component.as_mut().unwrap()["status"]["version"] = json!("1.1.0"), "is 1.1.0 now"),
        (
            |sample| sample.component.as_mut().unwrap()["status"]["packedObjects"] = json!("edited"),
            "status.packedObjects is not base64: first let helm-component search",
        ),
        (|sample| sample.manifest = Value::Null, "no Manifest of it"),
        (|sample| sample.access = Err("TargetUnreachable: no".to_owned()), "TargetUnreachable"),
        (|sample| sample.kyma["metadata"]["annotations"] = json!({}), "no longer exists"),
        (
            |sample| sample.kyma["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            "being deleted",
        ),
    ];
    for (change, expected) in cases {
        let mut sample = handed_over();
        change(&mut sample);
        let found = obstacles(&sample.facts());
        assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
    }
}

#[test]
fn a_mirror_of_what_was_installed_since_is_no_manifest_of_klm() {
    let mut sample = handed_over();
    sample.manifest = Value::Null;
    sample.mirrors.push(("sample-keda-1095022605".to_owned(), "m".to_owned()));
    let found = obstacles(&sample.facts());
    assert!(found.len() == 1 && found[0].contains("no Manifest of it"), "{found:?}");
}

#[test]
fn the_status_of_a_manifest_is_noted_as_it_was() {
    let mut sample = Sample::installed();
    let before = sample.manifest["status"].clone();
    sample.mark(labels::HAND_OVER_DONE);
    sample.manifest["status"] = json!({"state": "Warning"});
    let facts = sample.facts();
    let manifest = facts.modules["keda"].manifest.as_ref().unwrap();
    let noted = note::read::<note::ManifestNote>(&manifest.metadata).unwrap();
    assert_eq!(noted.status, before, "also what we do not read of it");
}

#[test]
fn a_kyma_that_was_never_handed_over_is_not_given_back() {
    let sample = Sample::installed();
    assert!(obstacles(&sample.facts()).is_empty());
    assert_eq!(next(&sample.facts()), RollbackStep::Done);
}

#[test]
fn an_object_with_the_mark_of_another_owner_stays() {
    let mut sample = handed_over();
    sample.target[0].1["labels"] = json!({labels::OWNER: "somebody"});
    let facts = sample.facts();
    assert!(to_give_back(&facts, "us", &facts.modules["keda"]).is_empty());
    sample.target[0].1["labels"] = json!({labels::OWNER: "shared", Ownership::share_label("us"): ""});
    let facts = sample.facts();
    assert_eq!(to_give_back(&facts, "us", &facts.modules["keda"]).len(), 1);
}

#[test]
fn objects_without_labels_are_returned_by_their_managers() {
    let share = format!("{COMPONENT_MANAGER}-us");
    let by =
        |manager: &str| json!([{"manager": manager, "operation": "Apply", "fieldsV1": {"f:metadata": {}}}]);
    let mut sample = handed_over();
    for labels in [json!({}), json!({labels::OWNER: "shared", Ownership::share_label("other"): ""})] {
        for (manager, left) in [(share.as_str(), 1), (&format!("{COMPONENT_MANAGER}-other"), 0)] {
            sample.target[0].1["labels"] = labels.clone();
            sample.target[0].1["managedFields"] = by(manager);
            let facts = sample.facts();
            let found = to_give_back(&facts, "us", &facts.modules["keda"]).len();
            assert_eq!(found, left, "{manager} {labels}");
        }
    }
}
