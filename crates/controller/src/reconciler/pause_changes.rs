//! Requeues objects when their Pauses change.

use kube_runtime::reflector::{ObjectRef, Store};

use crate::hub::resource::HubResource;
use crate::pauses::PauseChanges;
use crate::reconciler::trigger::Trigger;

/// Requeues the objects that a change of Pauses concerns, without end.
pub(super) async fn requeue<K: HubResource>(
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
