//! The commands, one module each.

pub(crate) mod complete;
pub(crate) mod completion;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod migrate;
pub(crate) mod module;
pub(crate) mod reconcile;
pub(crate) mod reset;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod suspend;
pub(crate) mod target;
pub(crate) mod test;
pub(crate) mod tree;
pub(crate) mod values;
pub(crate) mod why;
