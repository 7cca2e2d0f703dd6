//! The watch of the reconciler's own kind: changed and vanished objects.

use std::collections::HashSet;

use futures::{Stream, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{Api, Resource, core::DeserializeGuard};
use kube_runtime::{
    WatchStreamExt,
    reflector::{ObjectRef, Store, store::Writer},
    watcher,
};
use kyma_api::hand_over;

use super::event_filter::EventFilter;
use crate::expression::evaluation::contain_panic;
use crate::hub::resource::{HubResource, decode_or_log};
use crate::hub::watch::hub_watch;
use crate::process::runtime::Runtime;

/// A change of an object on the hub, for indexes.
#[derive(Debug)]
pub enum Change<'a, K: Resource<DynamicType = ()>> {
    /// The object was added or changed.
    Applied(&'a K),
    /// The object was deleted.
    Deleted(&'a ObjectRef<K>),
    /// A list begins. The hub may have been restored from a backup before it: resourceVersions that were seen earlier
    /// can no longer be compared with those that follow. The previous state counts until [`Change::Listed`].
    Listing,
    /// The list is complete and in the store. Its changes and removals follow immediately.
    Listed,
}

impl<K: Resource<DynamicType = ()>> Clone for Change<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Resource<DynamicType = ()>> Copy for Change<'_, K> {}

pub(super) type Hook<K> = Box<dyn Fn(Change<'_, K>) + Send + Sync>;

/// Returns a stream of the objects to reconcile. `hooks` are called before, after the store was updated.
pub(super) fn own_changes<K>(
    runtime: &Runtime,
    api: Api<K>,
    (labels, fields): (Option<String>, Option<String>),
    writer: Writer<K>,
    hooks: Vec<Hook<K>>,
) -> impl Stream<Item = Result<K, watcher::Error>> + Send + 'static
where
    K: HubResource,
{
    let guarded: Api<DeserializeGuard<K>> =
        Api::namespaced(api.into_client(), &runtime.settings.hub_namespace);
    let config =
        watcher::Config { label_selector: labels, field_selector: fields, ..watcher::Config::default() };
    let last = writer.as_reader();
    let mut detector = ChangeDetector { hooks, store: writer.as_reader(), present: HashSet::new() };
    let mut filter = EventFilter::default();
    hub_watch(guarded, config)
        .try_filter_map(move |event| futures::future::ready(Ok(decode(event, &last))))
        .reflect(writer)
        .inspect_ok(move |event| detector.process_event(event))
        .map_ok(move |event| stream::iter(filter.process_event(event).into_iter().map(Ok)))
        .try_flatten()
}

/// Skips an unreadable object, which must not stop the watch of all others. In a list and in a DELETE event its last
/// readable state is used instead.
fn decode<K: Resource<DynamicType = ()> + Clone + 'static>(
    event: watcher::Event<DeserializeGuard<K>>,
    last: &Store<K>,
) -> Option<watcher::Event<K>> {
    use watcher::Event;
    match event {
        Event::Apply(guard) => decode_or_log(guard).map(slim).map(Event::Apply),
        Event::Delete(guard) => latest(guard, last).map(Event::Delete),
        Event::InitApply(guard) => latest(guard, last).map(Event::InitApply),
        Event::Init => Some(Event::Init),
        Event::InitDone => Some(Event::InitDone),
    }
}

fn latest<K: Resource<DynamicType = ()> + Clone + 'static>(
    guard: DeserializeGuard<K>,
    last: &Store<K>,
) -> Option<K> {
    let meta = guard.meta();
    let name = ObjectRef::new(meta.name.as_deref().unwrap_or_default());
    let key = name.within(meta.namespace.as_deref().unwrap_or_default());
    decode_or_log(guard).map(slim).or_else(|| last.get(&key).map(|object| (*object).clone()))
}

/// Removes `managedFields`, except KLM's entry, which shows that KLM works on a Kyma.
fn slim<K: Resource<DynamicType = ()>>(mut object: K) -> K {
    let of_klm = hand_over::klm_entry(object.meta()).cloned();
    let of_klm = of_klm.map(|entry| vec![ManagedFieldsEntry { fields_v1: None, ..entry }]);
    object.meta_mut().managed_fields = of_klm;
    object
}

/// Turns watch events into changes, noticing what disappeared between two lists.
struct ChangeDetector<K: Resource<DynamicType = ()> + 'static> {
    hooks: Vec<Hook<K>>,
    /// Updated first: after a list it holds exactly the listed objects.
    store: Store<K>,
    present: HashSet<ObjectRef<K>>,
}

impl<K: Resource<DynamicType = ()> + Clone> ChangeDetector<K> {
    fn process_event(&mut self, event: &watcher::Event<K>) {
        match event {
            watcher::Event::Apply(object) => {
                self.present.insert(ObjectRef::from_obj(object));
                self.call(Change::Applied(object));
            }
            watcher::Event::Delete(object) => {
                let key = ObjectRef::from_obj(object);
                self.present.remove(&key);
                self.call(Change::Deleted(&key));
            }
            watcher::Event::Init => self.call(Change::Listing),
            watcher::Event::InitApply(_) => {}
            watcher::Event::InitDone => {
                let listed = self.store.state();
                let present = listed.iter().map(|object| ObjectRef::from_obj(&**object)).collect();
                let before = std::mem::replace(&mut self.present, present);
                self.call(Change::Listed);
                for object in &listed {
                    self.call(Change::Applied(object));
                }
                for key in before.difference(&self.present) {
                    self.call(Change::Deleted(key));
                }
            }
        }
    }

    fn call(&self, change: Change<'_, K>) {
        for hook in &self.hooks {
            contain_panic(&format!("hook of {}", K::kind(&())), || hook(change));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_runtime::reflector;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use watcher::Event;

    use super::*;

    fn guard(data: &Value) -> DeserializeGuard<ConfigMap> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "n"}, "data": data});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn of_managed_fields_only_that_klm_wrote_the_status_is_kept() {
        let entry = |manager: &str| json!({"manager": manager, "subresource": "status", "fieldsV1": {"f:status": {}}});
        let object =
            json!({"metadata": {"name": "a", "managedFields": [entry("x"), entry("lifecycle-manager")]}});
        let kept = slim(serde_json::from_value::<ConfigMap>(object).unwrap()).metadata;
        assert!(hand_over::klm_entry(&kept).is_some());
        let kept = kept.managed_fields.unwrap();
        assert!(kept.len() == 1 && kept[0].fields_v1.is_none(), "{kept:?}");
    }

    #[test]
    fn object_that_became_unreadable_is_not_gone_in_the_next_list() {
        let (store, mut writer) = reflector::store::<ConfigMap>();
        let told = Arc::new(Mutex::new(vec![]));
        let heard = Arc::clone(&told);
        let hook = move |change: Change<'_, ConfigMap>| {
            if !matches!(change, Change::Listing | Change::Listed) {
                heard.lock().push(matches!(change, Change::Deleted(_)));
            }
        };
        let mut detector =
            ChangeDetector { hooks: vec![Box::new(hook)], store: store.clone(), present: HashSet::new() };
        let list = |data: Value| [Event::Init, Event::InitApply(guard(&data)), Event::InitDone];
        for event in list(json!({"x": "1"})).into_iter().chain(list(json!({"x": 5}))) {
            if let Some(event) = decode(event, &store) {
                writer.apply_watcher_event(&event);
                detector.process_event(&event);
            }
        }
        assert_eq!(*told.lock(), [false, false]);
        let held = store.get(&ObjectRef::new("a").within("n")).unwrap();
        assert_eq!(held.data.as_ref().unwrap()["x"], "1", "what was known of it stays");
    }
}
