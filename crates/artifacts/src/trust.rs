//! Verifies that content carries required signatures.

mod bundle;
mod certificate;
mod claimed_signature;
mod cosign;
mod flaw;
mod gate;
mod keys;
mod log;
mod material;
mod merkle;
mod policy;
mod provenance;
mod root;
#[cfg(test)]
mod sample;
mod sct;
mod search;
mod statement;
#[cfg(test)]
mod tests;
mod timestamp;

pub(crate) use gate::Gate;
pub use policy::{Signer, Trust};
pub(crate) use provenance::LAYER as PROVENANCE;
pub use root::TrustRoot;
