//! Access to a cluster, and waits for its state.

pub(crate) mod access;
pub(crate) mod access_review;
pub(crate) mod audit;
pub(crate) mod crd;
pub(crate) mod quiet;
