//! Digests of inputs.

use sha2::{Digest, Sha256};

/// Returns the digest of the concatenated parts as `sha256:<hex>`.
pub(crate) fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}
