//! Files and addresses of a module's content.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use kyma_artifacts::{Artifacts, Credentials, ManifestsSource};
use url::Url;

use crate::error::Error;

/// A file or an https address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A file.
    File(PathBuf),
    /// An address.
    Address(Url),
}

impl Location {
    /// Parses a flag or field; files are relative to `directory`.
    pub(crate) fn parse(text: &str, directory: &Path) -> Self {
        match Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => Self::Address(url),
            _ => Self::File(directory.join(text)),
        }
    }

    /// Returns the address, if it is one.
    pub(crate) fn address(&self) -> Option<&Url> {
        match self {
            Self::Address(url) => Some(url),
            Self::File(_) => None,
        }
    }

    /// Reads the content.
    pub(crate) async fn read(&self, artifacts: &Artifacts) -> Result<Bytes, Error> {
        match self {
            Self::File(path) => read(path).map(Bytes::from),
            Self::Address(url) => {
                let source = ManifestsSource::Http { url: url.clone(), digest: None };
                Ok(artifacts.manifests(&source, &Credentials::anonymous()).await?.yaml)
            }
        }
    }
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}
