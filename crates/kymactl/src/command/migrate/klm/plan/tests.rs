//! Tests the conversion of Manifests, the obstacles, and the order of steps.

use serde_json::{Value, json};

use super::*;
use crate::command::migrate::klm::component;
use crate::command::migrate::klm::lease::KlmState;
use crate::command::migrate::klm::sample::{Sample, kyma};

/// Applies the effect of each step of a hand-over, as if the run was interrupted after it.
#[test]
fn each_step_follows_from_what_the_one_before_left() {
    let keda = || "keda".to_owned();
    let mut sample = Sample::installed();
    assert_eq!(obstacles(&sample.facts()), Vec::<String>::new());
    assert_eq!(next(&sample.facts()), HandOverStep::RecordAndLabel);
    sample.mark(labels::HAND_OVER_PENDING);
    assert_eq!(next(&sample.facts()), HandOverStep::CreateComponent(keda()));
    sample.component(true, &json!({}));
    assert_eq!(next(&sample.facts()), HandOverStep::WriteInventory(keda()));
    let seeded = sample.recorded();
    sample.component(true, &seeded);
    assert_eq!(next(&sample.facts()), HandOverStep::StartReconciler(keda()));
    sample.component(false, &seeded);
    assert_eq!(next(&sample.facts()), HandOverStep::AwaitApplied(keda()));
    sample.applied();
    assert!(
        matches!(next(&sample.facts()), HandOverStep::ReportDifferences(_, _)),
        "the target tells otherwise"
    );
    sample.taken_over();
    let status = sample.component.clone().unwrap()["status"].clone();
    sample.component.as_mut().unwrap()["status"]["packedObjects"] = json!("edited");
    let unread =
        HandOverStep::ReportDifferences(keda(), vec!["status.packedObjects is not base64".to_owned()]);
    assert_eq!(next(&sample.facts()), unread);
    sample.component.as_mut().unwrap()["status"] = status;
    assert_eq!(next(&sample.facts()), HandOverStep::RemoveFinalizers(keda()));
    sample.dropped();
    assert_eq!(next(&sample.facts()), HandOverStep::StartOperators);
    sample.kyma_label(labels::HAND_OVER_DONE);
    assert_eq!(next(&sample.facts()), HandOverStep::AwaitReport);
    sample.reported();
    assert_eq!(next(&sample.facts()), HandOverStep::CleanStatus);
    sample.settled();
    assert_eq!(next(&sample.facts()), HandOverStep::Done);
}

#[test]
fn obstacles_are_named_and_no_step_begins() {
    type Change = fn(&mut Sample);
    let cases: [(Change, &str); 12] = [
        (|sample| sample.klm = KlmState::Runs, "renews its Lease"),
        (|sample| sample.klm = KlmState::Unknown, "--klm-is-stopped"),
        (|sample| sample.access = Err("AwaitingAccess: none".to_owned()), "AwaitingAccess"),
        (
            |sample| sample.kyma["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            "let KLM finish",
        ),
        (|sample| sample.strays.push("Manifest x has no label".to_owned()), "no label"),
        (|sample| sample.own_kind = Some("Greeting".to_owned()), "kind Greeting"),
        (|sample| sample.manifest["spec"]["version"] = Value::Null, "names no version"),
        (
            |sample| sample.manifest["metadata"]["annotations"][klm::SYNCED_REF] = json!("sha256:old"),
            "not applied its Manifest yet",
        ),
        (
            |sample| {
                sample.manifest["metadata"]["annotations"][kyma_api::annotations::IS_UNMANAGED] =
                    json!("true");
            },
            "ending its management",
        ),
        (
            |sample| {
                sample.manifest["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                sample.target.clear();
            },
            "KLM is removing it",
        ),
        (
            |sample| sample.kyma["status"]["lastOperation"]["operation"] = json!("x".repeat(MAX_NOTE_BYTES)),
            "too large",
        ),
        (
            |sample| sample.manifest["metadata"]["finalizers"] = json!(["x".repeat(MAX_NOTE_BYTES)]),
            "too large",
        ),
    ];
    for (change, expected) in cases {
        let mut sample = Sample::installed();
        change(&mut sample);
        let found = obstacles(&sample.facts());
        assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
    }
}

#[test]
fn while_klm_runs_only_labelled_kymas_are_handed_over() {
    let mut sample = Sample::installed();
    sample.klm = KlmState::Runs;
    let labels = json!({labels::SKIP_RECONCILIATION: "true", labels::HAND_OVER: labels::HAND_OVER_PENDING});
    let merged = |object: &mut Value| {
        for (name, value) in labels.as_object().unwrap() {
            object["metadata"]["labels"][name] = value.clone();
        }
    };
    merged(&mut sample.kyma);
    assert_eq!(obstacles(&sample.facts()).len(), 1, "KLM still works on its Manifest");
    merged(&mut sample.manifest);
    assert!(obstacles(&sample.facts()).is_empty());
    assert_eq!(next(&sample.facts()), HandOverStep::RecordAndLabel, "how it was is still to be noted");
}

#[test]
fn a_component_is_what_its_manifest_says() {
    let sample = Sample::installed();
    let facts = sample.facts();
    let manifest = facts.modules["keda"].manifest.as_ref().unwrap();
    let body = component::body(&facts, "keda", manifest, false).unwrap();
    assert_eq!(body["metadata"]["name"], kyma_api::names::component_name("sample", "keda"));
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "kyma-uid");
    assert_eq!(body["metadata"]["labels"].get(labels::SKIP_RECONCILIATION), None);
    assert_eq!(body["metadata"]["labels"].get(labels::CONTROLLER_NAME), None, "KLM writes it empty");
    let expected = json!({
        "target": {"kubeconfigSecretRef": {"name": "access", "key": "config"}},
        "module": {"name": "keda", "version": "1.0.0", "channel": "regular"},
        "source": {"ocm": {"component": "kyma-project.io/module/keda", "version": "1.0.0"}},
        "resourcePolicy": "CreateAndDelete",
        "deletionPolicy": "Orphan",
        "resource": sample.manifest["spec"]["resource"],
        "manager": sample.manifest["spec"]["manager"],
    });
    assert_eq!(body["spec"], expected);
    let waiting = component::body(&facts, "keda", manifest, true).unwrap();
    assert_eq!(waiting["metadata"]["labels"][labels::SKIP_RECONCILIATION], "true");
}

#[test]
fn the_inventory_lists_existing_objects_and_klms_default_cr() {
    let mut sample = Sample::installed();
    let record = |sample: &Sample| {
        let facts = sample.facts();
        component::record(&facts, facts.modules["keda"].manifest.as_ref().unwrap())
    };
    let first = record(&sample);
    assert_eq!(first["version"], "1.0.0");
    let items = json!([{"name": "keda", "uid": "d", "adopted": true}]);
    let group = json!({"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "kyma-system", "items": items});
    assert_eq!(first["objects"], json!([group]), "never sent by us, so without hashes");
    assert_eq!((&first["resource"]["kind"], &first["resource"]["uid"]), (&json!("Keda"), &json!("cr")));
    sample.target[1].1["managedFields"] = json!([{"manager": "kubectl", "operation": "Update"}]);
    assert_eq!(record(&sample)["resource"].get("uid"), None, "a user made it");
    sample.target.clear();
    let gone = record(&sample);
    assert_eq!(gone["objects"], json!([]));
    assert_eq!(gone["resource"]["name"], "default", "it is not made again");
    sample.manifest["status"]["conditions"] = json!([]);
    assert_eq!(record(&sample).get("resource"), None, "KLM has not made it yet");
}

#[test]
fn finalizers_are_dropped_only_if_target_equals_the_inventory() {
    let handed = || {
        let mut sample = Sample::installed();
        sample.mark(labels::HAND_OVER_PENDING);
        sample.component(false, &sample.recorded());
        sample.applied();
        sample.taken_over();
        sample
    };
    let problem = |change: fn(&mut Sample)| {
        let mut sample = handed();
        change(&mut sample);
        match next(&sample.facts()) {
            HandOverStep::ReportDifferences(_, problems) => problems.join("; "),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(next(&handed().facts()), HandOverStep::RemoveFinalizers("keda".to_owned()));
    assert!(problem(|sample| sample.target.clear()).contains("does not exist"));
    assert!(problem(|sample| sample.target[0].1["uid"] = json!("other")).contains("another object"));
    assert!(
        problem(|sample| sample.target[0].1["managedFields"] = json!([]))
            .contains("not owned by the component")
    );
    let both = |sample: &mut Sample| {
        let entry =
            |manager: &str| json!({"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {}}});
        sample.target[0].1["managedFields"] = json!([entry(COMPONENT_MANAGER), entry(klm::APPLIER)]);
    };
    assert!(problem(both).contains("owned by KLM too"));
}

#[test]
fn deleting_manifest_is_removed_once_its_module_is_gone() {
    let mut sample = Sample::installed();
    sample.manifest["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    sample.mark(labels::HAND_OVER_DONE);
    sample.reported();
    sample.settled();
    sample.component(false, &sample.recorded());
    assert_eq!(next(&sample.facts()), HandOverStep::Done, "our operators are at it");
    sample.component = None;
    assert_eq!(next(&sample.facts()), HandOverStep::Done, "something is left");
    sample.target.clear();
    assert_eq!(next(&sample.facts()), HandOverStep::RemoveLastFinalizers("keda".to_owned()));
}

#[test]
fn a_kyma_that_klm_never_had_is_ours_already() {
    let mut sample = Sample::installed();
    sample.kyma = kyma(false);
    sample.manifest = Value::Null;
    sample.klm = KlmState::Runs;
    assert!(obstacles(&sample.facts()).is_empty());
    assert_eq!(next(&sample.facts()), HandOverStep::Done);
}

#[test]
fn mandatory_module_converts_to_the_component_of_the_operator() {
    let mut sample = Sample::installed();
    let labels = sample.manifest["metadata"]["labels"].as_object_mut().unwrap();
    labels.remove(labels::CHANNEL);
    labels.insert(labels::MANDATORY_MODULE.to_owned(), json!("true"));
    sample.component(true, &json!({}));
    let component = sample.component.unwrap();
    assert_eq!(component["metadata"]["name"], kyma_api::names::component_name("sample", "keda"));
    assert_eq!(component["metadata"]["labels"][labels::MANDATORY_MODULE], "true");
    assert!(component["metadata"]["labels"].get(labels::CHANNEL).is_none());
    assert!(component["spec"]["module"].get("channel").is_none());
}

#[test]
fn mirrors_are_nothing_to_hand_over() {
    let mut sample = Sample::installed();
    (sample.kyma, sample.manifest) = (kyma(false), Value::Null);
    sample.mirrors.push(("sample-keda-1095022605".to_owned(), "m".to_owned()));
    assert_eq!(next(&sample.facts()), HandOverStep::Done);
    assert_eq!(obstacles(&sample.facts()), Vec::<String>::new());
}
