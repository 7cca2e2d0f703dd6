//! Internals that fuzz targets call. Only in their builds: `cargo fuzz` sets the cfg.

use super::decode::{StorageError, decode};

/// Name and namespace of the release that is read.
pub const RELEASE: (&str, &str) = ("shop", "store");

/// Returns the number of objects of revision 3 of the release in a stored record.
pub fn objects(stored: &[u8]) -> Result<usize, StorageError> {
    let existing = decode(stored, RELEASE.0, RELEASE.1, 3)?;
    Ok(existing.objects.len())
}
