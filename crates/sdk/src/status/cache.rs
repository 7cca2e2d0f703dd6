//! Cache of written statuses that the watch does not show yet.

use std::collections::{HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube_runtime::reflector::ObjectRef;
use kyma_api::FreeForm;
use kyma_controller::{OwnWrite, ResourceVersion, WriteThrough};

use crate::contract::{ComponentResource, Contract};

/// Written statuses that the watch does not show yet or the running reconcile has not seen, and the objects that had
/// a status.
pub(super) struct StatusCache<R: ComponentResource> {
    written: WriteThrough<ObjectRef<R>, WrittenStatus>,
    reported: HashSet<ObjectRef<R>>,
    /// Running reconciles, each with the metadata after its last write of other fields than the status.
    running: HashMap<ObjectRef<R>, Option<WrittenMetadata>>,
}

/// A status that was written.
struct WrittenStatus {
    uid: Option<String>,
    status: FreeForm,
    /// The watch shows it: it is kept only for the running reconcile.
    is_back: bool,
}

/// uid and resourceVersion from the response to a write of other fields than the status.
struct WrittenMetadata {
    uid: Option<String>,
    version: ResourceVersion,
}

impl<R: ComponentResource> Default for StatusCache<R> {
    fn default() -> Self {
        Self { written: WriteThrough::default(), reported: HashSet::new(), running: HashMap::new() }
    }
}

impl<R: ComponentResource> StatusCache<R> {
    /// Returns the status that was written over this state of `resource`, if it is the latest one.
    pub(super) fn newer_than(&self, resource: &R) -> Option<FreeForm> {
        self.over(resource).map(|own| own.value().status.clone())
    }

    /// Returns the metadata of `resource`, with the latest known resourceVersion.
    pub(super) fn latest(&self, resource: &R) -> ObjectMeta {
        let mut meta = resource.meta().clone();
        let touched = self.running.get(&ObjectRef::from_obj(resource)).and_then(Option::as_ref);
        let touched = touched.filter(|touched| touched.uid == meta.uid).map(|touched| touched.version);
        let own = self.over(resource).map(OwnWrite::version).max(touched);
        if let Some(own) = own.filter(|own| *own > version(resource)) {
            meta.resource_version = Some(own.to_string());
        }
        meta
    }

    /// Records the start of a reconcile.
    pub(super) fn begin(&mut self, key: ObjectRef<R>) {
        self.running.insert(key, None);
    }

    /// Records the metadata that a write of the running reconcile returned, except writes of the status.
    pub(super) fn touched(&mut self, key: &ObjectRef<R>, meta: &ObjectMeta) {
        let version = ResourceVersion::of(meta).unwrap_or_default();
        if let Some(touched) = self.running.get_mut(key) {
            *touched = Some(WrittenMetadata { uid: meta.uid.clone(), version });
        }
    }

    /// Records the end of a reconcile.
    pub(super) fn end(&mut self, key: &ObjectRef<R>) {
        self.running.remove(key);
        if self.written.last(key).is_some_and(|own| own.value().is_back) {
            self.written.forget(key);
        }
    }

    fn over(&self, resource: &R) -> Option<&OwnWrite<WrittenStatus>> {
        let own = self.written.newer_than(&ObjectRef::from_obj(resource), version(resource))?;
        (own.value().uid == resource.uid()).then_some(own)
    }

    /// Records the status that a write returned.
    pub(super) fn wrote(&mut self, resource: &R, status: FreeForm) {
        let own = WrittenStatus { uid: resource.uid(), status, is_back: false };
        self.written.record_write(ObjectRef::from_obj(resource), version(resource), own);
    }

    /// Processes an object that the watch delivered. Returns true if its status has to be written again: it was
    /// removed, as some backup tools do, or a list hid the last written one from a reconcile.
    pub(super) fn process_event(&mut self, resource: &R) -> bool {
        let key = ObjectRef::from_obj(resource);
        let own = self.written.last_mut(&key);
        let own = own.filter(|own| !own.value().is_back && own.version() <= version(resource));
        let was_hidden = own.is_some_and(|own| {
            own.value_mut().is_back = true;
            own.is_superseded()
        });
        if !self.running.contains_key(&key) {
            self.end(&key);
        }
        let generation = |contract: Contract| contract.whole_status.get("observedGeneration").cloned();
        let has_status =
            Contract::of(resource).ok().and_then(generation).is_some_and(|value| !value.is_null());
        if has_status {
            self.reported.insert(key);
            return was_hidden;
        }
        self.reported.remove(&key)
    }

    /// Marks the start of a list. Its objects are delivered one by one and count from here on.
    pub(super) fn listing(&mut self) {
        self.written.begin_list();
        self.written.end_list();
        self.running.values_mut().for_each(|touched| *touched = None);
    }

    /// Drops the state of an object that is gone.
    pub(super) fn forget(&mut self, key: &ObjectRef<R>) {
        self.written.forget(key);
        self.reported.remove(key);
        self.running.remove(key);
    }
}

fn version<R: ComponentResource>(resource: &R) -> ResourceVersion {
    ResourceVersion::of(resource.meta()).unwrap_or_default()
}

#[cfg(test)]
impl<R: ComponentResource> StatusCache<R> {
    /// Reports whether no object has an entry.
    pub(super) fn is_empty(&self) -> bool {
        self.written.is_empty() && self.reported.is_empty() && self.running.is_empty()
    }
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

    fn wrote(version: u64, state: &str) -> StatusCache<HelmComponent> {
        let mut cache = StatusCache::default();
        cache.process_event(&seen(version - 1, &status("Processing")));
        cache.wrote(&seen(version, &status(state)), from_value(status(state)).unwrap());
        cache
    }

    #[test]
    fn what_was_written_counts_until_the_watch_has_caught_up() {
        let mut cache = wrote(5, "Ready");
        let late = seen(4, &status("Processing"));
        assert!(!cache.process_event(&late));
        assert_eq!(cache.newer_than(&late).unwrap()["state"], "Ready");
        assert_eq!(cache.newer_than(&seen(6, &status("Error"))), None);
        assert!(!cache.process_event(&seen(5, &status("Ready"))), "our own");
        assert_eq!(cache.newer_than(&late), None);
    }

    #[test]
    fn earlier_pass_uses_its_own_write_although_watch_caught_up() {
        let mut cache = StatusCache::default();
        let old = seen(4, &status("Processing"));
        let key = ObjectRef::from_obj(&old);
        cache.begin(key.clone());
        cache.wrote(&seen(6, &status("Ready")), from_value(status("Ready")).unwrap());
        assert!(!cache.process_event(&seen(6, &status("Ready"))));
        assert_eq!(cache.newer_than(&old).unwrap()["state"], "Ready");
        assert_eq!(cache.latest(&old).resource_version.as_deref(), Some("6"));
        assert_eq!(cache.newer_than(&seen(7, &status("Error"))), None, "others wrote since");
        cache.end(&key);
        assert_eq!(cache.newer_than(&old), None);
    }

    #[test]
    fn what_else_a_pass_wrote_of_the_object_makes_no_conflict() {
        let mut cache = StatusCache::<HelmComponent>::default();
        let old = seen(4, &status("Processing"));
        let key = ObjectRef::from_obj(&old);
        let touched = |uid: &str| ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: Some("5".to_owned()),
            ..ObjectMeta::default()
        };
        cache.touched(&key, &touched("u"));
        assert_eq!(cache.latest(&old).resource_version.as_deref(), Some("4"), "no pass is at work");
        cache.begin(key.clone());
        cache.touched(&key, &touched("u"));
        assert_eq!(cache.latest(&old).resource_version.as_deref(), Some("5"));
        cache.wrote(&seen(6, &status("Ready")), from_value(status("Ready")).unwrap());
        assert_eq!(cache.latest(&old).resource_version.as_deref(), Some("6"));
        cache.listing();
        assert_eq!(cache.latest(&old).resource_version.as_deref(), Some("4"), "a restored hub counts on");
        cache.touched(&key, &touched("another"));
        assert_eq!(cache.latest(&old).resource_version.as_deref(), Some("4"), "a successor of the name");
        cache.end(&key);
    }

    #[test]
    fn a_status_that_is_gone_is_noticed_once() {
        let mut cache = wrote(5, "Ready");
        assert!(!cache.process_event(&seen(5, &status("Ready"))));
        assert!(cache.process_event(&seen(6, &json!({}))));
        assert!(!cache.process_event(&seen(7, &json!({}))));
    }

    #[test]
    fn what_a_late_list_hid_is_noticed_when_it_comes() {
        let mut cache = wrote(5, "Error");
        cache.listing();
        let late = seen(4, &status("Processing"));
        assert!(!cache.process_event(&late));
        assert_eq!(cache.newer_than(&late), None, "the hub may have been restored");
        assert!(cache.process_event(&seen(5, &status("Error"))), "the pass rested on what was before");
        assert!(!cache.process_event(&seen(6, &status("Error"))));
    }
}
