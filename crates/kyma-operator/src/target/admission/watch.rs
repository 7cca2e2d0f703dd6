//! Watches the policies on a target for changes.

use kube::ResourceExt;
use kube::api::DynamicObject;
use kyma_controller::{KymaKey, ObjectEvent, ResourceVersion, WatchSpec};

use super::policy::Id;
use super::target_policies::Versions;
use super::{GROUP, POLICY_KINDS, resource, selector};
use crate::state::State;

/// Returns the watches of a Kyma's policies and bindings on its target.
pub(crate) fn watch_specs(kyma: &KymaKey) -> impl Iterator<Item = WatchSpec> {
    let labels = selector(kyma);
    POLICY_KINDS
        .into_iter()
        .map(move |kind| WatchSpec { labels: Some(labels.clone()), ..WatchSpec::in_kind(&resource(kind)) })
}

/// Reports whether a watch is one of policies or bindings.
pub(crate) fn is_of(watch_spec: &WatchSpec) -> bool {
    watch_spec.group == GROUP
}

/// Records an event of a target's watch of policies. Returns true if a policy differs from the applied version.
pub(crate) fn record_event(state: &State, kyma: &KymaKey, at: &WatchSpec, event: &ObjectEvent) -> bool {
    let Some(kind) = POLICY_KINDS.into_iter().find(|kind| *kind == at.kind) else { return false };
    let id = |object: &DynamicObject| Id { kind, name: object.name_any() };
    let version = |object: &DynamicObject| ResourceVersion::of(&object.metadata);
    match event {
        ObjectEvent::Listed { objects, .. } => {
            let of = |object| Some((id(object), version(object)?));
            let listed: Versions = objects.iter().filter_map(of).collect();
            state.record_target_event(kyma, |state| state.policies.record_list(kind, &listed))
        }
        ObjectEvent::Applied(object) | ObjectEvent::Deleted(object) => {
            let (id, version) = (id(object), version(object).unwrap_or(ResourceVersion::MAX));
            state.record_target_event(kyma, |state| state.policies.record_change(&id, version))
        }
    }
}
