//! Sources of artifacts: HTTP servers and OCI registries, with their credentials.

pub(crate) mod credentials;
pub(crate) mod http;
pub(crate) mod registry;
