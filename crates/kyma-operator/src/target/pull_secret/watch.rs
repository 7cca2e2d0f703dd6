//! Watches the image-pull Secret on a target.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject};
use kyma_controller::{KymaKey, ObjectEvent, ResourceVersion, WatchSpec};

use crate::state::State;

/// Returns the watch of the copy on a target.
pub(crate) fn watch_spec(state: &State) -> Option<WatchSpec> {
    let name = state.args.pull_secret()?;
    Some(WatchSpec {
        namespace: Some(state.runtime.settings.target_namespace.clone()),
        fields: Some(format!("metadata.name={name}")),
        ..WatchSpec::in_kind(&ApiResource::erase::<Secret>(&()))
    })
}

/// Reports whether a watch is that of the copy.
pub(crate) fn is_of(watch_spec: &WatchSpec) -> bool {
    watch_spec.kind == "Secret"
}

/// Records an event of a target's watch of the copy. Returns true unless the version last copied is the latest.
pub(crate) fn record_event(state: &State, kyma: &KymaKey, event: &ObjectEvent) -> bool {
    let name = state.args.pull_secret();
    // Ignore objects that the watch did not request.
    let is_it = |object: &DynamicObject| object.metadata.name.as_deref() == name;
    let version = |object: &DynamicObject| ResourceVersion::of(&object.metadata);
    match event {
        ObjectEvent::Listed { objects, .. } => {
            let listed = objects.iter().find(|object| is_it(object)).and_then(version);
            state.record_target_event(kyma, |state| state.target.pull_secret.record_list(listed))
        }
        ObjectEvent::Applied(object) | ObjectEvent::Deleted(object) => {
            let version = version(object).unwrap_or(ResourceVersion::MAX);
            is_it(object)
                && state.record_target_event(kyma, |state| state.target.pull_secret.record_change(version))
        }
    }
}
