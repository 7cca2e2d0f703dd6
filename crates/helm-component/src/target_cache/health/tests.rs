use kyma_api::labels;
use kyma_controller::ObjectEvent;
use kyma_object_set::Entry;
use serde_json::json;

use super::super::store::Store;
use super::*;
use crate::expressions::tests::rules;

const MANAGER: &str = "helm-component";

fn watch_spec(kind: &str, content: Content) -> WatchSpec {
    let resource = kube::api::ApiResource {
        group: "example.org".into(),
        version: "v1".into(),
        api_version: "example.org/v1".into(),
        kind: kind.into(),
        plural: "lamps".into(),
    };
    WatchSpec { content, ..WatchSpec::in_kind(&resource).owned() }
}

fn lamps() -> WatchSpec {
    watch_spec("Lamp", Content::Whole)
}

fn lamp(owner: &str, name: &str, phase: &str) -> DynamicObject {
    let lamp = json!({
        "apiVersion": "example.org/v1", "kind": "Lamp",
        "metadata": {"name": name, "uid": name, "resourceVersion": "5", "labels": {labels::OWNER: owner}},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "False", "reason": "Asked"}]},
    });
    serde_json::from_value(lamp).unwrap()
}

fn of_lamps(current: &str) -> Arc<Rules> {
    let one = json!({"apiVersion": "example.org/v1", "kind": "Lamp", "current": current, "failed": "status.phase == 'Broken'"});
    Arc::new(rules(&json!([one])).unwrap())
}

fn component_key(name: &str) -> ComponentKey {
    ComponentKey { namespace: "hub".into(), name: name.into(), owner: name.into() }
}

fn subscribe(store: &Store, name: &str, rules: &Arc<Rules>) {
    store.subscribe(None, &component_key(name), Subscription::new(vec![lamps()], Arc::clone(rules)));
}

fn list(store: &Store, objects: Vec<DynamicObject>) {
    store.take(None, &lamps(), &ObjectEvent::Listed { objects, version: "5".into() });
}

fn status(store: &Store, owner: &str) -> Option<HealthStatus> {
    let mut cached = store.objects(None, owner, &Inventory::default()).into_values();
    cached.next().and_then(|seen| seen.health).map(|health| health.status)
}

fn at(name: &str) -> Identity {
    Identity::new("example.org", "Lamp", None, name)
}

#[test]
fn health_follows_the_rules_of_the_owner() {
    let store = Store::new(MANAGER);
    subscribe(&store, "a", &of_lamps("status.phase == 'Lit'"));
    subscribe(&store, "b", &of_lamps("status.phase == 'Dark'"));
    subscribe(&store, "c", &Arc::default());
    list(&store, ["a", "b", "c"].map(|owner| lamp(owner, owner, "Lit")).to_vec());
    assert_eq!(status(&store, "a"), Some(HealthStatus::Current));
    assert_eq!(status(&store, "b"), Some(HealthStatus::InProgress));
    assert_eq!(status(&store, "c"), Some(HealthStatus::InProgress), "its condition Ready");
}

#[test]
fn changed_rules_drop_health_until_a_read_or_an_event() {
    let store = Store::new(MANAGER);
    let (before, after) = (of_lamps("status.phase == 'Lit'"), of_lamps("status.phase == 'Dark'"));
    subscribe(&store, "a", &before);
    list(&store, vec![lamp("a", "one", "Lit"), lamp("b", "other", "Lit")]);
    assert!(store.unjudged(None, &component_key("a")).is_empty());

    subscribe(&store, "a", &after);
    assert_eq!(status(&store, "a"), None);
    assert_eq!(status(&store, "b"), Some(HealthStatus::InProgress), "others' stay");
    assert_eq!(store.unjudged(None, &component_key("a")), [at("one")].into());
    store.judge(None, &before, &at("one"), &lamp("a", "one", "Lit"));
    assert_eq!(status(&store, "a"), None, "not by the old ones");
    let mut another = lamp("a", "one", "Dark");
    another.metadata.uid = Some("another".to_owned());
    store.judge(None, &after, &at("one"), &another);
    assert_eq!(status(&store, "a"), None, "not by another object");
    store.judge(None, &after, &at("one"), &lamp("a", "one", "Dark"));
    assert_eq!(status(&store, "a"), Some(HealthStatus::Current));
    store.judge(None, &after, &at("one"), &lamp("a", "one", "Broken"));
    assert_eq!(status(&store, "a"), Some(HealthStatus::Current), "it is judged already");
    store.all_judged(None, &component_key("a"));
    assert!(store.unjudged(None, &component_key("a")).is_empty());

    subscribe(&store, "a", &before);
    store.take(None, &lamps(), &ObjectEvent::Applied(Box::new(lamp("a", "one", "Lit"))));
    assert_eq!(status(&store, "a"), Some(HealthStatus::Current), "by the stream");
    assert!(store.unjudged(None, &component_key("a")).is_empty());
}

#[test]
fn rules_of_a_removed_component_are_dropped() {
    let store = Store::new(MANAGER);
    subscribe(&store, "a", &of_lamps("status.phase == 'Lit'"));
    subscribe(&store, "b", &Arc::default());
    store.forget(&component_key("a"));
    list(&store, vec![lamp("a", "one", "Lit")]);
    assert_eq!(status(&store, "a"), Some(HealthStatus::InProgress));
}

#[test]
fn failed_since_is_the_first_event_of_a_failure() {
    let store = Store::new(MANAGER);
    subscribe(&store, "a", &of_lamps("true"));
    let since = |phase: &str| {
        store.take(None, &lamps(), &ObjectEvent::Applied(Box::new(lamp("a", "one", phase))));
        store.objects(None, "a", &Inventory::default())[&at("one")].failed_since
    };
    assert_eq!(since("Lit"), None);
    let first = since("Broken");
    assert!(first.is_some());
    assert_eq!(since("Broken"), first);
    list(&store, vec![lamp("a", "one", "Broken")]);
    assert_eq!(since("Broken"), first, "a list is no news");
    assert_eq!(since("Lit"), None);
    assert!(since("Broken") > first);
}

#[test]
fn items_of_a_list_have_the_listed_kind() {
    let store = Store::new(MANAGER);
    let resource = kube::api::ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&());
    let deployments = WatchSpec { content: Content::Whole, ..WatchSpec::in_kind(&resource).owned() };
    store.subscribe(None, &component_key("a"), Subscription::new(vec![deployments.clone()], Arc::default()));
    let mut item: DynamicObject = serde_json::from_value(json!({
        "metadata": {"name": "d", "uid": "d", "generation": 1, "labels": {labels::OWNER: "a"}},
        "spec": {"replicas": 1}, "status": {"observedGeneration": 1},
    }))
    .unwrap();
    item.types = None;
    store.take(None, &deployments, &ObjectEvent::Listed { objects: vec![item], version: "5".into() });
    assert_eq!(status(&store, "a"), Some(HealthStatus::InProgress));
}

#[test]
fn a_finished_job_is_returned_once_after_its_deletion() {
    let store = Store::new(MANAGER);
    let resource = kube::api::ApiResource::erase::<k8s_openapi::api::batch::v1::Job>(&());
    let jobs = WatchSpec { content: Content::Whole, ..WatchSpec::in_kind(&resource).owned() };
    store.subscribe(None, &component_key("a"), Subscription::new(vec![jobs.clone()], Arc::default()));
    let job: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "uid": "j", "resourceVersion": "5", "labels": {labels::OWNER: "a"}},
        "spec": {"ttlSecondsAfterFinished": 0},
        "status": {"conditions": [{"type": "Complete", "status": "True"}]},
    }))
    .unwrap();
    let identity = Identity::new("batch", "Job", None, "j");
    let entry = |uid: &str| -> Inventory {
        [(identity.clone(), Entry { uid: uid.to_owned(), ..Entry::default() })].into_iter().collect()
    };
    let one = std::slice::from_ref(&identity);
    store.take(None, &jobs, &ObjectEvent::Applied(Box::new(job.clone())));
    assert_eq!(store.finished(None, &entry("j")), one);
    assert_eq!(store.finished(None, &entry("j")), one, "while it is there");
    store.take(None, &jobs, &ObjectEvent::Deleted(Box::new(job)));
    assert!(store.finished(None, &entry("another")).is_empty());
    assert_eq!(store.finished(None, &entry("j")), one);
    assert!(store.finished(None, &entry("j")).is_empty());
}
