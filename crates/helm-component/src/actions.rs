//! Capabilities of a release. Each has one folder with its decision, its steps, its conditions and its record.

pub(crate) mod history;
pub(crate) mod hooks;
pub(crate) mod outcome;
pub(crate) mod rollback;
pub(crate) mod test;
