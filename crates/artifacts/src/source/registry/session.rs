//! Context of requests to a registry.

use crate::selector::reference::Repository;
use crate::source::credentials::Credentials;
use crate::source::http::Http;

/// Context of requests to a repository.
#[derive(Clone, Copy)]
pub(crate) struct Session<'a> {
    pub(crate) http: &'a Http,
    pub(crate) repository: &'a Repository,
    pub(crate) credentials: &'a Credentials,
    /// Whether the requests write.
    pub(crate) push: bool,
}
