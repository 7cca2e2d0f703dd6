//! Revisions of the hub's ConfigMaps from a watch, and the components to requeue when one changes.

use std::collections::HashMap;
use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use kyma_controller::{Index, Revision, hub_watch};
use parking_lot::Mutex;

use crate::component_key::ComponentKey;

/// Only metadata is watched.
#[derive(Default)]
pub(crate) struct HubConfigMaps {
    known: Mutex<ConfigMapRevisions>,
    subscribers: Mutex<Index<String, ComponentKey>>,
}

impl HubConfigMaps {
    /// Returns the revision of the ConfigMap of this name that the watch has reported last.
    pub(crate) fn revision(&self, name: &str) -> Option<Revision> {
        self.known.lock().revisions.get(name).cloned()
    }

    /// Requeues the component when one of these objects changes. Replaces its earlier subscription.
    pub(crate) fn subscribe(&self, component_key: &ComponentKey, names: impl IntoIterator<Item = String>) {
        self.subscribers.lock().set(component_key.clone(), names);
    }

    /// Removes a component that is gone.
    pub(crate) fn forget(&self, component_key: &ComponentKey) {
        self.subscribers.lock().remove(component_key);
    }

    /// Watches the `ConfigMap`s without end and requeues the components that use a changed one.
    pub(crate) async fn follow(&self, hub: Client, namespace: &str, wake: impl Fn(&ComponentKey)) {
        let api: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(hub, namespace);
        let mut events = pin!(hub_watch(api, watcher::Config::default()));
        while let Some(event) = events.next().await {
            let Ok(event) = event else { continue };
            let changed = self.known.lock().take(event);
            for name in changed {
                let waiting: Vec<ComponentKey> = self.subscribers.lock().dependents(&name).cloned().collect();
                waiting.iter().for_each(&wake);
            }
        }
    }
}

/// Revisions by name; complete once the first list has arrived.
#[derive(Default)]
struct ConfigMapRevisions {
    revisions: HashMap<String, Revision>,
    listed: HashMap<String, Revision>,
}

impl ConfigMapRevisions {
    /// Takes an event of the watch; returns the names of ConfigMaps that changed or are gone.
    fn take(&mut self, event: Event<PartialObjectMeta<ConfigMap>>) -> Vec<String> {
        match event {
            Event::Apply(object) => {
                let (name, now) = (object.name_any(), Revision::of(&object.metadata));
                let before = self.revisions.insert(name.clone(), now.clone());
                if before == Some(now) { vec![] } else { vec![name] }
            }
            Event::Delete(object) => {
                self.revisions.remove(&object.name_any());
                vec![object.name_any()]
            }
            Event::Init => {
                self.listed.clear();
                vec![]
            }
            Event::InitApply(object) => {
                self.listed.insert(object.name_any(), Revision::of(&object.metadata));
                vec![]
            }
            Event::InitDone => {
                let before = std::mem::replace(&mut self.revisions, std::mem::take(&mut self.listed));
                let gone = before.keys().filter(|name| !self.revisions.contains_key(*name));
                let others = self.revisions.iter().filter(|(name, now)| before.get(*name) != Some(now));
                gone.chain(others.map(|(name, _)| name)).cloned().collect()
            }
        }
    }
}

#[cfg(test)]
impl HubConfigMaps {
    /// Reports whether no component uses a ConfigMap.
    pub(crate) fn is_empty(&self) -> bool {
        self.subscribers.lock().dependencies() == 0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, version: &str) -> PartialObjectMeta<ConfigMap> {
        let metadata = json!({"name": name, "uid": name, "resourceVersion": version});
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    fn changed(
        known: &mut ConfigMapRevisions,
        events: Vec<Event<PartialObjectMeta<ConfigMap>>>,
    ) -> Vec<String> {
        let mut names: Vec<String> = events.into_iter().flat_map(|event| known.take(event)).collect();
        names.sort();
        names
    }

    #[test]
    fn a_list_tells_what_changed_meanwhile_and_what_is_gone() {
        let mut known = ConfigMapRevisions::default();
        let list = |objects: Vec<PartialObjectMeta<ConfigMap>>| {
            let objects = objects.into_iter().map(Event::InitApply);
            [Event::Init].into_iter().chain(objects).chain([Event::InitDone]).collect()
        };
        let first = vec![object("gone", "1"), object("other", "1"), object("same", "1")];
        assert_eq!(changed(&mut known, list(first)), ["gone", "other", "same"]);
        let second = vec![object("new", "1"), object("other", "2"), object("same", "1")];
        assert_eq!(changed(&mut known, list(second)), ["gone", "new", "other"]);
        let events = vec![Event::Apply(object("same", "1")), Event::Delete(object("new", "1"))];
        assert_eq!(changed(&mut known, events), ["new"]);
        assert!(!known.revisions.contains_key("new"));
    }
}
