use kube::api::ApiResource;
use kyma_api::labels;
use kyma_controller::Content;
use serde_json::{Value, json};

use super::*;

const MANAGER: &str = "helm-component";

fn watch_spec(content: Content) -> WatchSpec {
    let resource = ApiResource {
        group: "apps".into(),
        version: "v1".into(),
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        plural: "deployments".into(),
    };
    WatchSpec { content, ..WatchSpec::in_kind(&resource).owned() }
}

/// Returns a store with a component that subscribes to both streams.
fn store() -> Store {
    let store = Store::new(MANAGER);
    let watch_specs = [Content::Whole, Content::Metadata].map(watch_spec).to_vec();
    store.subscribe(None, &component_key(), Subscription::new(watch_specs, Arc::default()));
    store
}

/// Returns an object as the API server shows it after the operator applied these fields.
fn object(revision: u64, own_fields: &Value) -> Box<DynamicObject> {
    let entry = json!({"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": own_fields}});
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "d", "namespace": "n", "uid": "u", "resourceVersion": revision.to_string(),
            "labels": {labels::OWNER: "owner"}, "managedFields": [entry],
        },
        "spec": {"replicas": 0},
        "status": {"observedGeneration": 1},
    });
    Box::new(serde_json::from_value(object).unwrap())
}

fn intact(revision: u64) -> Box<DynamicObject> {
    object(revision, &json!({"f:replicas": {}}))
}

fn drifted(revision: u64) -> Box<DynamicObject> {
    object(revision, &json!({}))
}

fn identity() -> Identity {
    Identity::new("apps", "Deployment", Some("n"), "d")
}

fn observed(object: &DynamicObject) -> ObservedObject {
    ObservedObject::from_metadata(&object.metadata, MANAGER, labels::OWNER)
}

fn cached(store: &Store) -> Option<WatchedObject> {
    store.objects(None, "owner", &Inventory::default()).remove(&identity())
}

fn take_metadata(store: &Store, event: &ObjectEvent) -> bool {
    store.take(None, &watch_spec(Content::Metadata), event).owners.contains("owner")
}

#[test]
fn the_result_of_an_apply_counts_until_its_event() {
    let store = store();
    take_metadata(&store, &ObjectEvent::Applied(drifted(4)));
    store.record_apply(None, &identity(), (observed(&intact(5)), None), Some(5_u64.into()));
    assert_eq!(cached(&store).unwrap().observed, observed(&intact(5)));
    assert!(
        !take_metadata(&store, &ObjectEvent::Applied(intact(5))),
        "the event of the own write changes nothing"
    );
    assert!(take_metadata(&store, &ObjectEvent::Applied(drifted(6))));
}

/// Takes an event of the stream of whole objects.
fn take_whole(store: &Store, event: &ObjectEvent) -> bool {
    store.take(None, &watch_spec(Content::Whole), event).owners.contains("owner")
}

fn listed(objects: Vec<DynamicObject>, version: &str) -> ObjectEvent {
    ObjectEvent::Listed { objects, version: version.to_owned() }
}

fn apply(store: &Store, revision: u64) {
    store.record_apply(None, &identity(), (observed(&intact(revision)), None), Some(revision.into()));
}

fn is_unreported(store: &Store) -> bool {
    !store.unreported(None, &store.objects(None, "owner", &Inventory::default())).is_empty()
}

#[test]
fn an_applied_object_is_unreported_until_its_event() {
    let store = store();
    take_whole(&store, &listed(vec![*intact(4)], "4"));
    assert!(!is_unreported(&store));
    apply(&store, 6);
    assert!(is_unreported(&store));
    assert!(!take_whole(&store, &ObjectEvent::Applied(intact(5))), "late");
    assert!(is_unreported(&store));
    assert!(
        take_whole(&store, &ObjectEvent::Applied(intact(6))),
        "the waiting component is requeued without a change"
    );
    assert!(!is_unreported(&store));
    assert!(!take_whole(&store, &ObjectEvent::Applied(intact(7))));
}

#[test]
fn a_later_change_of_an_applied_object_ends_the_wait() {
    for after in
        [ObjectEvent::Applied(drifted(8)), ObjectEvent::Deleted(intact(8)), listed(vec![*drifted(8)], "9")]
    {
        let store = store();
        take_whole(&store, &listed(vec![*intact(4)], "4"));
        apply(&store, 6);
        store.take(None, &watch_spec(Content::Whole), &after);
        assert!(!is_unreported(&store), "{after:?}");
    }
}

#[test]
fn an_applied_object_of_another_owner_is_unreported() {
    let store = store();
    let mut foreign = intact(4);
    foreign.metadata.labels = Some([(labels::OWNER.to_owned(), "another".to_owned())].into());
    take_whole(&store, &listed(vec![*foreign], "4"));
    apply(&store, 6);
    let own = Inventory::from_iter([(identity(), kyma_object_set::Entry::default())]);
    assert_eq!(store.unreported(None, &store.objects(None, "owner", &own)), [identity()].into());
}

#[test]
fn only_a_stream_of_whole_objects_ends_the_wait() {
    let store = store();
    let (whole, component_key) = (watch_spec(Content::Whole), component_key());
    let both = vec![whole, watch_spec(Content::Metadata)];
    store.subscribe(None, &component_key, Subscription::new(both, Arc::default()));
    take_whole(&store, &listed(vec![*intact(4)], "4"));
    take_metadata(&store, &listed(vec![*intact(4)], "4"));
    apply(&store, 6);
    take_metadata(&store, &ObjectEvent::Applied(intact(6)));
    assert!(is_unreported(&store), "another component's stream of metadata was faster");
    take_metadata(&store, &listed(vec![*intact(6)], "7"));
    assert!(is_unreported(&store), "as was its list");
    apply(&store, 7);
    assert!(take_whole(&store, &ObjectEvent::Applied(intact(7))));
    assert!(!is_unreported(&store));
    apply(&store, 8);
    store.subscribe(
        None,
        &component_key,
        Subscription::new(vec![watch_spec(Content::Metadata)], Arc::default()),
    );
    assert!(!is_unreported(&store), "no stream shows health");
}

#[test]
fn a_list_from_before_an_apply_does_not_end_the_wait() {
    let store = store();
    take_whole(&store, &listed(vec![*drifted(4)], "4"));
    apply(&store, 6);
    take_whole(&store, &listed(vec![*drifted(4)], "5"));
    assert!(is_unreported(&store));
    assert_eq!(cached(&store).unwrap().observed, observed(&intact(6)));
    take_whole(&store, &listed(vec![], "5"));
    assert!(is_unreported(&store), "it may have been made since");
    take_whole(&store, &listed(vec![], "6"));
    assert_eq!(cached(&store), None);
}

fn component_key() -> ComponentKey {
    ComponentKey { namespace: "hub".into(), name: "c".into(), owner: "owner".into() }
}

#[test]
fn state_of_a_stream_is_dropped_with_its_last_subscriber() {
    let store = Store::new(MANAGER);
    let subscribe = |name: &str, watch_specs: Vec<WatchSpec>| {
        let component_key = ComponentKey { name: name.into(), ..component_key() };
        store.subscribe(None, &component_key, Subscription::new(watch_specs, Arc::default()));
    };
    let maps = watch_spec(Content::Metadata);
    for name in ["a", "b", "b"] {
        subscribe(name, vec![maps.clone()]);
    }
    take_metadata(&store, &listed(vec![*intact(4)], "4"));
    subscribe("a", vec![]);
    assert!(cached(&store).is_some() && store.all_listed(None, std::slice::from_ref(&maps)));
    subscribe("b", vec![]);
    assert!(cached(&store).is_none() && !store.all_listed(None, &[maps]));
}

#[test]
fn an_event_before_an_apply_does_not_hide_its_result() {
    let store = store();
    take_metadata(&store, &ObjectEvent::Applied(drifted(4)));
    store.record_apply(None, &identity(), (observed(&intact(6)), None), Some(6_u64.into()));
    assert!(!take_metadata(&store, &ObjectEvent::Applied(drifted(5))), "late");
    assert_eq!(cached(&store).unwrap().observed, observed(&intact(6)));
}

#[test]
fn the_previous_owner_of_an_object_is_requeued() {
    let store = store();
    take_metadata(&store, &ObjectEvent::Applied(intact(4)));
    let mut foreign = intact(5);
    foreign.metadata.labels = Some([(labels::OWNER.to_owned(), "another".to_owned())].into());
    store.record_apply(None, &identity(), (observed(&foreign), None), Some(5_u64.into()));
    assert!(take_metadata(&store, &ObjectEvent::Applied(foreign)));
}

#[test]
fn the_result_of_an_apply_does_not_hide_later_events() {
    let store = store();
    take_metadata(&store, &ObjectEvent::Applied(drifted(4)));
    take_metadata(&store, &ObjectEvent::Applied(intact(5)));
    take_metadata(&store, &ObjectEvent::Applied(drifted(6)));
    store.record_apply(None, &identity(), (observed(&intact(5)), None), Some(5_u64.into()));
    assert_eq!(cached(&store).unwrap().observed, observed(&drifted(6)), "changed again");
    take_metadata(&store, &ObjectEvent::Deleted(drifted(7)));
    store.record_apply(None, &identity(), (observed(&intact(5)), None), Some(5_u64.into()));
    assert_eq!(cached(&store), None, "deleted");
    store.record_apply(None, &identity(), (observed(&intact(8)), None), Some(8_u64.into()));
    take_metadata(&store, &ObjectEvent::Listed { objects: vec![], version: "9".into() });
    store.record_apply(None, &identity(), (observed(&intact(8)), None), Some(8_u64.into()));
    assert_eq!(cached(&store), None, "no longer listed");
}

#[test]
fn after_a_restore_of_the_target_the_list_decides() {
    let store = store();
    take_metadata(&store, &ObjectEvent::Applied(intact(900)));
    take_metadata(&store, &ObjectEvent::Listed { objects: vec![*intact(5)], version: "6".into() });
    store.record_apply(None, &identity(), (observed(&drifted(7)), None), Some(7_u64.into()));
    assert_eq!(cached(&store).unwrap().observed, observed(&drifted(7)));
}

#[test]
fn health_outlasts_events_with_metadata_alone() {
    let store = store();
    store.take(None, &watch_spec(Content::Whole), &ObjectEvent::Applied(intact(4)));
    let known = cached(&store).unwrap().health;
    assert!(known.is_some());
    take_metadata(&store, &ObjectEvent::Applied(intact(5)));
    assert_eq!(cached(&store).unwrap().health, known);
    take_metadata(&store, &ObjectEvent::Listed { objects: vec![*intact(6)], version: "7".into() });
    assert_eq!(cached(&store).unwrap().health, known);
}

#[test]
fn an_event_of_an_ended_stream_is_not_kept() {
    let store = store();
    let metadata = vec![watch_spec(Content::Metadata)];
    store.subscribe(None, &component_key(), Subscription::new(metadata, Arc::default()));
    assert!(!take_whole(&store, &ObjectEvent::Applied(intact(4))), "the component needs metadata alone");
    assert_eq!(cached(&store), None);
    assert!(take_metadata(&store, &ObjectEvent::Applied(intact(4))));
    store.forget(&component_key());
    assert!(!take_metadata(&store, &ObjectEvent::Applied(intact(5))));
    store.record_apply(None, &identity(), (observed(&intact(6)), None), Some(6_u64.into()));
    assert!(store.targets.lock().get(None).is_none(), "no component uses the target");
}
