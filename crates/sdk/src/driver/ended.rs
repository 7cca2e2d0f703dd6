//! Released components that the watch still shows.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::{Resource, ResourceExt};
use kube_runtime::reflector::ObjectRef;

/// Uids of released components, from the removal of the finalizer until the DELETE event. Their other state is
/// dropped, so a reconcile of the last watched state would start the removal again.
pub(super) struct Ended<R: Resource<DynamicType = ()>> {
    uids: Mutex<HashMap<ObjectRef<R>, Option<String>>>,
}

impl<R: Resource<DynamicType = ()>> Default for Ended<R> {
    fn default() -> Self {
        Self { uids: Mutex::default() }
    }
}

impl<R: Resource<DynamicType = ()>> Ended<R> {
    pub(super) fn note(&self, resource: &R) {
        self.uids().insert(ObjectRef::from_obj(resource), resource.uid());
    }

    pub(super) fn has(&self, resource: &R) -> bool {
        self.uids().get(&ObjectRef::from_obj(resource)).is_some_and(|uid| *uid == resource.uid())
    }

    pub(super) fn forget(&self, key: &ObjectRef<R>) {
        self.uids().remove(key);
    }

    fn uids(&self) -> MutexGuard<'_, HashMap<ObjectRef<R>, Option<String>>> {
        self.uids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str, uid: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.namespace = Some("n".to_owned());
        object.metadata.uid = Some(uid.to_owned());
        object
    }

    #[test]
    fn who_was_let_go_is_known_until_the_watch_says_so_and_its_successor_is_another() {
        let ended = Ended::default();
        let (first, successor) = (object("a", "1"), object("a", "2"));
        ended.note(&first);
        assert!(ended.has(&first));
        assert!(!ended.has(&successor));
        assert!(!ended.has(&object("b", "1")));
        ended.forget(&ObjectRef::from_obj(&first));
        assert!(!ended.has(&first));
    }
}
