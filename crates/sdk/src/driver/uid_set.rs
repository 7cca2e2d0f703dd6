//! Components that the driver remembers until they are gone.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource, ResourceExt};
use kube_runtime::reflector::ObjectRef;
use parking_lot::Mutex;

/// Set of components. A component that was created again under the same name has another uid and is not in the set.
pub(super) struct UidSet<R: Resource<DynamicType = ()>> {
    members: Mutex<HashMap<ObjectRef<R>, Member>>,
}

/// State of a component when it was inserted.
struct Member {
    uid: Option<String>,
    deletion: Option<Time>,
}

impl<R: Resource<DynamicType = ()>> Default for UidSet<R> {
    fn default() -> Self {
        Self { members: Mutex::default() }
    }
}

impl<R: Resource<DynamicType = ()>> UidSet<R> {
    pub(super) fn insert(&self, resource: &R) {
        let deletion = resource.meta().deletion_timestamp.clone();
        let member = Member { uid: resource.uid(), deletion };
        self.members.lock().insert(ObjectRef::from_obj(resource), member);
    }

    pub(super) fn contains(&self, resource: &R) -> bool {
        self.members
            .lock()
            .get(&ObjectRef::from_obj(resource))
            .is_some_and(|member| member.uid == resource.uid())
    }

    /// Reports whether the set contains this deletion of the component. A restore of the hub from a backup may bring back
    /// a component that is being deleted, with its uid, and its next deletion may have another cause.
    pub(super) fn contains_deletion(&self, resource: &R) -> bool {
        let is_same = |member: &Member| {
            member.uid == resource.uid() && member.deletion == resource.meta().deletion_timestamp
        };
        self.members.lock().get(&ObjectRef::from_obj(resource)).is_some_and(is_same)
    }

    pub(super) fn remove(&self, key: &ObjectRef<R>) {
        self.members.lock().remove(key);
    }
}

#[cfg(test)]
impl<R: Resource<DynamicType = ()>> UidSet<R> {
    /// Reports whether the set is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.members.lock().is_empty()
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

    #[test]
    fn another_deletion_of_the_same_component_is_not_in_the_set() {
        let set = UidSet::default();
        let deleted = |seconds: i64| {
            let mut object = object("a", "1");
            object.metadata.deletion_timestamp =
                Some(Time(jiff::Timestamp::from_second(1_700_000_000 + seconds).unwrap()));
            object
        };
        set.insert(&deleted(0));
        assert!(set.contains_deletion(&deleted(0)));
        assert!(!set.contains_deletion(&object("a", "1")), "brought back by a restore of the hub");
        assert!(!set.contains_deletion(&deleted(1)), "deleted once more after that");
        assert!(set.contains(&deleted(1)));
    }
}
