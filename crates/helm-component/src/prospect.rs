//! Result of a rehearsal: changes that a reconcile would make on a target.

use kyma_api::FreeForm;
use kyma_object_set::{Identity, KeepReason, Rehearsed};
use kyma_sdk::Failure;

/// Changes that a reconcile of a component would make on its target now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prospect {
    /// The release's namespace, where it would be made.
    pub namespace: Option<String>,
    /// The hooks that would run, moment by moment.
    pub hooks: Vec<Moment>,
    /// The objects that would be sent, in their order; some of them may turn out to be as they should be already. What is
    /// known to be unchanged is not sent.
    pub objects: Vec<(Identity, Rehearsed)>,
    /// The objects that would be deleted, in their order.
    pub deleted: Vec<Identity>,
    /// Objects that left the content and would stay on the target, and why.
    pub given_up: Vec<(Identity, KeepReason)>,
    /// The default custom resource as it would be created.
    pub default_resource: Option<(Identity, FreeForm)>,
    /// What the rest would wait for.
    pub waits: Vec<String>,
    /// Why the pass would stop before it is done; all that is known to be refused, if it is that.
    pub failures: Vec<Failure>,
}

/// Hooks of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Helm's word for it, such as `pre-upgrade`.
    pub event: String,
    /// `Kind.group namespace/name` of each, in the order in which they run.
    pub hooks: Vec<String>,
}

impl Prospect {
    /// Whether anything on the target would be another than before.
    pub fn changes(&self) -> bool {
        self.namespace.is_some()
            || self.hooks.iter().any(|moment| !moment.hooks.is_empty())
            || self.objects.iter().any(|(_, object)| object.changes())
            || !self.deleted.is_empty()
            || !self.given_up.is_empty()
            || self.default_resource.is_some()
    }
}
