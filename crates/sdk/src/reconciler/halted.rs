//! Whoever stands still, or no longer does, has to look again.

use kube_runtime::reflector::{ObjectRef, Store};

use crate::{HubResource, PauseChanges, Trigger};

/// Wakes the objects for which a change among the Pauses makes a difference; for ever.
pub(super) async fn follow<K: HubResource>(
    mut changes: PauseChanges,
    store: Store<K>,
    trigger: Trigger<ObjectRef<K>>,
) {
    loop {
        changes.next().await;
        for object in store.state() {
            if changes.concern(&*object) {
                trigger.enqueue(ObjectRef::from_obj(&*object));
            }
        }
    }
}
