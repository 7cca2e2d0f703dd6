//! Conditions, reasons and states, and the classification of refusals.

pub mod condition;
pub(crate) mod reason;
pub mod refusal;
pub(crate) mod state;
