//! Clients for a target, and the calls that they send.

pub(crate) mod account;
pub(crate) mod cache;
pub(crate) mod caller;
pub(crate) mod component_target;
pub(crate) mod target;
