use kube::api::ApiResource;
use kyma_api::labels;
use kyma_sdk::Content;
use serde_json::{Value, json};

use super::*;

const OURS: &str = "helm-component";

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
    let store = Store::new(OURS);
    let watch_specs = [Content::Whole, Content::Metadata].map(watch_spec).to_vec();
    store.subscribe(None, &component_key(), Subscription::new(watch_specs, Arc::default()));
    store
}

/// Returns an object as the API server shows it after the operator applied these fields.
fn object(revision: u64, ours: &Value) -> Box<DynamicObject> {
    let entry = json!({"manager": OURS, "operation": "Apply", "fieldsV1": {"f:spec": ours}});
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
    ObservedObject::from_metadata(&object.metadata, OURS, labels::OWNER)
}

fn held(store: &Store) -> Option<WatchedObject> {
    store.objects(None, "owner", &Inventory::default()).remove(&identity())
}

fn saw(store: &Store, event: &ObjectEvent) -> bool {
    store.take(None, &watch_spec(Content::Metadata), event).owners.contains("owner")
}

#[test]
fn what_an_apply_gave_counts_until_the_stream_shows_it() {
    let store = store();
    saw(&store, &ObjectEvent::Applied(drifted(4)));
    store.record_apply(None, &identity(), (observed(&intact(5)), None), Some(5));
    assert_eq!(held(&store).unwrap().observed, observed(&intact(5)));
    assert!(!saw(&store, &ObjectEvent::Applied(intact(5))), "our own write is no news");
    assert!(saw(&store, &ObjectEvent::Applied(drifted(6))));
}

/// Takes an event of the stream of whole objects.
fn told(store: &Store, event: &ObjectEvent) -> bool {
    store.take(None, &watch_spec(Content::Whole), event).owners.contains("owner")
}

fn listed(objects: Vec<DynamicObject>, version: &str) -> ObjectEvent {
    ObjectEvent::Listed { objects, version: version.to_owned() }
}

fn applies(store: &Store, revision: u64) {
    store.record_apply(None, &identity(), (observed(&intact(revision)), None), Some(revision));
}

fn is_unreported(store: &Store) -> bool {
    !store.unreported(None, &store.objects(None, "owner", &Inventory::default())).is_empty()
}

#[test]
fn an_object_that_was_applied_is_unreported_until_its_stream_is_so_far() {
    let store = store();
    told(&store, &listed(vec![*intact(4)], "4"));
    assert!(!is_unreported(&store));
    applies(&store, 6);
    assert!(is_unreported(&store));
    assert!(!told(&store, &ObjectEvent::Applied(intact(5))), "late");
    assert!(is_unreported(&store));
    assert!(told(&store, &ObjectEvent::Applied(intact(6))), "who waits for it hears, though nothing is new");
    assert!(!is_unreported(&store));
    assert!(!told(&store, &ObjectEvent::Applied(intact(7))));
}

#[test]
fn what_somebody_makes_of_an_applied_object_at_once_ends_the_wait_too() {
    for after in
        [ObjectEvent::Applied(drifted(8)), ObjectEvent::Deleted(intact(8)), listed(vec![*drifted(8)], "9")]
    {
        let store = store();
        told(&store, &listed(vec![*intact(4)], "4"));
        applies(&store, 6);
        store.take(None, &watch_spec(Content::Whole), &after);
        assert!(!is_unreported(&store), "{after:?}");
    }
}

#[test]
fn an_object_of_another_owner_is_unreported_too_when_it_was_taken() {
    let store = store();
    let mut theirs = intact(4);
    theirs.metadata.labels = Some([(labels::OWNER.to_owned(), "another".to_owned())].into());
    told(&store, &listed(vec![*theirs], "4"));
    applies(&store, 6);
    let own = Inventory::from_iter([(identity(), kyma_object_set::Entry::default())]);
    assert_eq!(store.unreported(None, &store.objects(None, "owner", &own)), [identity()].into());
}

#[test]
fn only_what_tells_health_ends_the_wait() {
    let store = store();
    let (whole, component_key) = (watch_spec(Content::Whole), component_key());
    let both = vec![whole, watch_spec(Content::Metadata)];
    store.subscribe(None, &component_key, Subscription::new(both, Arc::default()));
    told(&store, &listed(vec![*intact(4)], "4"));
    saw(&store, &listed(vec![*intact(4)], "4"));
    applies(&store, 6);
    saw(&store, &ObjectEvent::Applied(intact(6)));
    assert!(is_unreported(&store), "another component's stream of metadata was faster");
    saw(&store, &listed(vec![*intact(6)], "7"));
    assert!(is_unreported(&store), "as was its list");
    applies(&store, 7);
    assert!(told(&store, &ObjectEvent::Applied(intact(7))));
    assert!(!is_unreported(&store));
    applies(&store, 8);
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
    told(&store, &listed(vec![*drifted(4)], "4"));
    applies(&store, 6);
    told(&store, &listed(vec![*drifted(4)], "5"));
    assert!(is_unreported(&store));
    assert_eq!(held(&store).unwrap().observed, observed(&intact(6)));
    told(&store, &listed(vec![], "5"));
    assert!(is_unreported(&store), "it may have been made since");
    told(&store, &listed(vec![], "6"));
    assert_eq!(held(&store), None);
}

fn component_key() -> ComponentKey {
    ComponentKey { namespace: "hub".into(), name: "c".into(), owner: "owner".into() }
}

#[test]
fn state_of_a_stream_is_dropped_with_its_last_subscriber() {
    let store = Store::new(OURS);
    let subscribe = |name: &str, watch_specs: Vec<WatchSpec>| {
        let component_key = ComponentKey { name: name.into(), ..component_key() };
        store.subscribe(None, &component_key, Subscription::new(watch_specs, Arc::default()));
    };
    let maps = watch_spec(Content::Metadata);
    for name in ["a", "b", "b"] {
        subscribe(name, vec![maps.clone()]);
    }
    saw(&store, &listed(vec![*intact(4)], "4"));
    subscribe("a", vec![]);
    assert!(held(&store).is_some() && store.all_listed(None, std::slice::from_ref(&maps)));
    subscribe("b", vec![]);
    assert!(held(&store).is_none() && !store.all_listed(None, &[maps]));
}

#[test]
fn what_was_before_an_apply_does_not_cover_up_its_answer() {
    let store = store();
    saw(&store, &ObjectEvent::Applied(drifted(4)));
    store.record_apply(None, &identity(), (observed(&intact(6)), None), Some(6));
    assert!(!saw(&store, &ObjectEvent::Applied(drifted(5))), "late");
    assert_eq!(held(&store).unwrap().observed, observed(&intact(6)));
}

#[test]
fn an_owner_whose_object_another_one_took_hears_of_it() {
    let store = store();
    saw(&store, &ObjectEvent::Applied(intact(4)));
    let mut theirs = intact(5);
    theirs.metadata.labels = Some([(labels::OWNER.to_owned(), "another".to_owned())].into());
    store.record_apply(None, &identity(), (observed(&theirs), None), Some(5));
    assert!(saw(&store, &ObjectEvent::Applied(theirs)));
}

#[test]
fn what_somebody_did_after_an_apply_is_not_covered_up_by_its_answer() {
    let store = store();
    saw(&store, &ObjectEvent::Applied(drifted(4)));
    saw(&store, &ObjectEvent::Applied(intact(5)));
    saw(&store, &ObjectEvent::Applied(drifted(6)));
    store.record_apply(None, &identity(), (observed(&intact(5)), None), Some(5));
    assert_eq!(held(&store).unwrap().observed, observed(&drifted(6)), "changed again");
    saw(&store, &ObjectEvent::Deleted(drifted(7)));
    store.record_apply(None, &identity(), (observed(&intact(5)), None), Some(5));
    assert_eq!(held(&store), None, "deleted");
    store.record_apply(None, &identity(), (observed(&intact(8)), None), Some(8));
    saw(&store, &ObjectEvent::Listed { objects: vec![], version: "9".into() });
    store.record_apply(None, &identity(), (observed(&intact(8)), None), Some(8));
    assert_eq!(held(&store), None, "no longer listed");
}

#[test]
fn after_a_restore_of_the_target_the_list_decides() {
    let store = store();
    saw(&store, &ObjectEvent::Applied(intact(900)));
    saw(&store, &ObjectEvent::Listed { objects: vec![*intact(5)], version: "6".into() });
    store.record_apply(None, &identity(), (observed(&drifted(7)), None), Some(7));
    assert_eq!(held(&store).unwrap().observed, observed(&drifted(7)));
}

#[test]
fn health_outlasts_a_stream_that_brings_metadata_alone() {
    let store = store();
    store.take(None, &watch_spec(Content::Whole), &ObjectEvent::Applied(intact(4)));
    let known = held(&store).unwrap().health;
    assert!(known.is_some());
    saw(&store, &ObjectEvent::Applied(intact(5)));
    assert_eq!(held(&store).unwrap().health, known);
    saw(&store, &ObjectEvent::Listed { objects: vec![*intact(6)], version: "7".into() });
    assert_eq!(held(&store).unwrap().health, known);
}

#[test]
fn an_event_of_an_ended_stream_is_not_kept() {
    let store = store();
    let metadata = vec![watch_spec(Content::Metadata)];
    store.subscribe(None, &component_key(), Subscription::new(metadata, Arc::default()));
    assert!(!told(&store, &ObjectEvent::Applied(intact(4))), "the component needs metadata alone");
    assert_eq!(held(&store), None);
    assert!(saw(&store, &ObjectEvent::Applied(intact(4))));
    store.forget(&component_key());
    assert!(!saw(&store, &ObjectEvent::Applied(intact(5))));
    store.record_apply(None, &identity(), (observed(&intact(6)), None), Some(6));
    assert!(store.targets().get(None).is_none(), "no component uses the target");
}
