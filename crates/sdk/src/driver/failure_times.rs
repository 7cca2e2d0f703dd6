//! Times at which the managers of components were first seen failed.

use std::collections::HashMap;

use jiff::Timestamp;
use kube::Resource;
use kube_runtime::reflector::ObjectRef;
use parking_lot::Mutex;

/// Time at which the manager of each component was first seen failed. Removed when it no longer fails.
pub(super) struct FailureTimes<R: Resource<DynamicType = ()>> {
    since: Mutex<HashMap<ObjectRef<R>, Timestamp>>,
}

impl<R: Resource<DynamicType = ()>> Default for FailureTimes<R> {
    fn default() -> Self {
        Self { since: Mutex::default() }
    }
}

impl<R: Resource<DynamicType = ()>> FailureTimes<R> {
    /// Returns the time at which the failure was first seen; `now` if the manager did not fail before, or does not fail
    /// now.
    pub(super) fn first_seen(&self, resource: &R, fails: bool, now: Timestamp) -> Timestamp {
        let key = ObjectRef::from_obj(resource);
        if fails {
            return *self.since.lock().entry(key).or_insert(now);
        }
        self.forget(&key);
        now
    }

    pub(super) fn forget(&self, key: &ObjectRef<R>) {
        self.since.lock().remove(key);
    }
}

#[cfg(test)]
impl<R: Resource<DynamicType = ()>> FailureTimes<R> {
    /// Reports whether no manager fails.
    pub(super) fn is_empty(&self) -> bool {
        self.since.lock().is_empty()
    }
}
