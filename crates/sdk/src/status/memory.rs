//! What is known of statuses beyond what the watch shows (pure).

use std::collections::{HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube_runtime::reflector::ObjectRef;
use kyma_api::FreeForm;

use crate::{ComponentResource, Contract};

/// Statuses that we wrote and the watch has not brought back yet, and objects that had one.
pub(super) struct Memory<R: ComponentResource> {
    written: HashMap<ObjectRef<R>, Written>,
    reported: HashSet<ObjectRef<R>>,
}

struct Written {
    uid: Option<String>,
    version: u64,
    status: FreeForm,
    /// A list has begun since: what it shows counts, even if it is older.
    is_outdated: bool,
}

impl<R: ComponentResource> Default for Memory<R> {
    fn default() -> Self {
        Self { written: HashMap::new(), reported: HashSet::new() }
    }
}

impl<R: ComponentResource> Memory<R> {
    /// What we wrote over the state of `resource`, if that is the last that is known.
    pub(super) fn newer_than(&self, resource: &R) -> Option<FreeForm> {
        self.over(resource).map(|own| own.status.clone())
    }

    /// Metadata of `resource`, in the last version that is known.
    pub(super) fn latest(&self, resource: &R) -> ObjectMeta {
        let mut meta = resource.meta().clone();
        if let Some(own) = self.over(resource) {
            meta.resource_version = Some(own.version.to_string());
        }
        meta
    }

    fn over(&self, resource: &R) -> Option<&Written> {
        let own = self.written.get(&ObjectRef::from_obj(resource))?;
        let counts = !own.is_outdated && own.uid == resource.uid() && own.version > version(resource);
        counts.then_some(own)
    }

    /// A write of ours returned `resource` with this status.
    pub(super) fn wrote(&mut self, resource: &R, status: FreeForm) {
        let own = Written { uid: resource.uid(), version: version(resource), status, is_outdated: false };
        self.written.insert(ObjectRef::from_obj(resource), own);
    }

    /// The watch brought `resource`. True if somebody has to look at its status again: it is gone, as some backup tools
    /// leave it, or is what we wrote before a list that hid it from a pass.
    pub(super) fn saw(&mut self, resource: &R) -> bool {
        let key = ObjectRef::from_obj(resource);
        let caught_up = self.written.get(&key).is_some_and(|own| own.version <= version(resource));
        let own = if caught_up { self.written.remove(&key) } else { None };
        let was_hidden = own.is_some_and(|own| own.is_outdated);
        let generation = |contract: Contract| contract.whole_status.get("observedGeneration").cloned();
        let has_status =
            Contract::of(resource).ok().and_then(generation).is_some_and(|value| !value.is_null());
        if has_status {
            self.reported.insert(key);
            return was_hidden;
        }
        self.reported.remove(&key)
    }

    /// A list begins: what it shows is how it is, even where resourceVersions went back with a restored hub.
    pub(super) fn listing(&mut self) {
        self.written.values_mut().for_each(|own| own.is_outdated = true);
    }

    /// The object is gone.
    pub(super) fn forget(&mut self, key: &ObjectRef<R>) {
        self.written.remove(key);
        self.reported.remove(key);
    }
}

/// resourceVersion as a number, which apiservers let grow.
fn version<R: ComponentResource>(resource: &R) -> u64 {
    resource.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use kyma_api::HelmComponent;
    use serde_json::{Value, from_value, json};

    use super::*;

    fn status(state: &str) -> Value {
        json!({"state": state, "observedGeneration": 1})
    }

    fn seen(version: u64, status: &Value) -> HelmComponent {
        from_value(json!({
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": version.to_string()},
            "spec": {"source": {}}, "status": status,
        }))
        .unwrap()
    }

    fn wrote(version: u64, state: &str) -> Memory<HelmComponent> {
        let mut memory = Memory::default();
        memory.saw(&seen(version - 1, &status("Processing")));
        memory.wrote(&seen(version, &status(state)), from_value(status(state)).unwrap());
        memory
    }

    #[test]
    fn what_was_written_counts_until_the_watch_has_caught_up() {
        let mut memory = wrote(5, "Ready");
        let late = seen(4, &status("Processing"));
        assert!(!memory.saw(&late));
        assert_eq!(memory.newer_than(&late).unwrap()["state"], "Ready");
        assert_eq!(memory.newer_than(&seen(6, &status("Error"))), None);
        assert!(!memory.saw(&seen(5, &status("Ready"))), "our own");
        assert_eq!(memory.newer_than(&late), None);
    }

    #[test]
    fn a_status_that_is_gone_is_noticed_once() {
        let mut memory = wrote(5, "Ready");
        assert!(!memory.saw(&seen(5, &status("Ready"))));
        assert!(memory.saw(&seen(6, &json!({}))));
        assert!(!memory.saw(&seen(7, &json!({}))));
    }

    #[test]
    fn what_a_late_list_hid_is_noticed_when_it_comes() {
        let mut memory = wrote(5, "Error");
        memory.listing();
        let late = seen(4, &status("Processing"));
        assert!(!memory.saw(&late));
        assert_eq!(memory.newer_than(&late), None, "the hub may have been restored");
        assert!(memory.saw(&seen(5, &status("Error"))), "the pass rested on what was before");
        assert!(!memory.saw(&seen(6, &status("Error"))));
    }
}
