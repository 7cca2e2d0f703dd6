//! Content that is written to disk as it arrives, never held in memory as a whole.

use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::error::ArtifactError;
use crate::storage::digest::Digest;

/// Maximum number of attempts to move a file into its directory. Each attempt fails only if another process, or the
/// eviction of the directory's last other file, removes the directory in between.
const MAX_NAME_ATTEMPTS: usize = 100;

/// A file that grows piece by piece. It is deleted when this is dropped.
pub(crate) struct IncomingFile {
    file: NamedTempFile,
    hash: Sha256,
    size: u64,
}

impl IncomingFile {
    /// Returns the bytes so far.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Creates an empty file in a directory.
    pub(super) async fn create(directory: PathBuf) -> Result<Self, ArtifactError> {
        let file = blocking(move || NamedTempFile::new_in(directory)).await;
        let file = file.map_err(ArtifactError::cache("write"))?;
        Ok(Self { file, hash: Sha256::new(), size: 0 })
    }

    /// Returns the complete file with its digest and size.
    pub(super) fn finish(self) -> (NamedTempFile, Digest, u64) {
        (self.file, Digest::finished(self.hash), self.size)
    }

    /// Appends a piece.
    pub(crate) async fn with(mut self, piece: Bytes) -> Result<Self, ArtifactError> {
        let written = blocking(move || {
            self.file.write_all(&piece)?;
            self.hash.update(&piece);
            self.size += piece.len() as u64;
            Ok(self)
        });
        written.await.map_err(ArtifactError::cache("write"))
    }
}

/// Moves a file to its path. The directory may be removed concurrently, together with its last file.
pub(super) fn settle(mut file: NamedTempFile, path: &Path) -> io::Result<()> {
    let parent = path.parent().map(PathBuf::from).unwrap_or_default();
    for _ in 0..MAX_NAME_ATTEMPTS {
        fs::create_dir_all(&parent)?;
        match file.persist(path) {
            Ok(_) => return Ok(()),
            Err(failed) if failed.error.kind() == io::ErrorKind::NotFound => file = failed.file,
            Err(failed) => return Err(failed.error),
        }
    }
    Err(io::Error::other("the directory of a file is deleted repeatedly"))
}

/// Runs work that may block on a thread of its own.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
