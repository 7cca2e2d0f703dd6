//! kyma-operator: turns a `Kyma` on the hub into component custom resources, and their state back into status.
//!
//! Per Kyma: *prepare* → *observe* → *resolve* each module to one decision → *plan* → *apply* → *report*. Decisions are
//! pure: no client, no clock, no environment.

// Wiring and the stages of a pass.
mod controller;
mod feeds;
mod reconcile;
mod removal;

mod admission;
mod apply;
mod claim;
mod mandatory;
mod mirror;
mod observe;
mod own_writes;
mod prepare;
mod prerequisites;
mod pull_secret;
mod report;
mod scope;
mod session;
mod state;
mod target_kyma;

// Decisions.
mod catalogue;
mod component;
mod component_crd;
mod config;
mod deletion;
pub mod explain;
mod kinds;
mod local;
mod maintenance;
mod missing_components;
mod plan;
mod resolve;
mod selection;

// Names, flags and metrics.
mod args;
mod error;
mod events;
mod metrics;
mod program;
mod rbac;

#[cfg(fuzzing)]
pub mod fuzzing;

pub use args::{KymaArgs, VisibilityLoss};
pub use controller::run;
pub use deletion::IgnorePolicy;
pub use program::KymaOperator;
pub use rbac::table as rbac_table;
pub use selection::initial_spec;

/// Field manager of all server-side applies.
pub const FIELD_MANAGER: &str = "kyma-operator";
/// Field manager of fields that are set only on creation.
pub const CREATE_FIELD_MANAGER: &str = "kyma-operator-create";
