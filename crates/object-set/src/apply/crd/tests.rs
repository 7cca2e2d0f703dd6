use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::decision::{CrdDecision, decide};
use super::established::{CRD_ESTABLISH_TIMEOUT, served_mappings};
use super::share_manager;
use super::versions::{LiveCrd, priority};
use crate::cluster::discovery::serving_pauses;
use crate::object::Object;
use crate::ownership::{CREATED_BY, OWNER_LABEL, Ownership, SET_VERSION};

fn ours(version: &str, api_versions: &[&str]) -> Object {
    let versions: Vec<Value> =
        api_versions.iter().map(|name| json!({"name": name, "storage": true})).collect();
    Object::from_value(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "a.x.io", "annotations": {SET_VERSION: version}}, "spec": {"versions": versions}}))
    .unwrap()
}

fn live(owner: &str, version: &str) -> ObjectMeta {
    let marks = json!({"f:metadata": {"f:labels": {format!("f:{OWNER_LABEL}"): {}}}});
    serde_json::from_value(json!({
        "labels": {OWNER_LABEL: owner},
        "annotations": {SET_VERSION: version, CREATED_BY: "first"},
        "managedFields": [{"manager": "m", "operation": "Apply", "fieldsV1": marks}],
    }))
    .unwrap()
}

fn us() -> Ownership {
    Ownership { manager: "m".to_owned(), owner: "us".to_owned(), version: String::new() }
}

fn decision(ours: Object, live: &ObjectMeta, api_versions: &[&str]) -> CrdDecision {
    decision_over(ours, live, api_versions, &[])
}

fn decision_over(ours: Object, live: &ObjectMeta, api_versions: &[&str], stored: &[&str]) -> CrdDecision {
    let versions: Vec<Value> =
        api_versions.iter().map(|name| json!({"name": name, "storage": true})).collect();
    let stored = stored.iter().map(|version| (*version).to_owned()).collect();
    let live = LiveCrd { metadata: live.clone(), spec: json!({ "versions": versions }), stored };
    decide(ours, &live, &us(), &|owner| owner != "dead")
}

fn sent(decision: CrdDecision) -> (Object, Vec<String>) {
    let CrdDecision::Send { object, shares, .. } = decision else { panic!("{decision:?}") };
    let versions = object.body()["spec"]["versions"].as_array().unwrap();
    let names = versions.iter().map(|version| version["name"].as_str().unwrap().to_owned()).collect();
    assert!(shares.is_empty());
    (*object, names)
}

#[test]
fn a_crd_without_other_owners_is_sent_unchanged() {
    for holder in ["us", "dead"] {
        let decision = decision(ours("2.0.0", &["v1"]), &live(holder, "1.0.0"), &["v1", "v1beta1"]);
        let (object, versions) = sent(decision);
        assert_eq!(versions, ["v1"]);
        assert_eq!(object.annotation(CREATED_BY), Some("first"));
    }
}

#[test]
fn a_crd_never_goes_back_to_a_lower_version() {
    for holder in ["us", "dead"] {
        let (object, versions) =
            sent(decision(ours("1.0.0", &["v1"]), &live(holder, "2.0.0"), &["v1", "v2"]));
        assert_eq!(versions, ["v1", "v2"], "a higher API version");
        assert_eq!(object.annotation(SET_VERSION), Some("2.0.0"));
        let mut narrower = ours("1.0.0", &["v1"]);
        narrower.body_mut()["spec"]["versions"][0]["schema"] = "narrow".into();
        let (object, _) = sent(decision(narrower, &live(holder, "2.0.0"), &["v1"]));
        assert_eq!(object.body()["spec"]["versions"][0]["schema"], Value::Null, "a higher set");
    }
    let mut by_hand = live("us", "");
    by_hand.labels = None;
    by_hand.annotations = None;
    let (object, versions) = sent(decision(ours("9.0.0", &["v1"]), &by_hand, &["v1", "v2"]));
    assert_eq!(versions, ["v1", "v2"], "somebody installed a newer one by hand");
    assert_eq!(object.annotation(SET_VERSION), Some("9.0.0"));
}

#[test]
fn a_lower_version_leaves_an_injected_ca_to_its_controller() {
    let authority = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==";
    let client = json!({"caBundle": authority, "service": {"name": "s"}});
    let spec = json!({"versions": [{"name": "v1", "storage": true}], "conversion": {"webhook": {"clientConfig": client}}});
    let bundle = |source: &str| {
        let mut ours = ours("1.0.0", &["v1"]);
        ours.set_annotation("cert-manager.io/inject-ca-from", source);
        let live = LiveCrd { metadata: live("dead", "2.0.0"), spec: spec.clone(), stored: vec![] };
        let (object, _) = sent(decide(ours, &live, &us(), &|owner| owner != "dead"));
        object.body()["spec"].pointer("/conversion/webhook/clientConfig/caBundle").cloned()
    };
    assert_eq!(bundle("n/c"), None);
    assert_eq!(bundle(""), Some(json!(authority)));
}

#[test]
fn a_lower_version_lifts_the_hold_of_an_interrupted_removal() {
    let schema = json!({"openAPIV3Schema": {"required": ["spec", "thisKindIsBeingRemoved"]}});
    let spec = json!({"versions": [{"name": "v1", "storage": true, "schema": schema}]});
    let found = DynamicObject { types: None, metadata: live("dead", "2.0.0"), data: json!({ "spec": spec }) };
    let decision = decide(ours("1.0.0", &["v1"]), &LiveCrd::of(found), &us(), &|owner| owner != "dead");
    let schema = sent(decision).0.body()["spec"]["versions"][0]["schema"].clone();
    assert_eq!(schema, json!({"openAPIV3Schema": {"required": ["spec"]}}));
}

#[test]
fn versions_in_which_objects_are_stored_stay() {
    let decision =
        decision_over(ours("2.0.0", &["v1"]), &live("us", "1.0.0"), &["v1beta1", "v1alpha1"], &["v1beta1"]);
    let CrdDecision::Send { lost, .. } = &decision else { panic!("{decision:?}") };
    assert_eq!(*lost, ["v1beta1"]);
    assert_eq!(sent(decision).1, ["v1", "v1beta1"]);
}

#[test]
fn versions_of_other_owners_stay_served_and_losses_are_reported() {
    let unserved = || {
        let mut ours = ours("2.0.0", &["v1", "v1beta1"]);
        ours.body_mut()["spec"]["versions"][0]["served"] = true.into();
        ours.body_mut()["spec"]["versions"][1]["served"] = false.into();
        ours
    };
    let served = json!({"versions": [{"name": "v1", "served": true}, {"name": "v1beta1", "served": true}]});
    let over = |owner: &str, stored: &[&str]| {
        let stored = stored.iter().map(|version| (*version).to_owned()).collect();
        let live = LiveCrd { metadata: live(owner, "1.0.0"), spec: served.clone(), stored };
        let decision = decide(unserved(), &live, &us(), &|_| true);
        let CrdDecision::Send { object, lost, .. } = decision else { panic!("{decision:?}") };
        (object.body()["spec"]["versions"][1]["served"] == true, lost)
    };
    assert_eq!(over("us", &["v1"]), (false, vec![]), "nothing is stored in it");
    assert_eq!(over("us", &["v1beta1", "v1"]), (false, vec!["v1beta1".to_owned()]));
    assert_eq!(over("them", &["v1beta1"]), (true, vec![]));
}

#[test]
fn a_crd_of_another_operator_is_shared_in_its_name() {
    let mut theirs = live("dead", "2.0.0");
    for entry in theirs.managed_fields.iter_mut().flatten() {
        entry.manager = Some("greeting".to_owned());
    }
    assert_eq!(decision(ours("1.0.0", &["v1"]), &theirs, &["v1"]), CrdDecision::ShareOnly);
    assert_eq!(share_manager("dead", &theirs, &us()), "greeting-dead");
    assert_eq!(share_manager("us", &theirs, &us()), "m-us");
}

#[test]
fn a_lower_or_equal_version_only_shares() {
    assert_eq!(decision(ours("1.0.0", &["v1"]), &live("them", "1.0.0"), &["v1"]), CrdDecision::ShareOnly);
    assert_eq!(decision(ours("1.0.0", &["v1"]), &live("them", "1.10.0"), &["v1"]), CrdDecision::ShareOnly);
    assert_eq!(
        decision(ours("9.0.0", &["v1beta1"]), &live("them", "1.0.0"), &["v1"]),
        CrdDecision::ShareOnly
    );
}

#[test]
fn a_higher_version_wins_and_takes_nothing_away() {
    let decision = decision(ours("1.10.0", &["v1"]), &live("them", "1.9.0"), &["v1", "v1beta1"]);
    let CrdDecision::Send { object, shares, lost } = decision else { panic!("{decision:?}") };
    assert_eq!((shares, lost), (vec!["them".to_owned(), "us".to_owned()], vec![]));
    let versions = object.body()["spec"]["versions"].as_array().unwrap();
    assert_eq!(versions[1], json!({"name": "v1beta1", "storage": false}));
    assert_eq!(versions[0]["storage"], true);
}

#[test]
fn the_holder_keeps_versions_that_sharers_use() {
    let mut found = live("us", "1.0.0");
    found.labels.as_mut().unwrap().insert(Ownership::share_label("them"), String::new());
    let decision = decision(ours("2.0.0", &["v2"]), &found, &["v1"]);
    let CrdDecision::Send { object, .. } = decision else { panic!("{decision:?}") };
    assert_eq!(object.body()["spec"]["versions"].as_array().unwrap().len(), 2);
}

#[test]
fn waits_within_a_run_are_short() {
    assert!(
        CRD_ESTABLISH_TIMEOUT < Duration::from_secs(2)
            && serving_pauses().sum::<Duration>() < Duration::from_secs(2)
    );
}

#[test]
fn api_versions_have_kubernetes_order() {
    let sorted = ["x", "v1alpha1", "v1alpha2", "v2alpha1", "v1beta1", "v1beta10", "v1", "v2", "v10"];
    for pair in sorted.windows(2) {
        assert!(priority(pair[0]) < priority(pair[1]), "{pair:?}");
    }
}

#[test]
fn a_crd_is_served_under_its_accepted_names_in_kubernetes_order() {
    let crd = |accepted: Value, deleted: Value, served: bool| -> CustomResourceDefinition {
        let version =
            |name: &str, served: bool| json!({"name": name, "served": served, "storage": name == "v1"});
        serde_json::from_value(json!({
            "metadata": {"name": "things.x.io", "deletionTimestamp": deleted},
            "spec": {
                "group": "x.io", "names": {"kind": "Wished", "plural": "things"}, "scope": "Namespaced",
                "versions": [version("v1beta1", served), version("v1alpha1", false), version("v1", served)],
            },
            "status": {"acceptedNames": accepted},
        }))
        .unwrap()
    };
    let names = || json!({"kind": "Thing", "plural": "things"});
    let found = served_mappings(&crd(names(), Value::Null, true)).unwrap();
    let kinds: Vec<String> = found.iter().map(|mapping| mapping.gvk().to_string()).collect();
    assert_eq!(kinds, ["x.io/v1/Thing", "x.io/v1beta1/Thing"]);
    assert!(found[0].namespaced && found[0].can("watch") && found[0].resource.plural == "things");

    let unaccepted = crd(json!({"kind": "", "plural": ""}), Value::Null, true);
    let ending = crd(names(), json!("2026-01-01T00:00:00Z"), true);
    let unserved = crd(names(), Value::Null, false);
    for crd in [unaccepted, ending, unserved] {
        assert_eq!(served_mappings(&crd), None);
    }
}
