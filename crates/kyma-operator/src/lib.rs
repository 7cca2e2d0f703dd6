//! kyma-operator: turns a `Kyma` on the hub into component custom resources, and their state back into status.
//!
//! Per Kyma: *prepare* → *observe* → *resolve* each module to one decision → *plan* → *apply* → *report*. Decisions are
//! pure: no client, no clock, no environment.

// Wiring and the stages of a pass.
mod controller;
mod reconcile;
mod removal;

mod apply;
mod observe;
mod plan;
mod prepare;
mod report;
mod state;

// Decisions, and the objects that they read.
mod decision;
mod hub;
mod target;

mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod process;

pub use controller::run;
pub use decision::deletion::IgnorePolicy;
pub use decision::explain;
pub use decision::selection::initial_spec;
pub use process::args::{KymaArgs, VisibilityLoss};
pub use process::program::KymaOperator;
pub use process::rbac::table as rbac_table;

/// Field manager of all server-side applies.
pub const FIELD_MANAGER: &str = "kyma-operator";
/// Field manager of fields that are set only on creation.
pub const CREATE_FIELD_MANAGER: &str = "kyma-operator-create";
