//! Objects of the hub: their indexes, watches and own writes.

pub(crate) mod catalogue;
pub(crate) mod claim;
pub(crate) mod component;
pub(crate) mod component_crd;
pub(crate) mod config;
pub(crate) mod feeds;
pub(crate) mod kinds;
pub(crate) mod mandatory;
pub(crate) mod mirror;
pub(crate) mod own_writes;
pub(crate) mod scope;
