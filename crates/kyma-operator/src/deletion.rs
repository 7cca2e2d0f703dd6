//! What a Kyma's deletion does next. Pure: facts in, one step out.
//!
//! Components first, by an explicit order; then what is ours on the target; the finalizer last. A Kyma that
//! goes because its namespace or its CRD is terminating is no order: nothing on any target is touched.

use jiff::{SignedDuration, Timestamp};
use kyma_api::component::DeletionReason;
use kyma_api::{DeletionPolicy, ResourcePolicy};

use crate::component::ComponentView;

/// How a module under `customResourcePolicy: Ignore` goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum IgnorePolicy {
    /// We stop, and everything on the target stays as it is (kyma-project/community#870).
    #[default]
    Leave,
    /// The removal waits until no custom resource of the module is left, then removes it (KLM).
    BlockThenRemove,
}

/// Why its components go.
const REASON: DeletionReason = DeletionReason::KymaDeleted;

/// What is known of a Kyma that is being deleted.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    /// Nobody requested the deletion: the namespace or the CRD is terminating, or the garbage collector deleted it.
    pub(crate) nothing_requested: bool,
    /// Its components.
    pub(crate) components: &'a [ComponentView],
    /// Whether modules lost their component, so that nothing removes them.
    pub(crate) has_lost: bool,
    /// What is known of its target.
    pub(crate) target: TargetFacts,
    /// A person declared the cluster gone, by annotation.
    pub(crate) declared_gone: bool,
    /// Now.
    pub(crate) now: Timestamp,
    /// For how long the access Secret must have been missing.
    pub(crate) gone_after: SignedDuration,
    /// What `Ignore` means.
    pub(crate) ignore: IgnorePolicy,
}

/// What is known of the target of a Kyma that is being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetFacts {
    /// The hub itself: nothing of ours there is a copy, so nothing is cleaned up.
    Local,
    /// It answers.
    Reachable,
    /// It does not, or its identity is in doubt; the access Secret is there.
    Unreachable,
    /// A live read says that there is no access Secret, since then.
    NoSecret {
        /// First seen missing.
        since: Timestamp,
    },
    /// No Secret ever led to a target.
    NeverContacted,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Give these orders, then wait for their effect.
    Order(Vec<Order>),
    /// Have components again, with the order, for modules that lost theirs.
    Finish,
    /// Wait for components to go.
    AwaitComponents {
        /// Names of those left.
        left: Vec<String>,
    },
    /// Wait for components that no watch shows; see [`crate::removal`].
    AwaitUnwatched,
    /// Remove what is ours from the target, then come back.
    CleanTarget,
    /// Nothing can be done until the target answers or is known to be gone.
    AwaitTarget {
        /// When a missing Secret counts as a cluster that is gone.
        gone_at: Option<Timestamp>,
    },
    /// Drop our finalizer.
    Release,
}

/// An order to one component's reconciler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    /// Which component.
    pub(crate) component: ComponentView,
    /// Take the module off the target, or leave everything there.
    pub(crate) policy: DeletionPolicy,
    /// Why it goes.
    pub(crate) reason: DeletionReason,
}

impl Order {
    /// The order with which a module goes, by the policy that its component keeps.
    pub(crate) fn remove(component: &ComponentView, ignore: IgnorePolicy, reason: DeletionReason) -> Self {
        let stays = stays(component, ignore);
        let policy = if stays { DeletionPolicy::Orphan } else { DeletionPolicy::Delete };
        Self { component: component.clone(), policy, reason }
    }

    /// The order that leaves everything on the target.
    pub(crate) fn orphan(component: &ComponentView, reason: DeletionReason) -> Self {
        Self { component: component.clone(), policy: DeletionPolicy::Orphan, reason }
    }

    /// Whether it takes something from the target.
    pub(crate) fn removes(&self) -> bool {
        self.policy == DeletionPolicy::Delete
    }

    /// Whether it is still to be given: the component does not have it, and its reconciler has not let it go without,
    /// when nobody would carry it out.
    pub(crate) fn is_due(&self) -> bool {
        let ComponentView { terminating, deletion_policy, held_by, .. } = &self.component;
        !terminating || *deletion_policy != self.policy && held_by.is_empty()
    }
}

/// Whether everything on the target stays when the module goes.
pub(crate) fn stays(component: &ComponentView, ignore: IgnorePolicy) -> bool {
    component.resource_policy == ResourcePolicy::Ignore && ignore == IgnorePolicy::Leave
}

impl Facts<'_> {
    /// When a missing Secret counts as a cluster that is gone.
    pub(crate) fn gone_at(&self) -> Option<Timestamp> {
        match self.target {
            TargetFacts::NoSecret { since } => since.checked_add(self.gone_after).ok(),
            _ => None,
        }
    }
}

/// The next step of a deletion.
pub(crate) fn next(facts: &Facts<'_>) -> Step {
    if facts.nothing_requested {
        return Step::Release;
    }
    if is_gone(facts) {
        let orders = pending(facts.components, |component| Order::orphan(component, REASON));
        return match (orders.is_empty(), facts.components.is_empty()) {
            (_, true) => Step::Release,
            (false, _) => Step::Order(orders),
            (true, false) => await_components(facts.components),
        };
    }
    let orders = pending(facts.components, |component| Order::remove(component, facts.ignore, REASON));
    if !orders.is_empty() {
        return Step::Order(orders);
    }
    if facts.has_lost {
        return Step::Finish;
    }
    let waits_for_target = match facts.target {
        TargetFacts::NoSecret { .. } => Some(facts.gone_at()),
        TargetFacts::Unreachable => Some(None),
        _ => None,
    };
    match (waits_for_target, facts.components.is_empty()) {
        (Some(gone_at), _) => Step::AwaitTarget { gone_at },
        (None, false) => await_components(facts.components),
        (None, true) if matches!(facts.target, TargetFacts::Reachable | TargetFacts::Local) => {
            Step::CleanTarget
        }
        (None, true) => Step::Release,
    }
}

/// The Kyma is being deleted, and the access Secret has been missing long enough or a person said so. A
/// target that merely does not answer is not gone.
pub(crate) fn is_gone(facts: &Facts<'_>) -> bool {
    match facts.target {
        TargetFacts::NoSecret { since } => {
            facts.declared_gone || facts.now.duration_since(since) >= facts.gone_after
        }
        _ => false,
    }
}

fn pending(components: &[ComponentView], order: impl Fn(&ComponentView) -> Order) -> Vec<Order> {
    components.iter().map(order).filter(Order::is_due).collect()
}

fn await_components(components: &[ComponentView]) -> Step {
    Step::AwaitComponents { left: components.iter().map(|component| component.name.clone()).collect() }
}

#[cfg(test)]
mod tests;
