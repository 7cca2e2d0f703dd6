//! Rollback to the release that was Ready last (ADR 16).
//!
//! [`observed`] reads the state of a rollback, [`due`](due::due) decides on its next step, and [`run`](run()) executes
//! it. The status has its record ([`RollbackRecord`](record::RollbackRecord)), its condition ([`available`]) and, while
//! it lasts, its [report](RollbackReport). The release store has the objects of the rollback target.

mod conditions;
pub(crate) mod due;
mod failed_revision;
mod observe;
pub(crate) mod progress;
pub(crate) mod record;
mod run;
pub(crate) mod state;
mod store;
pub(crate) mod stored_release;

pub(crate) use conditions::{RollbackReport, available, retry_delay};
pub(crate) use observe::{active_target, desired_inputs, drop_obsolete_failure, module_version, observed};
pub(crate) use run::{end_failed_retry, load_target, run};
pub(crate) use store::read_stored_release;
