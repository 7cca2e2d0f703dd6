//! A document and the requirements on it.

use bytes::Bytes;

use super::format::ContentFormat;
use crate::storage::digest::Digest;

/// Digest of the content at an address, with the content if it is needed in memory.
pub(super) type Document = (Digest, Option<Bytes>);

/// The requirements on a document.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DocumentRequest {
    pub(super) expected: Option<Digest>,
    pub(super) limit: u64,
    pub(super) form: ContentFormat,
    /// Whether it is written to disk as it arrives and stays there.
    pub(super) on_disk: bool,
}
