//! Texts packed so that a Secret of the hub can hold them. Pure.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Bytes of a packed text at most: apiservers take 1 MiB.
pub(crate) const PACKED: usize = 960 << 10;
/// Bytes of an unpacked one that are read at most. Rendered text is smaller.
const UNPACKED: u64 = 64 << 20;

/// Why a text is not packed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum PackError {
    #[error("its objects are {size} bytes packed, and a Secret holds {}: split the chart", PACKED)]
    TooLarge { size: usize },
    #[error("its objects cannot be packed")]
    Unpackable,
}

/// Packs a text, if it fits into a Secret then.
pub(crate) fn pack(text: &[u8]) -> Result<Vec<u8>, PackError> {
    let mut gzip = GzEncoder::new(vec![], Compression::best());
    let packed = gzip.write_all(text).and_then(|()| gzip.finish());
    let packed = packed.map_err(|_| PackError::Unpackable)?;
    if packed.len() > PACKED {
        return Err(PackError::TooLarge { size: packed.len() });
    }
    Ok(packed)
}

/// The text that was packed; `None` where it is not all of it.
pub(crate) fn unpack(packed: &[u8], sha256: &[u8]) -> Option<Vec<u8>> {
    if digest(packed).as_bytes() != sha256 {
        return None;
    }
    let mut text = vec![];
    GzDecoder::new(packed).take(UNPACKED).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Digest of a packed text.
pub(crate) fn digest(packed: &[u8]) -> String {
    hex::encode(Sha256::digest(packed))
}
