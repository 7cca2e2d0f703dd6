//! The base reconciler: installs the chart or manifests of a HelmComponent on its target.
//!
//! A pass ([`reconcile`]) asks a pure state machine ([`plan`]) what to do, does it, and asks again:
//! *fetch* ([`source`]) → *render* ([`kyma_helm`]) → *apply* in stages → *prune* → *health* → *report*.
//! [`target_cache`] caches the reduced state of objects from watches on targets; nothing is polled.

mod account;
mod actions;
mod args;
mod blocking;
mod changes;
mod component_key;
mod confirmed;
mod content;
mod controller;
pub mod deadline;
mod deleter;
mod dry_run_result;
mod effects;
mod error;
mod expressions;
mod hub_config_maps;
mod hub_secrets;
mod injection;
mod inventory_status;
mod memory;
mod namespaces;
mod objects;
mod observe;
mod owner_waits;
mod ownership_requests;
mod ownership_transfers;
mod packed;
mod pass;
pub mod plan;
mod ranges;
mod rbac;
mod reader;
mod reconcile;
mod referenced;
pub mod release;
mod release_names;
mod release_store;
mod render_store;
mod report;
mod searches;
pub mod source;
mod state_secret;
mod target_cache;
mod values;
mod verify;
mod watch_wait;
mod workloads;

pub use args::{AccountArgs, ContentArgs, Flags, HubArgs};
pub use controller::{HelmComponentProgram, HelmComponents};
pub use dry_run_result::{DryRunResult, EventHooks};
pub use error::SetupError;
pub use expressions::{invalid_expressions, unknown_functions};
pub use inventory_status::inventory;
pub use referenced::origins;
