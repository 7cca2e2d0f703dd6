//! Parts of every operator's process: flags and settings, the program, the runtime, metrics, events, logs and the admin
//! server.

pub(crate) mod admin;
pub(crate) mod args;
mod connect;
pub(crate) mod diagnosis;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod program;
pub(crate) mod runtime;
pub(crate) mod settings;
pub(crate) mod telemetry;
