//! Outcome of a step that did not fail. Pure.

use crate::plan::step::StopReason;

/// Outcome of a step that did not fail.
pub(crate) enum StepOutcome {
    /// The plan decides on the next step.
    Continue,
    /// The plan decides on the next step, after an event: earlier steps do not count towards the limit.
    ContinueAfterEvent,
    /// The pass ends.
    Stop(StopReason),
}
