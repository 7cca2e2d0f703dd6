//! release-meta-syncer: shows the users of a target which modules they may choose.
//!
//! Per Kyma: *observe* the catalogue on its target, *plan* what that Kyma may see, write what differs, *report*
//! with the condition `ModuleCatalog`. Only copies of its own are changed or deleted there.

#![warn(missing_docs)]

// Decisions (pure).
mod catalogue;
mod condition_cache;
mod copy;
mod plan;
mod report;

// Reads and writes.
mod bootstrap;
mod cleanup;
mod connection;
mod hub;
mod memory;
mod observe;
mod session;
mod write;

// Wiring.
mod args;
mod controller;
mod program;
mod rbac;
mod state;

pub use args::Flags;
pub use program::ReleaseMetaSyncer;

/// Field manager of all writes, on the hub and on targets.
pub const FIELD_MANAGER: &str = "release-meta-syncer";
