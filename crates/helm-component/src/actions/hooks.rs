//! Hooks of a chart: when they are due, how they run, and how their results are observed.
//!
//! [`observe()`] assembles the facts, [`due`](due::due()) decides on the next step, [`run_for_release`] executes it,
//! and [`HookRecords`](state::HookRecords) has the progress in the status.

mod conditions;
mod dry_run;
pub(crate) mod due;
mod job_events;
mod objects;
mod observe;
mod release;
mod removal;
mod run;
pub(crate) mod state;
mod stored;
mod subscriptions;
pub(crate) mod watches;

pub(crate) use conditions::{rendered_reason, skipped_note};
pub(crate) use dry_run::count_as_passed;
pub(crate) use observe::observe;
pub(crate) use release::identities;
pub(crate) use removal::{
    checkpoint_release, checkpoint_removal_hooks, discard_removal_hooks, run_for_removal,
};
pub(crate) use run::{run, run_for_release};
pub(crate) use state::record_if_adopted;
pub(crate) use subscriptions::unsubscribe_ended;
