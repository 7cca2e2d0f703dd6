//! Helpers for unit tests of operators. Not used in production.

mod unconnected;

pub use unconnected::{unconnected_context, unconnected_runtime};
