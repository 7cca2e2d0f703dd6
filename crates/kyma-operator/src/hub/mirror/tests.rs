//! Tests of the Manifest for a component, of the writes, and of when no comparison is needed.

use kyma_api::{InventoryGroup, annotations};
use serde_json::{Value, json};

use super::plan::{DesiredManifest, Write, desired, write};
use super::*;
use crate::hub::component::{ComponentKind, ComponentView};

fn component() -> Value {
    json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
        "metadata": {
            "name": "sample-keda-dadcf7fb", "namespace": "kcp-system", "uid": "c", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                labels::KYMA_NAME: "sample", labels::MODULE_NAME: "keda", labels::CHANNEL: "regular",
                labels::MANAGED_BY: labels::MANAGED_BY_LIFECYCLE_MANAGER, labels::SHARD: "3",
            },
            "ownerReferences": [{
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "name": "sample", "uid": "k",
            }],
        },
        "spec": {
            "module": {"name": "keda", "version": "1.1.0", "channel": "regular"},
            "source": {"ocm": {"component": "kyma-project.io/module/keda", "version": "1.1.0"}},
            "userValues": {"password": "hush"},
            "resource": {"apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "Keda", "metadata": {"name": "default"}},
            "resourcePolicy": "CreateAndDelete",
            "manager": {"group": "apps", "version": "v1", "kind": "Deployment", "name": "keda-manager", "namespace": "kyma-system"},
        },
        "status": {
            "state": "Warning",
            "conditions": [
                {"type": "Applied", "status": "True", "reason": "Succeeded", "message": "15 objects", "lastTransitionTime": "2026-01-01T00:01:00Z"},
                {"type": "Ready", "status": "False", "reason": "Unhealthy", "message": "keda-manager is not ready", "lastTransitionTime": "2026-01-01T00:02:00Z"},
            ],
            "objects": [
                {"version": "v1", "kind": "Namespace", "items": [{"name": "keda", "uid": "n", "hash": "h"}]},
                {"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "kyma-system", "items": [{"name": "keda-manager", "uid": "d"}]},
            ],
            "resource": {"apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "Keda", "name": "default"},
        },
    })
}

fn of(component: &Value, ocm: Option<&str>) -> DesiredManifest {
    let kind =
        ComponentKind::new(component["apiVersion"].as_str().unwrap(), component["kind"].as_str().unwrap());
    let object: DynamicObject = serde_json::from_value(component.clone()).unwrap();
    desired(&ComponentView::of(&kind, &object).unwrap(), &object, ocm)
}

#[test]
fn mirror_has_klm_name_labels_annotations_but_no_content() {
    let desired = of(&component(), None);
    assert_eq!(desired.name, "sample-keda-1095022605");
    let meta = &desired.body["metadata"];
    let expected = json!({
        labels::KYMA_NAME: "sample", labels::MODULE_NAME: "keda", labels::CHANNEL: "regular",
        labels::CONTROLLER_NAME: "", labels::MANAGED_BY: "lifecycle-manager",
        labels::SKIP_RECONCILIATION: "true", labels::MIRROR: "true",
    });
    assert_eq!(meta["labels"], expected);
    assert_eq!(meta["annotations"][annotations::FQDN], "kyma-project.io/module/keda");
    assert_eq!(meta["annotations"][annotations::OCM_COMPONENT_NAME], "kyma-project.io/module/keda");
    let owner = &meta["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"]),
        (&json!("HelmComponent"), &json!("c")),
        "it goes with its component"
    );
    assert!(meta.get("finalizers").is_none());
    let spec = &desired.body["spec"];
    assert_eq!((&spec["version"], &spec["install"]["source"]), (&json!("1.1.0"), &json!({})));
    assert_eq!(spec["resource"]["kind"], "Keda");
    assert_eq!(spec["manager"]["name"], "keda-manager");
    assert!(!format!("{desired:?}").contains("hush"), "values of users stay in the component");
}

#[test]
fn the_status_is_the_components_in_klms_words() {
    let expected = json!({
        "state": "Warning",
        "conditions": [
            {"type": "Resources", "status": "True", "reason": "ResourcesAvailable", "message": "15 objects", "lastTransitionTime": "2026-01-01T00:01:00Z"},
            {"type": "Installation", "status": "False", "reason": "Ready", "message": "keda-manager is not ready", "lastTransitionTime": "2026-01-01T00:02:00Z"},
            {"type": "ModuleCR", "status": "True", "reason": "ModuleCRCreated", "message": "module CR was created", "lastTransitionTime": "2026-01-01T00:01:00Z"},
        ],
        "lastOperation": {"operation": "keda-manager is not ready", "lastUpdateTime": "2026-01-01T00:02:00Z"},
        "synced": [
            {"group": "", "version": "v1", "kind": "Namespace", "namespace": "", "name": "keda"},
            {"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "kyma-system", "name": "keda-manager"},
        ],
    });
    assert_eq!(of(&component(), None).status, expected);
    let mut ignored = component();
    ignored["spec"]["resourcePolicy"] = json!("Ignore");
    let conditions = of(&ignored, None).status["conditions"].as_array().map(Vec::len);
    assert_eq!(conditions, Some(2), "KLM speaks of the default CR only where it makes it");
}

#[test]
fn a_packed_record_is_shown_as_any_other() {
    let mut packed = component();
    let status = packed["status"].as_object_mut().unwrap();
    let groups: Vec<InventoryGroup> = serde_json::from_value(status.remove("objects").unwrap()).unwrap();
    status.insert("packedObjects".to_owned(), json!(InventoryGroup::pack(&groups).unwrap()));
    assert_eq!(of(&packed, None).status["synced"], of(&component(), None).status["synced"]);
    packed["status"]["packedObjects"] = json!("edited");
    assert_eq!(of(&packed, None).status["synced"], json!([]));
}

#[test]
fn component_without_report_is_processing_since_its_creation() {
    let mut fresh = component();
    fresh.as_object_mut().unwrap().remove("status");
    let status = of(&fresh, None).status;
    assert_eq!(status["state"], "Processing");
    assert_eq!(status["lastOperation"], json!({"operation": "", "lastUpdateTime": "2026-01-01T00:00:00Z"}));
    assert_eq!(status["conditions"][0]["status"], "Unknown");
    assert_eq!(status["conditions"][2]["status"], "False");
    assert_eq!(status["synced"], json!([]));
}

#[test]
fn a_component_of_another_kind_is_named_by_the_catalogue() {
    let mut own = component();
    own["apiVersion"] = json!("demo.kyma-project.io/v1");
    own["kind"] = json!("Greeting");
    own["metadata"]["labels"][labels::MANDATORY_MODULE] = json!("true");
    own["metadata"]["labels"].as_object_mut().unwrap().remove(labels::CHANNEL);
    own["spec"] = json!({"module": {"name": "keda", "version": "1.1.0"}, "resource": "mine", "manager": {"kind": "Pod"}});
    own["status"] = json!({"state": "Ready"});
    let desired = of(&own, Some("example.com/greeting"));
    assert!(desired.name.starts_with("sample-greeting-"), "{}", desired.name);
    let spec = &desired.body["spec"];
    assert!(
        spec.get("resource").is_none() && spec.get("manager").is_none(),
        "not what KLM's CRD takes: {spec}"
    );
    assert_eq!(desired.body["metadata"]["labels"][labels::MANDATORY_MODULE], "true");
    assert!(desired.body["metadata"]["labels"].get(labels::CHANNEL).is_none());
    assert_eq!(of(&own, None).body["metadata"]["annotations"][annotations::FQDN], "keda");
}

/// Returns the Manifest after it was written, with this resourceVersion.
fn written(desired: &DesiredManifest, version: u64) -> Value {
    let mut object = desired.body.clone();
    object["metadata"]["uid"] = json!("m");
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    object["status"] = desired.status.clone();
    let leaves = |value: &Value| -> Value {
        let fields = value.as_object().unwrap().keys().map(|key| (format!("f:{key}"), json!({})));
        Value::Object(fields.collect())
    };
    let (mut meta, status) = (leaves(&desired.body["metadata"]), leaves(&desired.status));
    for name in ["f:name", "f:namespace"] {
        meta.as_object_mut().unwrap().remove(name);
    }
    let by_us = |fields: Value, subresource: &str| json!({"manager": FIELD_MANAGER, "operation": "Apply", "subresource": subresource, "fieldsV1": fields});
    object["metadata"]["managedFields"] = json!([
        by_us(json!({"f:metadata": meta, "f:spec": {}}), ""),
        by_us(json!({"f:status": status}), "status"),
    ]);
    object
}

fn observed(object: &Value) -> ObservedManifest {
    ObservedManifest::of(&serde_json::from_value(object.clone()).unwrap()).unwrap().1
}

#[test]
fn only_a_manifest_that_differs_is_written() {
    let desired = of(&component(), None);
    let both = Write { body: true, status: true };
    assert_eq!(write(&desired, None), both);
    let held = written(&desired, 9);
    assert_eq!(write(&desired, Some(&observed(&held))), Write::default());
    let mut edited = held.clone();
    edited["spec"]["version"] = json!("9.9.9");
    assert_eq!(write(&desired, Some(&observed(&edited))), Write { body: true, status: false });
    let mut edited = held.clone();
    edited["status"]["state"] = json!("Ready");
    assert_eq!(write(&desired, Some(&observed(&edited))), Write { body: false, status: true });
    let mut taken = held.clone();
    taken["metadata"]["managedFields"] = json!([]);
    assert_eq!(write(&desired, Some(&observed(&taken))), both, "another manager owns the fields");
    let mut unmarked = held.clone();
    unmarked["metadata"]["labels"] = json!({labels::MODULE_NAME: "nats"});
    let body = Write { body: true, status: false };
    assert_eq!(write(&desired, Some(&observed(&unmarked))), body, "a component owns it");
    let mut going = held;
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    going["spec"]["version"] = json!("9.9.9");
    assert_eq!(
        write(&desired, Some(&observed(&going))),
        Write::default(),
        "it is created again after the deletion"
    );
}

#[test]
fn only_status_of_handed_over_klm_manifests_is_written() {
    let desired = of(&component(), None);
    let with = |labels: Value, finalizers: &[&str], module: &str| {
        let mut object = written(&desired, 9);
        object["metadata"]["managedFields"] = json!([]);
        let by_klm = json!([{
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "name": "sample", "uid": "k",
            "controller": true,
        }]);
        object["metadata"]["ownerReferences"] = by_klm;
        object["metadata"]["labels"] = labels;
        object["metadata"]["labels"][labels::MODULE_NAME] = json!(module);
        object["metadata"]["finalizers"] = json!(finalizers);
        write(&desired, Some(&observed(&object)))
    };
    let (done, pending) = (labels::HAND_OVER_DONE, labels::HAND_OVER_PENDING);
    let status = Write { body: false, status: true };
    assert_eq!(with(json!({labels::HAND_OVER: done}), &[], "keda"), status);
    let going = [klm::MANIFEST_FINALIZERS[0]];
    assert_eq!(with(json!({labels::HAND_OVER: done}), &going, "keda"), status, "it is being removed");
    let nothing = Write::default();
    assert_eq!(with(json!({labels::HAND_OVER: done}), &[], "nats"), nothing, "a name cut by KLM");
    assert_eq!(with(json!({labels::MIRROR: "true"}), &[], "nats"), nothing, "another module's copy");
    assert_eq!(with(json!({labels::HAND_OVER: pending}), &[], "keda"), nothing);
    assert_eq!(with(json!({}), &[], "keda"), nothing, "KLM's own");
    assert_eq!(with(json!({labels::MIRROR: "true"}), &going, "keda"), nothing, "KLM has made it its own");
    assert_eq!(with(json!({labels::MIRROR: "true", labels::HAND_OVER: done}), &[], "keda"), nothing);
}

#[test]
fn synced_manifest_is_compared_if_it_or_its_component_changes() {
    let (kyma, desired) = (KymaKey::new("kcp-system", "sample"), of(&component(), None));
    let at = |version: u64| observed(&written(&desired, version));
    let name = || desired.name.clone();
    let id = |name: &str| ComponentId {
        group: "g".to_owned(),
        kind: "k".to_owned(),
        namespace: "kcp-system".to_owned(),
        name: name.to_owned(),
    };
    let set_synced = |manifests: &mut Manifests, version: u64| {
        let synced = SyncedManifest { component: 7_u64.into(), manifest: name() };
        manifests.set_synced(&kyma, id("c"), synced, version.into());
    };
    let mut manifests = Manifests::default();
    assert!(!manifests.is_listed());
    assert_eq!(manifests.listed(HashMap::new()), None, "no list before: all Kymas compare");
    set_synced(&mut manifests, 9);
    assert!(
        !manifests.is_synced(&kyma, &id("c"), 7_u64.into()),
        "created, but not observed yet: it may be deleted already"
    );
    assert_eq!(manifests.apply(name(), at(8)), None, "the first of two own writes");
    assert_eq!(manifests.apply(name(), at(9)), None, "the operator's write");
    assert!(manifests.is_synced(&kyma, &id("c"), 7_u64.into()));
    assert!(!manifests.is_synced(&kyma, &id("c"), 8_u64.into()), "the component changed");
    assert_eq!(manifests.apply(name(), at(10)), Some(kyma.clone()), "another writer edited it");
    assert!(!manifests.is_synced(&kyma, &id("c"), 7_u64.into()));

    set_synced(&mut manifests, 10);
    assert_eq!(manifests.listed(HashMap::from([(name(), at(10))])), Some(Vec::new()));
    assert!(manifests.is_synced(&kyma, &id("c"), 7_u64.into()));
    let restored = manifests.listed(HashMap::from([(name(), at(5))]));
    assert_eq!(restored, Some(vec![kyma.clone()]), "the hub went back in time");
    assert!(!manifests.is_synced(&kyma, &id("c"), 7_u64.into()));
    assert_eq!(manifests.delete(&name()), Some(kyma.clone()), "another writer deleted it");

    set_synced(&mut manifests, 10);
    manifests.retain(&kyma, |there| *there == id("other"));
    assert!(manifests.synced.is_empty() && manifests.written.is_empty(), "its component is gone");
    set_synced(&mut manifests, 10);
    manifests.forget(&kyma);
    assert!(manifests.synced.is_empty() && manifests.written.is_empty(), "its Kyma is gone");
    manifests.mark_unlisted();
    assert!(!manifests.is_listed());
}
