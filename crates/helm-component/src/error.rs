//! Errors at the start, before anything is reconciled.

use std::path::PathBuf;

use kyma_artifacts::ArtifactError;
use kyma_helm::render::HelmProgramError;
use thiserror::Error;

/// The operator cannot start with these settings.
#[derive(Debug, Error)]
pub enum SetupError {
    /// The file with certificates cannot be read.
    #[error("--oci-ca-file {}: {source}", .file.display())]
    CaFile {
        /// The file.
        file: PathBuf,
        /// Error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The file with the roots of trust of signers cannot be read.
    #[error("--sigstore-trusted-root {}: {source}", .file.display())]
    TrustedRootFile {
        /// The file.
        file: PathBuf,
        /// Error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The artifact cache, its HTTP client or the roots of trust cannot be set up.
    #[error(transparent)]
    Artifacts(ArtifactError),
    /// The directory of the artifact cache cannot be created.
    #[error("cannot create a directory for the artifact cache: {0}")]
    CacheDirectory(#[source] std::io::Error),
    /// The `helm` program is missing or is not the expected one.
    #[error(transparent)]
    Helm(HelmProgramError),
}
