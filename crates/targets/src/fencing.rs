//! Protection of a target against writes of an outdated hub.

pub(crate) mod fence;
pub(crate) mod fencing_generation;
