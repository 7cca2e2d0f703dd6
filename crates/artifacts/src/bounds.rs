//! Bounds of caches and of concurrent work.

pub(crate) mod bounded_cache;
pub(crate) mod permits;
pub(crate) mod single_flight;
