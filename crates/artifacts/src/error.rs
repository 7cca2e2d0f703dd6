//! Errors of sources and their content.

use std::{sync::Arc, time::Duration};

use kyma_api::{ErrorClass, Reason};

use crate::refusal::Refusal;
use crate::storage::digest::Digest;

/// Access with the credentials that the pull secret has for a host.
const WITH_CREDENTIALS: &str = "with these credentials";
/// Access without credentials. kymactl reads them from a Docker configuration instead of a pull secret.
const ANONYMOUS: &str = "without credentials: no pull secret or Docker configuration has any for its host";
/// Interval at which a missing or untrusted signature is searched again.
const SIGNATURE_RETRY_DELAY: Duration = Duration::from_mins(10);

/// A failed read or write of an artifact.
///
/// `what` names the artifact or address, never with credentials, query strings or content. Cheap to clone, since all
/// waiting callers share the error of a failed pull.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// The source reports that the artifact does not exist.
    #[error("{what} does not exist at its source")]
    NotFound {
        /// The artifact.
        what: String,
    },
    /// The source refuses access.
    #[error("{what} may not be read or written {access} (HTTP {status})")]
    Unauthorized {
        /// The artifact.
        what: String,
        /// 401 or 403; 400 of a token service that refuses a refresh token.
        status: u16,
        /// The credentials of the request, as part of the message.
        access: &'static str,
    },
    /// No answer: name resolution, connection, TLS, a timeout, or an interrupted body.
    #[error("{what} cannot be reached: {cause}")]
    Unreachable {
        /// The artifact.
        what: String,
        /// Kind of failure, without addresses from untrusted data.
        cause: String,
    },
    /// The source answers with an error (5xx, 429 or a violation of the protocol).
    #[error("{what} is not available now: the source answers HTTP {status}")]
    Unavailable {
        /// The artifact.
        what: String,
        /// The HTTP status.
        status: u16,
        /// Value of `Retry-After`, at most an hour.
        retry_after: Option<Duration>,
    },
    /// Content differs from its digest.
    #[error("{what} has digest {found}, but {expected} was requested")]
    DigestMismatch {
        /// The artifact.
        what: String,
        /// The expected digest.
        expected: Digest,
        /// The digest of the received content.
        found: Digest,
    },
    /// The source's answer is invalid. The next request may get another answer.
    #[error("{what} is invalid: {problem}")]
    Invalid {
        /// The artifact, or the file in it.
        what: String,
        /// Description of the problem, without content.
        problem: String,
    },
    /// The address or name of an artifact is invalid. No request was sent.
    #[error("{what} is invalid: {problem}")]
    Address {
        /// The address, without password and query.
        what: String,
        /// The defect of the address.
        problem: String,
    },
    /// The pull secret cannot be read.
    #[error("the pull secret is invalid: {problem}")]
    PullSecret {
        /// Description of the problem, without content.
        problem: &'static str,
    },
    /// Content exceeds a limit of [`Limits`](crate::Limits).
    #[error("{what} is larger than the {limit} bytes allowed")]
    TooLarge {
        /// The artifact, or the file in it.
        what: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The registry names a token service that may not be called.
    #[error("{what}: the registry names a token service at {host}, {refusal}")]
    RealmNotAllowed {
        /// The artifact.
        what: String,
        /// Host of the token service.
        host: String,
        /// Reason of the refusal.
        refusal: Refusal,
    },
    /// The source sends the client to an address that may not be called: by a redirect, or in its answer.
    #[error("{what}: the source {how} {host}, {refusal}")]
    RedirectNotAllowed {
        /// The artifact.
        what: String,
        /// How the source names the address, as in `redirects to`.
        how: &'static str,
        /// Host of the address.
        host: String,
        /// Reason of the refusal.
        refusal: Refusal,
    },
    /// A host has an address in a range that needs a flag.
    #[error(
        "{what}: {host} is or resolves to {range}, which is not allowed for content sources; to allow it, \
         name the host in --oci-private-hosts of helm-component"
    )]
    AddressNotAllowed {
        /// The artifact.
        what: String,
        /// The host.
        host: String,
        /// The range of the address.
        range: String,
    },
    /// An `index.yaml` names an address in a registry that is not allowed.
    #[error(
        "{what}: index.yaml names {address} on host {host}, which is not an allowed host; write that address as the \
         source's url, or allow the host"
    )]
    IndexHostNotAllowed {
        /// The artifact.
        what: String,
        /// The foreign host.
        host: String,
        /// The address, without query.
        address: String,
    },
    /// The artifact must be signed, and has no signature.
    #[error("{what} is not signed: {looked}")]
    Unsigned {
        /// The artifact.
        what: String,
        /// Result of the search, as part of the message.
        looked: &'static str,
    },
    /// The artifact is signed, and no signature is trusted.
    #[error("{what} has no valid signature: {flaws}")]
    Untrusted {
        /// The artifact.
        what: String,
        /// Problem of each signature, without content.
        flaws: String,
    },
    /// The artifact is signed as another chart or version than the source names.
    #[error(
        "{what} is signed as chart {chart}: push it to a repository of its name under a tag that equals its \
         version, or correct the source"
    )]
    Misplaced {
        /// The artifact, by its source.
        what: String,
        /// Name and version in the signed chart.
        chart: String,
    },
    /// Signatures cannot be verified: the keys are invalid, or content of this kind carries no signature.
    #[error("no signature can be verified: {problem}")]
    Verification {
        /// Description of the problem, without content.
        problem: String,
    },
    /// The cache directory failed.
    #[error("cannot {action} the artifact cache: {source}")]
    Cache {
        /// The failed operation.
        action: &'static str,
        /// The error of the file system.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// The settings are invalid.
    #[error("the setting {setting} is unusable: {problem}")]
    Settings {
        /// The field of [`Config`](crate::Config).
        setting: &'static str,
        /// Description of the problem.
        problem: String,
    },
}

impl ArtifactError {
    /// Returns the reason for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NotFound { .. } => Reason::SourceNotFound,
            Self::Unauthorized { .. } | Self::PullSecret { .. } => Reason::SourceUnauthorized,
            Self::Unreachable { .. } | Self::Unavailable { .. } => Reason::SourceUnreachable,
            Self::DigestMismatch { .. } => Reason::DigestMismatch,
            Self::Invalid { .. } | Self::Address { .. } => Reason::SourceInvalid,
            Self::TooLarge { .. } => Reason::SourceTooLarge,
            Self::RealmNotAllowed { .. }
            | Self::RedirectNotAllowed { .. }
            | Self::AddressNotAllowed { .. }
            | Self::IndexHostNotAllowed { .. } => Reason::SourceHostRefused,
            Self::Unsigned { .. } => Reason::SignatureMissing,
            Self::Untrusted { .. } | Self::Misplaced { .. } => Reason::SignatureInvalid,
            Self::Verification { .. } => Reason::VerificationInvalid,
            Self::Cache { .. } => Reason::CacheFailed,
            Self::Settings { .. } => Reason::Internal,
        }
    }

    /// Returns the class of the error. The answer of a source may change, so only an unusable address is final.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Address { .. } => ErrorClass::Invalid,
            _ => self.reason().class().unwrap_or(ErrorClass::Transient),
        }
    }

    /// Returns the delay before the next request: that of the source, or the interval at which a signature is
    /// searched again, since no event reports a new one.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => *retry_after,
            Self::Unsigned { .. } | Self::Untrusted { .. } | Self::Misplaced { .. } => {
                Some(SIGNATURE_RETRY_DELAY)
            }
            _ => None,
        }
    }

    pub(crate) fn unauthorized(what: impl Into<String>, status: u16) -> Self {
        Self::Unauthorized { what: what.into(), status, access: WITH_CREDENTIALS }
    }

    /// Returns the error as that of a request without credentials, unless the request had some.
    pub(crate) fn of_request(self, has_credentials: bool) -> Self {
        match self {
            Self::Unauthorized { what, status, .. } if !has_credentials => {
                Self::Unauthorized { what, status, access: ANONYMOUS }
            }
            other => other,
        }
    }

    pub(crate) fn invalid(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), problem: problem.into() }
    }

    pub(crate) fn address(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Address { what: what.into(), problem: problem.into() }
    }

    pub(crate) fn verification(problem: impl Into<String>) -> Self {
        Self::Verification { problem: problem.into() }
    }

    pub(crate) fn cache(action: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Cache { action, source: Arc::new(source) }
    }

    /// Reports whether the source gave no answer, so that an earlier one may replace it.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Unavailable { .. })
    }
}
