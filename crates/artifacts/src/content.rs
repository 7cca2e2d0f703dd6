//! Content of artifacts: charts, manifests and OCM component versions.

pub mod archive;
pub(crate) mod chart;
pub(crate) mod images;
pub(crate) mod manifests;
pub(crate) mod ocm;
