//! Hooks of a chart: when they are due, how they run, and how their results are observed.
//!
//! [`observe()`] assembles the facts, [`due()`] decides on the next step, [`run_for_release`] executes it, and
//! [`HookRecords`] has the progress in the status.

mod conditions;
mod dry_run;
pub(crate) mod due;
mod job_events;
mod objects;
mod observe;
mod release;
mod removal;
mod run;
mod state;
mod stored;
mod subscriptions;
mod watches;

pub(crate) use conditions::{rendered_reason, skipped_note};
pub(crate) use dry_run::count_as_passed;
pub(crate) use due::{HookStep, Phase, due};
pub(crate) use observe::observe;
pub(crate) use release::identities;
pub(crate) use removal::{
    RemovalHooks, checkpoint_release, checkpoint_removal_hooks, discard_removal_hooks, run_for_removal,
};
pub(crate) use run::{Outcome, run, run_for_release};
pub(crate) use state::{CompletedHooks, HookRecords, record_if_adopted};
pub(crate) use subscriptions::unsubscribe_ended;
#[cfg(test)]
pub(crate) use watches::HookRunSpec;
pub(crate) use watches::HookWatches;
