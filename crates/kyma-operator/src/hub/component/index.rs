//! Index of all components on the hub by Kyma. Watches and the operator's own writes update it.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use kyma_controller::{KymaKey, WriteThrough};

use super::{ComponentView, TemplateRecords};
use crate::hub::kinds::GroupKind;

/// Identifies a component by group, kind, namespace and name, independent of the API version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ComponentId {
    /// API group.
    pub(crate) group: String,
    /// Kind.
    pub(crate) kind: String,
    /// Namespace.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
}

/// Views of all components.
#[derive(Debug, Default)]
pub(crate) struct Components {
    views: HashMap<ComponentId, ComponentView>,
    by_kyma: HashMap<KymaKey, BTreeSet<ComponentId>>,
    /// Number of components of each module that is installed because it is mandatory.
    mandatory: HashMap<String, usize>,
    /// Writes that the watch of a kind does not show yet. The views contain them.
    writes: HashMap<GroupKind, WriteThrough<ComponentId, ()>>,
    contents: TemplateRecords,
}

impl Components {
    /// Returns the components of a Kyma.
    pub(crate) fn of(&self, kyma: &KymaKey) -> Vec<ComponentView> {
        let ids = self.by_kyma.get(kyma).into_iter().flatten();
        ids.filter_map(|id| self.views.get(id)).cloned().collect()
    }

    /// Returns the template records of all components.
    pub(crate) fn contents(&self) -> &TemplateRecords {
        &self.contents
    }

    /// Returns when the oldest component that records this ModuleConfig was created; none if no component records it.
    pub(crate) fn oldest_with_config(&self, name: &str, uid: &str) -> Option<Timestamp> {
        let has_it = |view: &&ComponentView| view.configs.get(name).is_some_and(|recorded| recorded == uid);
        self.views.values().filter(has_it).filter_map(|view| view.created).min()
    }

    /// Returns the number of components that install the module because it is mandatory.
    pub(crate) fn mandatory(&self, module: &str) -> usize {
        self.mandatory.get(module).copied().unwrap_or_default()
    }

    fn insert(&mut self, id: ComponentId, view: ComponentView) {
        self.contents.add(&view.module, view.template.as_ref());
        if view.mandatory {
            *self.mandatory.entry(view.module.clone()).or_default() += 1;
        }
        if let Some(before) = self.views.insert(id, view) {
            self.uncount(&before);
        }
    }

    fn uncount(&mut self, view: &ComponentView) {
        self.contents.remove(&view.module, view.template.as_ref());
        if !view.mandatory {
            return;
        }
        if let Some(count) = self.mandatory.get_mut(&view.module) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.mandatory.remove(&view.module);
            }
        }
    }

    /// Adds a component from a watch event and returns the Kyma to requeue. Ignores states older than the indexed
    /// one, which a watch may deliver after a write.
    pub(crate) fn apply(&mut self, view: ComponentView) -> Option<KymaKey> {
        self.record_delivered(&view);
        self.insert_if_newer(view)
    }

    fn insert_if_newer(&mut self, view: ComponentView) -> Option<KymaKey> {
        let indexed = self.views.get(&view.id());
        let older = indexed.is_some_and(|indexed| {
            indexed.uid == view.uid && view.resource_version <= indexed.resource_version
        });
        if older { None } else { self.listed(view) }
    }

    /// Adds the result of a write. Later watch events take precedence: the component may be deleted already, without
    /// another event.
    pub(crate) fn written(&mut self, view: ComponentView) {
        let id = view.id();
        let writes = self.writes_mut(&id.group, &id.kind);
        writes.record_write(id.clone(), view.resource_version, ());
        writes.forget_delivered(&id);
        if writes.last(&id).is_some() {
            self.insert_if_newer(view);
        }
    }

    fn record_delivered(&mut self, view: &ComponentView) {
        let id = view.id();
        let writes = self.writes_mut(&id.group, &id.kind);
        writes.record_event(&id, view.resource_version);
        writes.forget_delivered(&id);
    }

    fn writes_mut(&mut self, group: &str, kind: &str) -> &mut WriteThrough<ComponentId, ()> {
        self.writes.entry((group.to_owned(), kind.to_owned())).or_default()
    }

    /// Begins the list of a kind; [`Self::retain`] ends it.
    pub(crate) fn begin_list(&mut self, group: &str, kind: &str) {
        self.writes_mut(group, kind).begin_list();
    }

    /// Adds a component of a list, whatever its resourceVersion is.
    pub(crate) fn listed(&mut self, view: ComponentView) -> Option<KymaKey> {
        let id = view.id();
        if let Some(indexed) = self.views.get(&id).filter(|indexed| indexed.kyma != view.kyma) {
            let indexed = indexed.clone();
            self.unlink(&indexed);
        }
        let kyma = view.kyma.clone();
        self.by_kyma.entry(kyma.clone()).or_default().insert(id.clone());
        let changed = self.views.get(&id).is_none_or(|indexed| !indexed.same_but_resource_version(&view));
        self.insert(id, view);
        changed.then_some(kyma)
    }

    /// Removes a component after a DELETE event with its last state.
    pub(crate) fn delete(&mut self, last: &ComponentView) -> Option<KymaKey> {
        self.record_delivered(last);
        self.remove(&last.id(), &last.uid)
    }

    /// Removes a component, unless one with another uid replaced it.
    fn remove(&mut self, id: &ComponentId, uid: &str) -> Option<KymaKey> {
        if self.views.get(id).is_none_or(|indexed| indexed.uid != uid) {
            return None;
        }
        let indexed = self.views.remove(id)?;
        self.uncount(&indexed);
        self.unlink(&indexed);
        Some(indexed.kyma)
    }

    /// Ends the list of a kind: removes its components that were neither listed nor written meanwhile.
    pub(crate) fn retain(&mut self, group: &str, kind: &str, listed: &BTreeSet<ComponentId>) -> Vec<KymaKey> {
        let writes = self.writes.entry((group.to_owned(), kind.to_owned())).or_default();
        writes.end_list();
        writes.retain(|write| !write.is_superseded());
        let is_gone = |id: &ComponentId| {
            id.group == group && id.kind == kind && !listed.contains(id) && writes.last(id).is_none()
        };
        let gone: Vec<(ComponentId, String)> = self
            .views
            .iter()
            .filter(|(id, _)| is_gone(id))
            .map(|(id, view)| (id.clone(), view.uid.clone()))
            .collect();
        gone.iter().filter_map(|(id, uid)| self.remove(id, uid)).collect()
    }

    fn unlink(&mut self, view: &ComponentView) {
        if let Some(ids) = self.by_kyma.get_mut(&view.kyma) {
            ids.remove(&view.id());
            if ids.is_empty() {
                self.by_kyma.remove(&view.kyma);
            }
        }
    }
}

#[cfg(test)]
impl Components {
    /// Reports whether there is no component and no write of one.
    pub(crate) fn is_empty(&self) -> bool {
        let has_no_writes = self.writes.values().all(WriteThrough::is_empty);
        has_no_writes && self.views.is_empty() && self.by_kyma.is_empty() && self.mandatory.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::hub::component::ComponentKind;

    fn view(resource_version: u64, version: &str) -> ComponentView {
        let object = json!({
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
            "metadata": {
                "name": "c", "namespace": "n", "uid": "u", "resourceVersion": resource_version.to_string(),
                "ownerReferences": [{
                    "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "name": "k", "uid": "k",
                }],
            },
            "spec": {"module": {"name": "m", "version": version}},
        });
        ComponentView::of(&ComponentKind::helm(), &serde_json::from_value(object).unwrap()).unwrap()
    }

    #[test]
    fn an_older_state_counts_only_where_it_is_listed() {
        let mut components = Components::default();
        let kyma = KymaKey::new("n", "k");
        let ordered = |components: &Components| components.of(&kyma)[0].desired_version.clone().unwrap();
        components.apply(view(20, "2.0.0"));
        assert_eq!(components.apply(view(10, "1.0.0")), None, "late, after our own write");
        assert_eq!(ordered(&components), "2.0.0");
        assert_eq!(components.listed(view(10, "1.0.0")), Some(kyma.clone()), "the hub was restored");
        assert_eq!(ordered(&components), "1.0.0");
        assert_eq!(components.apply(view(11, "1.1.0")), Some(kyma.clone()));
    }

    #[test]
    fn mandatory_components_are_counted_through_every_change() {
        let of = |name: &str, version: u64, module: &str, mandatory: bool| {
            let view = view(version, "1.0.0");
            ComponentView {
                name: name.to_owned(),
                uid: name.to_owned(),
                module: module.to_owned(),
                mandatory,
                ..view
            }
        };
        let mut components = Components::default();
        let scan = |components: &Components, module: &str| {
            components.views.values().filter(|view| view.mandatory && view.module == module).count()
        };
        let mut version = 0;
        for (name, module, mandatory) in [
            ("a", "m", true),
            ("b", "m", true),
            ("c", "m", false),
            ("a", "n", true),
            ("b", "m", false),
            ("b", "m", true),
        ] {
            version += 1;
            components.apply(of(name, version, module, mandatory));
            for module in ["m", "n"] {
                assert_eq!(components.mandatory(module), scan(&components, module), "{name} {module}");
            }
        }
        assert_eq!((components.mandatory("m"), components.mandatory("n")), (1, 1));
        components.delete(&of("b", 20, "m", true));
        components.begin_list("component.kyma-project.io", "HelmComponent");
        components.retain("component.kyma-project.io", "HelmComponent", &BTreeSet::new());
        assert!(components.mandatory.is_empty() && components.views.is_empty());
    }

    #[test]
    fn the_oldest_component_dates_the_record_of_a_config() {
        let mut components = Components::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        for (name, config, second) in [("a", "1", 30), ("b", "1", 20), ("c", "2", 10)] {
            components.apply(ComponentView {
                name: name.to_owned(),
                uid: name.to_owned(),
                configs: [("gold".to_owned(), config.to_owned())].into(),
                created: Some(at(second)),
                ..view(1, "1.0.0")
            });
        }
        assert_eq!(components.oldest_with_config("gold", "1"), Some(at(20)));
        assert_eq!(components.oldest_with_config("gold", "2"), Some(at(10)));
        assert_eq!(components.oldest_with_config("gold", "3"), None);
    }

    #[test]
    fn an_answer_that_comes_after_the_end_brings_nothing_back() {
        let mut components = Components::default();
        let kyma = KymaKey::new("n", "k");
        components.apply(view(10, "1.0.0"));
        assert_eq!(components.delete(&view(12, "1.0.0")), Some(kyma.clone()));
        components.written(view(11, "1.1.0"));
        assert!(components.of(&kyma).is_empty());
        components.written(view(13, "1.1.0"));
        assert_eq!(components.of(&kyma).len(), 1, "made anew");
    }

    #[test]
    fn component_written_during_the_list_of_a_backup_stays_indexed() {
        let mut components = Components::default();
        components.apply(view(9_000, "1.0.0"));
        components.begin_list("component.kyma-project.io", "HelmComponent");
        components.written(view(500, "1.0.0"));
        let gone = components.retain("component.kyma-project.io", "HelmComponent", &BTreeSet::new());
        assert!(gone.is_empty());
        assert_eq!(components.of(&KymaKey::new("n", "k")).len(), 1);
    }

    #[test]
    fn a_component_written_during_a_list_stays_indexed() {
        let mut components = Components::default();
        let kyma = KymaKey::new("n", "k");
        let list = |components: &mut Components| {
            components.retain("component.kyma-project.io", "HelmComponent", &BTreeSet::new())
        };
        components.begin_list("component.kyma-project.io", "HelmComponent");
        components.written(view(20, "1.0.0"));
        assert!(list(&mut components).is_empty());
        assert_eq!(components.of(&kyma).len(), 1);
        components.begin_list("component.kyma-project.io", "HelmComponent");
        assert_eq!(list(&mut components).len(), 1, "written before the list began");
        assert!(components.of(&kyma).is_empty());
    }
}
