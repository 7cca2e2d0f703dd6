//! Selects the watch events that need a reconcile: of objects that are new, have reappeared, or have a changed
//! desired state.

use std::collections::HashMap;

use kube::Resource;
use kube_runtime::{Predicate, predicates, reflector::ObjectRef, watcher::Event};

/// The uid of an object, and a hash of its generation, labels, annotations and finalizers.
type Fingerprint = (Option<String>, Option<u64>);

/// Fingerprints of the existing objects, which separate changes of the desired state from others, such as status
/// writes. An object that was missing in a list is reconciled when it reappears, since its caches were dropped.
pub(super) struct EventFilter<K: Resource<DynamicType = ()>> {
    known: HashMap<ObjectRef<K>, Fingerprint>,
    listed: HashMap<ObjectRef<K>, Fingerprint>,
    held: Vec<K>,
}

impl<K: Resource<DynamicType = ()>> Default for EventFilter<K> {
    fn default() -> Self {
        Self { known: HashMap::new(), listed: HashMap::new(), held: vec![] }
    }
}

impl<K: Resource<DynamicType = ()>> EventFilter<K> {
    /// Returns the objects to reconcile after an event. Objects of a list are returned at its end, since the store
    /// lacks them before.
    pub(super) fn process_event(&mut self, event: Event<K>) -> Vec<K> {
        match event {
            Event::Apply(object) => {
                let fingerprint = fingerprint(&object);
                let before = self.known.insert(ObjectRef::from_obj(&object), fingerprint.clone());
                if before == Some(fingerprint) { vec![] } else { vec![object] }
            }
            Event::Delete(object) => {
                self.known.remove(&ObjectRef::from_obj(&object));
                vec![]
            }
            Event::Init => {
                self.listed.clear();
                self.held.clear();
                vec![]
            }
            Event::InitApply(object) => {
                let (key, fingerprint) = (ObjectRef::from_obj(&object), fingerprint(&object));
                if self.known.get(&key) != Some(&fingerprint) {
                    self.held.push(object);
                }
                self.listed.insert(key, fingerprint);
                vec![]
            }
            Event::InitDone => {
                self.known = std::mem::take(&mut self.listed);
                std::mem::take(&mut self.held)
            }
        }
    }
}

fn fingerprint<K: Resource>(object: &K) -> Fingerprint {
    let asked = predicates::generation
        .combine(predicates::labels)
        .combine(predicates::annotations)
        .combine(predicates::finalizers);
    (object.meta().uid.clone(), asked.hash_property(object))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;
    use serde_json::json;

    use super::*;

    fn map(name: &str, uid: &str, generation: i64) -> ConfigMap {
        let metadata = json!({"name": name, "namespace": "n", "uid": uid, "generation": generation});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn changed_names(
        filter: &mut EventFilter<ConfigMap>,
        events: impl IntoIterator<Item = Event<ConfigMap>>,
    ) -> Vec<String> {
        events.into_iter().flat_map(|event| filter.process_event(event)).map(|map| map.name_any()).collect()
    }

    fn list(maps: &[ConfigMap]) -> Vec<Event<ConfigMap>> {
        let items = maps.iter().cloned().map(Event::InitApply);
        std::iter::once(Event::Init).chain(items).chain([Event::InitDone]).collect()
    }

    #[test]
    fn event_filter_passes_changes_and_new_objects_not_repetitions() {
        let mut filter = EventFilter::default();
        assert_eq!(changed_names(&mut filter, list(&[map("a", "1", 1), map("b", "2", 1)])), ["a", "b"]);
        assert!(changed_names(&mut filter, [Event::Apply(map("a", "1", 1))]).is_empty(), "a write of status");
        assert!(changed_names(&mut filter, list(&[map("a", "1", 1), map("b", "2", 1)])).is_empty());
        assert_eq!(changed_names(&mut filter, [Event::Apply(map("a", "1", 2))]), ["a"]);
        assert_eq!(changed_names(&mut filter, list(&[map("a", "1", 2), map("b", "3", 1)])), ["b"]);
    }

    #[test]
    fn what_a_list_left_out_is_news_when_it_is_back() {
        let mut filter = EventFilter::default();
        changed_names(&mut filter, list(&[map("a", "1", 1)]));
        assert!(changed_names(&mut filter, list(&[])).is_empty());
        assert_eq!(changed_names(&mut filter, list(&[map("a", "1", 1)])), ["a"]);
        assert!(changed_names(&mut filter, [Event::Delete(map("a", "1", 1))]).is_empty());
        assert_eq!(changed_names(&mut filter, [Event::Apply(map("a", "1", 1))]), ["a"]);
    }

    #[test]
    fn list_changes_wait_for_its_end_and_broken_list_drops_nothing() {
        let mut filter = EventFilter::default();
        changed_names(&mut filter, list(&[map("a", "1", 1)]));
        let broken = [Event::Init, Event::InitApply(map("b", "2", 1))];
        assert!(changed_names(&mut filter, broken).is_empty());
        assert_eq!(changed_names(&mut filter, list(&[map("a", "1", 1), map("b", "2", 1)])), ["b"]);
    }
}
