//! release-meta-syncer: copies the visible part of the module catalogue to each target, so that its users see the
//! modules that they can select.
//!
//! Per Kyma: *observe* the catalogue on its target, *plan* the copies that the Kyma may have, *write* those that
//! differ, *report* with the condition `ModuleCatalog`. Only copies of its own are changed or deleted there.

#![warn(missing_docs)]

// Decisions (pure).
mod catalogue;
mod condition_cache;
mod copy;
mod plan;
mod report;

// Reads and writes.
mod hub;
mod observe;
mod write;

// Wiring.
mod args;
mod controller;
mod names;
mod program;
mod rbac;
mod state;
mod target;

pub use args::Flags;
pub use names::FIELD_MANAGER;
pub use program::ReleaseMetaSyncer;
