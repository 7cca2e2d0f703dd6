//! Decides about the modules and the deletion of a Kyma.

pub(crate) mod deletion;
pub mod explain;
pub(crate) mod maintenance;
pub(crate) mod missing_components;
pub(crate) mod resolve;
pub(crate) mod selection;
