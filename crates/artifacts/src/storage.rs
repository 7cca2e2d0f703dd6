//! Artifacts on disk, and proofs about them.

pub(crate) mod cache;
pub(crate) mod digest;
pub(crate) mod proofs;
pub(crate) mod verification_cache;
