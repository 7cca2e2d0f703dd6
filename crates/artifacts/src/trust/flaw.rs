//! Reasons for which a signature is not trusted.

use crate::error::ArtifactError;

/// Problem of one signature. Never contains its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Flaw {
    /// The data is not in the expected format.
    #[error("{0} is unreadable")]
    Unreadable(&'static str),
    /// The content is too large or missing, or has another digest.
    #[error("its content is not available: {0}")]
    Content(String),
    /// The signature is for other content.
    #[error("it is for other content")]
    OtherContent,
    /// The signature is for another statement about this content.
    #[error("it is a statement of another kind, not a signature of the content")]
    OtherStatement,
    /// Made with a key that is not among the trusted ones, or not a signature at all.
    #[error("it was made by none of the trusted keys")]
    OtherKey,
    /// A signature by key, where only identities count.
    #[error("it was made with a key, but only identities are trusted")]
    NoKeys,
    /// A signature by certificate, where only keys count.
    #[error("it was made with a certificate, but only keys are trusted")]
    NoIdentities,
    /// The key of the certificate did not make the signature.
    #[error("it was not made with the key of its certificate")]
    NotByCertificate,
    /// No authority of the trust root issued the certificate, or not for signing code.
    #[error("its certificate does not lead to an authority of the trust root: {0}")]
    Certificate(String),
    /// The certificate was not valid when it was used.
    #[error("its certificate was not valid at the time of the log entry")]
    Expired,
    /// No certificate transparency log of the trust root vouches for the certificate.
    #[error("its certificate is in no certificate log of the trust root")]
    NoCertificateLog,
    /// The certificate belongs to another identity.
    #[error("it was made by another identity")]
    OtherIdentity,
    /// There is no entry in a transparency log.
    #[error("it is in no transparency log")]
    NoLog,
    /// The log is not one of the trust root.
    #[error("its transparency log is not in the trust root, or was not used at that time")]
    OtherLog,
    /// Without a signed time, the validity of the certificate is unknown.
    #[error("neither its log entry nor a timestamp has a signed time")]
    NoTime,
    /// The timestamp is for another signature.
    #[error("its timestamp is for another signature")]
    OtherTimestamp,
    /// The authority that made the timestamp is not one of the trust root, or not for timestamps.
    #[error("its timestamp is not signed by a timestamp authority that the trust root has for that time")]
    TimestampSignature,
    /// The log did not sign the entry.
    #[error("the log's signature of the entry is wrong")]
    LogSignature,
    /// The entry is not in the tree whose root the log signed.
    #[error("the proof that the log has the entry is wrong")]
    LogProof,
    /// The entry is about another signature.
    #[error("its log entry is for other content")]
    OtherEntry,
    /// The provenance is for another archive.
    #[error("the provenance is for another archive")]
    OtherArchive,
    /// The key is in the keyring, and may not be used, or no longer.
    #[error("the key that made it has expired, was revoked or is not meant for signing")]
    KeyUnusable,
}

impl Flaw {
    /// Returns the flaw of an error, or the error if it says nothing about the signature.
    pub(crate) fn of(error: ArtifactError) -> Result<Self, ArtifactError> {
        match error {
            ArtifactError::NotFound { .. } => Ok(Self::Content("it does not exist".to_owned())),
            ArtifactError::TooLarge { .. } => Ok(Self::Content("it is too large".to_owned())),
            ArtifactError::DigestMismatch { .. } => Ok(Self::Content("it has another digest".to_owned())),
            ArtifactError::Invalid { .. } => Ok(Self::Content("it is invalid".to_owned())),
            other => Err(other),
        }
    }
}
