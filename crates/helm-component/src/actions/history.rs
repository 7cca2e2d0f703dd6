//! Helm's record of the release on the target: a Secret for each revision, as `helm history` reads it.
//!
//! [`observed`] determines which record is missing, [`due`](due::due) decides when it is written, and [`run`](run())
//! writes it. The status has the newest one (`releaseRecord`). An adoption reads records of Helm ([`deployed`]).

pub(crate) mod due;
mod observe;
pub(crate) mod progress;
mod records;
mod run;
pub(crate) mod shared_lists;

pub(crate) use observe::{observed, reported_record, unrecorded};
pub(crate) use records::{all_deployed, deployed};
pub(crate) use run::{forget, run};
