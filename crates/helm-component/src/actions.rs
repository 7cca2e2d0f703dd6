//! Capabilities of the operator, each in a folder with its decisions, steps, conditions and state.

pub(crate) mod hooks;
pub(crate) mod test;
