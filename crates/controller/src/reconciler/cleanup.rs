//! Removal of the state of an object that vanishes during its reconcile.

use kube::Resource;
use kube_runtime::reflector::{ObjectRef, Store};

use crate::expression::evaluation::contain_panic;

/// Function that removes all state of an object.
pub(super) type StateRemover<K> = Box<dyn Fn(&ObjectRef<K>) + Send + Sync>;

/// A running reconcile. If its object vanishes meanwhile, the reconcile may open watches and fill caches after the
/// DELETE event; dropping this guard removes them.
pub(super) struct CleanupGuard<'a, K: Resource<DynamicType = ()> + Clone + 'static> {
    pub(super) store: &'a Store<K>,
    pub(super) forget: Option<&'a StateRemover<K>>,
    pub(super) key: ObjectRef<K>,
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Drop for CleanupGuard<'_, K> {
    fn drop(&mut self) {
        // The store processes a DELETE event first, so either this guard or the event handler removes the state.
        if let Some(forget) = self.forget
            && self.store.get(&self.key).is_none()
        {
            // A panic in a drop would end the controller, not only this reconcile.
            contain_panic("state of a vanished object", || forget(&self.key));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_runtime::{reflector, watcher::Event};

    use super::*;

    #[test]
    fn only_objects_that_vanish_during_a_reconcile_are_forgotten() {
        let (store, mut writer) = reflector::store::<ConfigMap>();
        let mut object = ConfigMap::default();
        object.metadata.name = Some("a".to_owned());
        object.metadata.namespace = Some("n".to_owned());
        let forgotten = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&forgotten);
        let forget: StateRemover<ConfigMap> = Box::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let begin =
            || CleanupGuard { store: &store, forget: Some(&forget), key: ObjectRef::from_obj(&object) };
        writer.apply_watcher_event(&Event::Apply(object.clone()));
        drop(begin());
        assert_eq!(forgotten.load(Ordering::Relaxed), 0);
        let running = begin();
        writer.apply_watcher_event(&Event::Delete(object.clone()));
        assert_eq!(forgotten.load(Ordering::Relaxed), 0);
        drop(running);
        assert_eq!(forgotten.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_panic_while_state_is_removed_is_contained() {
        let (store, _writer) = reflector::store::<ConfigMap>();
        let forget: StateRemover<ConfigMap> = Box::new(|_| panic!("a broken cache"));
        drop(CleanupGuard { store: &store, forget: Some(&forget), key: ObjectRef::new("a") });
    }
}
