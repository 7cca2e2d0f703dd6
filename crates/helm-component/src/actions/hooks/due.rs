//! Decides on the next step for the hooks of a release. Pure.

use kyma_controller::Failure;
use kyma_helm::hooks::Event;

use crate::plan::step::StopReason;

/// Hooks of the chart that are due.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HooksDue {
    /// The event before the apply, if the content has hooks for it that have not succeeded.
    pub before: Option<Event>,
    /// The event after the apply, under the same condition.
    pub after: Option<Event>,
    /// Whether the loaded content is another release than the installed one, and has hooks.
    pub release: bool,
    /// Wait or failure of the hooks in this pass.
    pub stop_reason: Option<StopReason>,
    /// Whether CRDs were applied in this pass, ahead of hooks.
    pub crds_applied: bool,
}

/// Point of an installation at which hooks may be due.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Phase {
    /// The content is about to be applied.
    BeforeApply {
        /// Whether CRDs of the content must be applied.
        crds_due: bool,
        /// Failure of an object of the content.
        fault: Option<Failure>,
    },
    /// The content was applied.
    AfterApply {
        /// Whether all objects exist, except those whose kind is missing. They need not be healthy, as in Helm.
        all_sent: bool,
        /// Whether the content is loaded.
        is_loaded: bool,
    },
}

/// Next step for hooks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HookStep {
    /// Apply CRDs alone: hooks may need their kinds.
    ApplyCrds,
    /// Fail, since the target refused an object of the content.
    Refuse(Failure),
    /// Load the content, which has the hooks.
    Load,
    /// Run the hooks of an event, as far as possible without waiting.
    Run(Event),
    /// Wait for a hook, or end with its failure.
    Stop(StopReason),
}

/// Returns the next step for hooks; `None` if none are due in this phase. As in Helm, CRDs come first.
pub(crate) fn due(hooks: &HooksDue, phase: Phase) -> Option<HookStep> {
    let event = match phase {
        Phase::BeforeApply { .. } => hooks.before?,
        Phase::AfterApply { .. } => hooks.after?,
    };
    if let Some(stop_reason) = &hooks.stop_reason {
        return Some(HookStep::Stop(stop_reason.clone()));
    }
    match phase {
        Phase::BeforeApply { crds_due: true, .. } if !hooks.crds_applied => Some(HookStep::ApplyCrds),
        Phase::BeforeApply { fault: Some(fault), .. } => Some(HookStep::Refuse(fault)),
        Phase::AfterApply { all_sent: false, .. } => None,
        Phase::AfterApply { is_loaded: false, .. } => Some(HookStep::Load),
        Phase::BeforeApply { .. } | Phase::AfterApply { .. } => Some(HookStep::Run(event)),
    }
}

#[cfg(test)]
mod tests;
