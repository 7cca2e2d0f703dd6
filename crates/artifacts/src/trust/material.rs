//! Common parts of trust roots, bundles and log entries in Sigstore's JSON: bytes are base64.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

/// A certificate.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Certificate {
    raw_bytes: String,
}

/// Certificates, each issued by the next one.
#[derive(Deserialize)]
pub(super) struct Chain {
    pub(super) certificates: Vec<Certificate>,
}

/// ID of a log: the digest of its key.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LogId {
    key_id: String,
}

impl Certificate {
    /// Returns the DER of the certificate; `None` if it is no base64.
    pub(super) fn der(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.raw_bytes).ok()
    }
}

impl LogId {
    /// Returns the ID of these bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { key_id: STANDARD.encode(bytes) }
    }

    /// Returns the bytes of the ID; `None` if it is no base64.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.key_id).ok()
    }
}
