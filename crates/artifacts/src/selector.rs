//! Names of artifacts, and the choice of a version and a manifest.

pub(crate) mod reference;
pub(crate) mod selection;
pub(crate) mod version_range;
