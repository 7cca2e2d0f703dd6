//! Decides the next step of a Kyma's deletion. Pure.
//!
//! First components, by an explicit request; then the operator's objects on the target; the finalizer last. A Kyma
//! that is deleted with its namespace or CRD requests nothing: no target is changed.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kyma_api::component::DeletionReason;
use kyma_api::{DeletionPolicy, ResourcePolicy};

use crate::hub::component::ComponentView;

/// Policy for the removal of a module with `customResourcePolicy: Ignore`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum IgnorePolicy {
    /// Leave everything on the target unchanged (kyma-project/community#870)
    #[default]
    Leave,
    /// Wait until no custom resource is left, then remove the module, as KLM does
    BlockThenRemove,
}

/// Reason in deletion requests.
const REQUEST_REASON: DeletionReason = DeletionReason::KymaDeleted;

/// Observed state of a Kyma that is being deleted.
#[derive(Debug)]
pub(crate) struct DeletionInputs<'a> {
    /// Whether no deletion was requested: the namespace or the CRD is terminating, or the garbage collector deleted
    /// it.
    pub(crate) nothing_requested: bool,
    /// Its components.
    pub(crate) components: &'a [ComponentView],
    /// Modules whose component exists on the hub although no list or watch reports it.
    pub(crate) unindexed: &'a BTreeSet<String>,
    /// Whether components are missing, so that no reconciler removes their modules.
    pub(crate) has_missing_components: bool,
    /// State of its target.
    pub(crate) target: TargetReachability,
    /// Whether an annotation declares the cluster gone.
    pub(crate) declared_gone: bool,
    /// Current time.
    pub(crate) now: Timestamp,
    /// Time for which the access Secret must have been missing.
    pub(crate) gone_after: SignedDuration,
    /// Policy for the removal of modules with `customResourcePolicy: Ignore`.
    pub(crate) ignore: IgnorePolicy,
}

/// Whether the target of a Kyma that is being deleted can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetReachability {
    /// The hub itself: it has no copies to clean up.
    Local,
    /// The target answers.
    Reachable,
    /// The target does not answer or its identity is in doubt; the access Secret exists.
    Unreachable,
    /// A live read shows that the access Secret does not exist.
    NoSecret {
        /// Time when it was first seen missing.
        since: Timestamp,
    },
    /// No Secret ever led to a target.
    NeverContacted,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeletionStep {
    /// Write these deletion requests and wait for their effect.
    DeleteComponents(Vec<ComponentDeletion>),
    /// Create the missing components with a deletion request.
    FinishRemovals,
    /// Wait until components are deleted.
    AwaitComponents {
        /// Names of the remaining components.
        left: Vec<String>,
    },
    /// Wait for components that no watch reports; see [`crate::removal`].
    AwaitUnwatched,
    /// Remove the operator's objects from the target, then requeue.
    CleanTarget,
    /// Wait until the target answers or counts as gone.
    AwaitTarget {
        /// Time when a missing Secret counts as a deleted cluster.
        gone_at: Option<Timestamp>,
    },
    /// Remove the operator's finalizer.
    Release,
}

/// A deletion request to one component's reconciler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ComponentDeletion {
    /// The component.
    pub(crate) component: ComponentView,
    /// Whether to remove the module from the target or leave everything there.
    pub(crate) policy: DeletionPolicy,
    /// Reason of the request.
    pub(crate) reason: DeletionReason,
}

impl ComponentDeletion {
    /// Returns the request to remove a module, according to its component's policy.
    pub(crate) fn remove(component: &ComponentView, ignore: IgnorePolicy, reason: DeletionReason) -> Self {
        let stays = stays_on_target(component, ignore);
        let policy = if stays { DeletionPolicy::Orphan } else { DeletionPolicy::Delete };
        Self { component: component.clone(), policy, reason }
    }

    /// Returns the request that leaves everything on the target.
    pub(crate) fn orphan(component: &ComponentView, reason: DeletionReason) -> Self {
        Self { component: component.clone(), policy: DeletionPolicy::Orphan, reason }
    }

    /// Reports whether the request removes anything from the target.
    pub(crate) fn removes(&self) -> bool {
        self.policy == DeletionPolicy::Delete
    }

    /// Reports whether the request must be written: the component does not have it, and its reconciler's finalizer is
    /// still present to carry it out.
    pub(crate) fn is_due(&self) -> bool {
        let ComponentView { terminating, deletion_policy, held_by, .. } = &self.component;
        !terminating || *deletion_policy != self.policy && held_by.is_empty()
    }
}

/// Reports whether everything stays on the target when the module is removed.
pub(crate) fn stays_on_target(component: &ComponentView, ignore: IgnorePolicy) -> bool {
    component.resource_policy == ResourcePolicy::Ignore && ignore == IgnorePolicy::Leave
}

impl DeletionInputs<'_> {
    /// Returns the modules whose component exists.
    pub(crate) fn installed(&self) -> BTreeSet<&str> {
        let indexed = self.components.iter().map(|component| component.module.as_str());
        indexed.chain(self.unindexed.iter().map(String::as_str)).collect()
    }

    /// Returns when a missing Secret counts as a deleted cluster.
    pub(crate) fn gone_at(&self) -> Option<Timestamp> {
        match self.target {
            TargetReachability::NoSecret { since } => since.checked_add(self.gone_after).ok(),
            _ => None,
        }
    }
}

/// Returns the next step of a deletion.
pub(crate) fn next_step(inputs: &DeletionInputs<'_>) -> DeletionStep {
    if inputs.nothing_requested {
        return DeletionStep::Release;
    }
    if is_gone(inputs) {
        let deletions =
            pending(inputs.components, |component| ComponentDeletion::orphan(component, REQUEST_REASON));
        return match (deletions.is_empty(), inputs.components.is_empty()) {
            (_, true) if !inputs.unindexed.is_empty() => DeletionStep::AwaitUnwatched,
            (_, true) => DeletionStep::Release,
            (false, _) => DeletionStep::DeleteComponents(deletions),
            (true, false) => await_components(inputs.components),
        };
    }
    let deletions = pending(inputs.components, |component| {
        ComponentDeletion::remove(component, inputs.ignore, REQUEST_REASON)
    });
    if !deletions.is_empty() {
        return DeletionStep::DeleteComponents(deletions);
    }
    if inputs.has_missing_components {
        return DeletionStep::FinishRemovals;
    }
    let waits_for_target = match inputs.target {
        TargetReachability::NoSecret { .. } => Some(inputs.gone_at()),
        TargetReachability::Unreachable => Some(None),
        _ => None,
    };
    match (waits_for_target, inputs.components.is_empty()) {
        (Some(gone_at), _) => DeletionStep::AwaitTarget { gone_at },
        (None, false) => await_components(inputs.components),
        (None, true) if !inputs.unindexed.is_empty() => DeletionStep::AwaitUnwatched,
        (None, true)
            if matches!(inputs.target, TargetReachability::Reachable | TargetReachability::Local) =>
        {
            DeletionStep::CleanTarget
        }
        (None, true) => DeletionStep::Release,
    }
}

/// Reports whether the cluster of a Kyma that is being deleted is gone: its access Secret is missing, and has been
/// for long enough or an annotation declares the cluster gone. An unreachable target is not gone.
pub(crate) fn is_gone(inputs: &DeletionInputs<'_>) -> bool {
    match inputs.target {
        TargetReachability::NoSecret { since } => {
            inputs.declared_gone || inputs.now.duration_since(since) >= inputs.gone_after
        }
        _ => false,
    }
}

fn pending(
    components: &[ComponentView],
    deletion_of: impl Fn(&ComponentView) -> ComponentDeletion,
) -> Vec<ComponentDeletion> {
    components.iter().map(deletion_of).filter(ComponentDeletion::is_due).collect()
}

fn await_components(components: &[ComponentView]) -> DeletionStep {
    DeletionStep::AwaitComponents {
        left: components.iter().map(|component| component.name.clone()).collect(),
    }
}

#[cfg(test)]
mod tests;
