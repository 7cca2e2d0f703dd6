//! Components that the driver remembers until they are gone.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::{Resource, ResourceExt};
use kube_runtime::reflector::ObjectRef;

/// Set of components. A component that was created again under the same name has another uid and is not in the set.
pub(super) struct UidSet<R: Resource<DynamicType = ()>> {
    uids: Mutex<HashMap<ObjectRef<R>, Option<String>>>,
}

impl<R: Resource<DynamicType = ()>> Default for UidSet<R> {
    fn default() -> Self {
        Self { uids: Mutex::default() }
    }
}

impl<R: Resource<DynamicType = ()>> UidSet<R> {
    pub(super) fn insert(&self, resource: &R) {
        self.uids().insert(ObjectRef::from_obj(resource), resource.uid());
    }

    pub(super) fn contains(&self, resource: &R) -> bool {
        self.uids().get(&ObjectRef::from_obj(resource)).is_some_and(|uid| *uid == resource.uid())
    }

    pub(super) fn remove(&self, key: &ObjectRef<R>) {
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
    fn the_successor_of_a_component_is_not_in_the_set() {
        let set = UidSet::default();
        let (first, successor) = (object("a", "1"), object("a", "2"));
        set.insert(&first);
        assert!(set.contains(&first));
        assert!(!set.contains(&successor));
        assert!(!set.contains(&object("b", "1")));
        set.remove(&ObjectRef::from_obj(&first));
        assert!(!set.contains(&first));
    }
}
