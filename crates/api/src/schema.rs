//! Schemas of the CRDs, and rules that a schema cannot express.

pub mod crds;
pub mod limits;
pub mod patterns;
pub(crate) mod schemas;
pub(crate) mod yaml_safe;
