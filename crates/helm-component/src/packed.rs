//! Compresses texts so that they fit into Secrets of the hub. Pure.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Maximum size of a packed text in bytes: API servers accept 1 MiB.
pub(crate) const MAX_PACKED_BYTES: usize = 960 << 10;
/// Maximum size in bytes to which a text is unpacked. Rendered text is smaller.
const MAX_UNPACKED_BYTES: u64 = 64 << 20;

/// Why a text cannot be packed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum PackError {
    #[error(
        "its packed objects have {size} bytes, but a Secret holds at most {}: split the chart",
        MAX_PACKED_BYTES
    )]
    TooLarge { size: usize },
    #[error("its objects cannot be packed")]
    Unpackable,
}

/// Packs a text, if the result fits into a Secret.
pub(crate) fn pack(text: &[u8]) -> Result<Vec<u8>, PackError> {
    let mut gzip = GzEncoder::new(vec![], Compression::best());
    let packed = gzip.write_all(text).and_then(|()| gzip.finish());
    let packed = packed.map_err(|_| PackError::Unpackable)?;
    if packed.len() > MAX_PACKED_BYTES {
        return Err(PackError::TooLarge { size: packed.len() });
    }
    Ok(packed)
}

/// Returns the unpacked text; `None` if the digest differs or the data is corrupt.
pub(crate) fn unpack(packed: &[u8], sha256: &[u8]) -> Option<Vec<u8>> {
    if digest(packed).as_bytes() != sha256 {
        return None;
    }
    let mut text = vec![];
    GzDecoder::new(packed).take(MAX_UNPACKED_BYTES).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Returns the digest of a packed text.
pub(crate) fn digest(packed: &[u8]) -> String {
    hex::encode(Sha256::digest(packed))
}
