//! A signature before it is verified.

use super::log;
use crate::storage::digest::Digest;

/// A signature that claims to be for this content.
pub(super) struct ClaimedSignature {
    /// The signed message.
    pub(super) message: Vec<u8>,
    /// Digest of the payload in the message.
    pub(super) payload: Digest,
    pub(super) signature: Vec<u8>,
    /// DER of the signer's certificate; `None` for a signature by key.
    pub(super) certificate: Option<Vec<u8>>,
    pub(super) entries: Vec<log::Entry>,
    /// Responses of timestamp authorities for the signature.
    pub(super) timestamps: Vec<Vec<u8>>,
}
