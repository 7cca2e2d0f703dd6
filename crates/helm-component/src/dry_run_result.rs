//! Result of a dry run: changes that a reconcile would make on a target.

use kyma_api::FreeForm;
use kyma_controller::Failure;
use kyma_object_set::{Identity, KeepReason, ObjectDiff};

/// Changes that a reconcile of a component would make on its target now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DryRunResult {
    /// The release's namespace, if it would be created.
    pub namespace: Option<String>,
    /// The hooks that would run, event by event.
    pub hooks: Vec<EventHooks>,
    /// The objects that would be applied, in their order; some of them may need no change. Objects that are known to
    /// be unchanged are not applied.
    pub objects: Vec<(Identity, ObjectDiff)>,
    /// The objects that would be deleted, in their order.
    pub deleted: Vec<Identity>,
    /// Objects that left the content and would stay on the target, with the reason.
    pub given_up: Vec<(Identity, KeepReason)>,
    /// The default custom resource as it would be created.
    pub default_resource: Option<(Identity, FreeForm)>,
    /// Waits of the pass.
    pub waits: Vec<String>,
    /// Failures that would end the pass; refused objects are listed completely.
    pub failures: Vec<Failure>,
}

/// Hooks of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventHooks {
    /// Helm's name of the event, such as `pre-upgrade`.
    pub event: String,
    /// `Kind.group namespace/name` of each, in the order in which they run.
    pub hooks: Vec<String>,
}

impl DryRunResult {
    /// Reports whether the pass would change anything on the target.
    pub fn changes(&self) -> bool {
        self.namespace.is_some()
            || self.hooks.iter().any(|run| !run.hooks.is_empty())
            || self.objects.iter().any(|(_, object)| object.changes())
            || !self.deleted.is_empty()
            || !self.given_up.is_empty()
            || self.default_resource.is_some()
    }
}
