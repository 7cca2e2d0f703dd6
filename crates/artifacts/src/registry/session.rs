//! Context of requests to a registry.

use crate::credentials::Credentials;
use crate::http::Http;
use crate::reference::Repository;

/// Context of requests to a repository.
#[derive(Clone, Copy)]
pub(crate) struct Session<'a> {
    pub(crate) http: &'a Http,
    pub(crate) repository: &'a Repository,
    pub(crate) credentials: &'a Credentials,
    /// Whether the requests write.
    pub(crate) push: bool,
}
