//! Errors between an operator and a target, and their classification from kube's errors.

use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::time::Duration;

use kube::core::Status;
use kyma_api::{AddressRefusal, ErrorClass, Reason, Refusal};

use crate::credentials::kubeconfig::KubeconfigError;
use crate::credentials::tokens::TokenError;
use crate::identity::Verdict;

#[cfg(test)]
mod tests;

/// Failure of a call to a target. Contains no text of the target except object names, fields and reasons of a
/// Kubernetes `Status`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The access Secret has no data under the key.
    #[error("access secret {namespace}/{name} has no key {key}")]
    KeyMissing {
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
        /// The missing key.
        key: String,
    },
    /// The access Secret holds no usable kubeconfig.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// Connections to the server's address are not allowed.
    #[error("connecting to the target is refused: its address is {0}{hint}", hint = flag_hint(*.0))]
    AddressRefused(AddressRefusal),
    /// The server's name has no address.
    #[error("the target's host name cannot be resolved")]
    NameNotFound,
    /// No connection, or it broke off.
    #[error("the target cannot be reached: {0}")]
    Connect(&'static str),
    /// The TLS handshake failed.
    #[error("TLS to the target failed: {0}")]
    Tls(TlsFault),
    /// One of the failures of a connection, with the address in the kubeconfig.
    #[error("{cause} (server {address})")]
    Connection {
        /// Host and port, without the rest of the URL.
        address: String,
        /// The failure.
        cause: Box<TargetError>,
    },
    /// No complete answer within the deadline.
    #[error("the target gave no complete answer within {} s", .0.as_secs_f32())]
    Deadline(Duration),
    /// Calls are refused until the next successful probe, because several in a row failed. Reason and class are those
    /// of the cause, so that a condition does not change with every retry.
    #[error("{cause}; no calls are sent until it answers again")]
    Suspended {
        /// Time until the next probe.
        retry_in: Duration,
        /// The last failure.
        cause: Box<TargetError>,
    },
    /// The target requested fewer calls (429), or all slots for it stayed taken. Time to wait.
    #[error("the target accepts fewer calls than requested")]
    Throttled(Duration),
    /// An answer that exceeds a limit, as sent or decoded.
    #[error("the target's answer is larger than {0} bytes")]
    TooLarge(usize),
    /// An answer that redirects elsewhere. Never followed.
    #[error("the target answered with a redirect ({0}), which is not followed")]
    Redirected(u16),
    /// The credentials are not accepted.
    #[error("the target does not accept the credentials (401)")]
    Unauthorized,
    /// No token is available.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The credentials lack a right.
    #[error("the target does not allow it (403): {0}")]
    Forbidden(String),
    /// The target answered with a server error.
    #[error("the target failed ({code}): {detail}")]
    Server {
        /// HTTP status.
        code: u16,
        /// Reason and path of the `Status`, or a description of an answer without one.
        detail: String,
    },
    /// The target refused the request itself.
    #[error("the target refused the request ({code}): {detail}")]
    Api {
        /// HTTP status.
        code: u16,
        /// Reason and path of the `Status`, or a description of an answer without one.
        detail: String,
        /// Its stable reason.
        reason: Reason,
    },
    /// A proxy or load balancer in front of the target's API server refused the request.
    #[error("a proxy in front of the API server answered with status {0}; the API server did not answer")]
    NotApiServer(u16),
    /// The API server is still loading the objects of a kind.
    #[error("the API server is still loading the objects of the kind")]
    Initializing,
    /// An answer that is not what the Kubernetes API specifies.
    #[error("the target's answer cannot be read")]
    Unreadable,
    /// The hub must not write to the target, or no longer.
    #[error("{0}")]
    Refused(Box<Verdict>),
    /// The target's stamp is later than the last read record of the hub, and the hub's current record cannot be read.
    #[error("the hub did not return its record of the target")]
    Unconfirmed,
    /// The request could not be built: an internal error.
    #[error("the request to the target could not be built")]
    Request,
}

/// Cause of a failed TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFault {
    /// The certificate was issued by an authority that the kubeconfig does not hold.
    #[error("its certificate is not issued by the authority in the kubeconfig")]
    UnknownAuthority,
    /// The certificate has expired.
    #[error("its certificate has expired")]
    Expired,
    /// The certificate is not valid yet.
    #[error("its certificate is not valid yet")]
    NotYetValid,
    /// The certificate is for another name.
    #[error("its certificate is for another name")]
    OtherName,
    /// The certificate is one of an authority, and not in the kubeconfig itself.
    #[error("its certificate is a CA certificate (CA:TRUE) that the kubeconfig does not contain")]
    Authority,
    /// The certificate is not for use by servers.
    #[error("its certificate is not for servers: its extended key usage lacks serverAuth")]
    Purpose,
    /// The key or signature of the certificate is of an unsupported kind.
    #[error(
        "its certificate has an unsupported key or signature; supported are RSA of 2048 to 8192 bits, ECDSA P-256 and \
         P-384, and Ed25519"
    )]
    Algorithm,
    /// The certificate is not what X.509 specifies, or uses an extension that is not supported.
    #[error("its certificate cannot be read or has an extension that is not supported")]
    Certificate,
    /// No common version or cipher.
    #[error("it has no TLS version or cipher in common with the operator (TLS 1.2 or 1.3)")]
    Version,
    /// The answer is not TLS.
    #[error("it does not answer with TLS; check scheme and port of the server")]
    NotTls,
    /// The target refuses the client certificate.
    #[error("it refuses the client certificate")]
    ClientCertificate,
    /// The target refused the handshake.
    #[error("it refused the handshake")]
    Refused,
    /// Another failure of the handshake.
    #[error("the handshake failed")]
    Handshake,
}

impl TargetError {
    /// Returns the error class.
    pub fn class(&self) -> ErrorClass {
        self.reason().class().unwrap_or(ErrorClass::Transient)
    }

    /// Adds the server's address to a failure to connect, to verify the server or to get an answer in time.
    pub(crate) fn with_address(self, address: &str) -> Self {
        match self {
            Self::NameNotFound | Self::Connect(_) | Self::Tls(_) | Self::Deadline(_) => {
                Self::Connection { address: address.to_owned(), cause: Box::new(self) }
            }
            other => other,
        }
    }

    /// Returns the stable reason for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::KeyMissing { .. } | Self::Kubeconfig(_) => Reason::AccessInvalid,
            Self::AddressRefused(AddressRefusal::Hub) => Reason::TargetIsHub,
            Self::AddressRefused(_) => Reason::AccessRefused,
            Self::NameNotFound | Self::Connect(_) | Self::NotApiServer(_) => Reason::TargetUnreachable,
            Self::Connection { cause, .. } | Self::Suspended { cause, .. } => cause.reason(),
            Self::Tls(_) => Reason::TargetUntrusted,
            Self::Deadline(_) => Reason::TargetTimeout,
            Self::Throttled(_) => Reason::TargetThrottled,
            Self::TooLarge(_) | Self::Redirected(_) | Self::Unreadable => Reason::TargetAnswerInvalid,
            Self::Unauthorized => Reason::TargetUnauthorized,
            Self::Token(TokenError::Refused { .. }) => Reason::TokenRefused,
            Self::Token(_) => Reason::TokenUnavailable,
            Self::Forbidden(_) => Reason::TargetForbidden,
            Self::Server { .. } => Reason::TargetServerError,
            Self::Api { reason, .. } => *reason,
            Self::Initializing => Reason::Progressing,
            Self::Refused(verdict) => verdict.reason(),
            Self::Unconfirmed => Reason::HubUnavailable,
            Self::Request => Reason::Internal,
        }
    }
}

/// Returns the hint at the flag that allows an address, or nothing if none does.
fn flag_hint(refusal: AddressRefusal) -> &'static str {
    match refusal {
        AddressRefusal::Loopback => "; --allow-loopback-targets allows it",
        AddressRefusal::LinkLocal => "; --allow-link-local-targets allows it",
        AddressRefusal::Metadata
        | AddressRefusal::Unspecified
        | AddressRefusal::Multicast
        | AddressRefusal::Private
        | AddressRefusal::Hub => "",
    }
}

/// Classifies an error of kube. All errors of calls to targets are classified here.
pub fn classify(error: &kube::Error) -> TargetError {
    match error {
        kube::Error::Api(status) => from_status(status),
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) | kube::Error::Discovery(_) => {
            TargetError::Unreadable
        }
        kube::Error::HyperError(error) => from_chain(error),
        kube::Error::Service(error) => from_chain(error.as_ref()),
        kube::Error::ReadEvents(error) => from_chain(error),
        _ => TargetError::Request,
    }
}

/// Reports whether the API server serves the kind and still loads its objects, as after the first request for a kind
/// whose CRD was just established.
pub fn is_initializing(status: &Status) -> bool {
    Refusal::of(status) == Refusal::Initializing
}

fn from_status(status: &Status) -> TargetError {
    let (refusal, code) = (Refusal::of(status), status.code);
    match &refusal {
        Refusal::Unauthorized => TargetError::Unauthorized,
        Refusal::Forbidden => TargetError::Forbidden(describe(status)),
        Refusal::Initializing => TargetError::Initializing,
        Refusal::Throttled(asked) => {
            let asked = asked.unwrap_or_default();
            TargetError::Throttled(asked.clamp(Duration::from_secs(1), Duration::from_mins(1)))
        }
        Refusal::Server(_) => TargetError::Server { code, detail: describe(status) },
        _ => TargetError::Api { code, detail: detail_of(&refusal, status), reason: reason_of(&refusal) },
    }
}

/// Returns the reason of a refusal. A call without an object to depend on has no missing dependency, so NotFound is
/// an ordinary refusal.
fn reason_of(refusal: &Refusal) -> Reason {
    if *refusal == Refusal::NotFound { Reason::ApplyRefused } else { refusal.reason() }
}

/// Returns the policy, webhook, quota or field that refuses, or reason and paths of the status.
fn detail_of(refusal: &Refusal, status: &Status) -> String {
    match refusal {
        Refusal::QuotaExceeded(_)
        | Refusal::NamespaceTerminating
        | Refusal::Denied(_)
        | Refusal::WebhookFailed(_)
        | Refusal::ConversionFailed(_)
        | Refusal::NoDryRun(_)
        | Refusal::VersionGone(_)
        | Refusal::TooLarge => refusal.to_string(),
        Refusal::Invalid(paths) if status.code != 422 && !paths.is_empty() => refusal.to_string(),
        _ => describe(status),
    }
}

/// Reasons of causes that API servers write.
const CAUSES: &[&str] = &[
    "FieldManagerConflict",
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueNotFound",
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
    "NamespaceTerminating",
    "ResourceVersionTooLarge",
    "UnexpectedServerResponse",
];
/// Maximum number of displayed causes.
const MAX_SHOWN_CAUSES: usize = 3;

/// Returns reason and field paths of a status. The message is left out, since an untrusted target controls it.
fn describe(status: &Status) -> String {
    let reason = match status.reason.as_str() {
        reason if !reason.is_empty() && kube::core::response::reason::is_known(reason) => reason,
        _ => "no known reason",
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let known = causes.filter(|cause| CAUSES.contains(&cause.reason.as_str()));
    // Sorted, since answers about custom resources have no stable order.
    let known: BTreeSet<String> = known
        .map(|cause| match path(&cause.field) {
            Some(field) => format!(", {} at {field}", cause.reason),
            None => format!(", {}", cause.reason),
        })
        .collect();
    known.iter().take(MAX_SHOWN_CAUSES).fold(reason.to_owned(), |text, cause| text + cause)
}

/// Returns `field` if it looks like the path of a field.
fn path(field: &str) -> Option<&str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/[]()\"=,:".contains(&byte);
    (!field.is_empty() && field.len() <= 200 && field.bytes().all(allowed)).then_some(field)
}

/// Finds the cause in an error and its sources.
pub(crate) fn from_chain(error: &(dyn StdError + 'static)) -> TargetError {
    const MAX_SOURCE_DEPTH: usize = 16;
    let mut next = Some(error);
    let mut best = TargetError::Connect("the connection broke off");
    for _ in 0..MAX_SOURCE_DEPTH {
        let Some(error) = next else { break };
        if let Some(known) = error.downcast_ref::<TargetError>() {
            return known.clone();
        }
        if let Some(known) = error.downcast_ref::<kube::Error>().filter(|e| matches!(e, kube::Error::Api(_)))
        {
            return classify(known);
        }
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return TargetError::Tls(tls_fault(tls));
        }
        // The error inside of an `io::Error` is not among its sources.
        let io = error.downcast_ref::<std::io::Error>();
        if let Some(text) = io.and_then(|io| io_fault(io.kind())) {
            best = TargetError::Connect(text);
        }
        next = match io.and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    best
}

fn io_fault(kind: std::io::ErrorKind) -> Option<&'static str> {
    use std::io::ErrorKind as Kind;
    match kind {
        Kind::ConnectionRefused => Some("connection refused"),
        Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe => Some("connection reset"),
        Kind::HostUnreachable | Kind::NetworkUnreachable => Some("no route to it"),
        Kind::UnexpectedEof => Some("the connection was closed"),
        _ => None,
    }
}

fn tls_fault(error: &rustls::Error) -> TlsFault {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate};
    match error {
        rustls::Error::InvalidCertificate(certificate) => match certificate {
            // A signature that does not verify: another key under the authority's name.
            Certificate::UnknownIssuer | Certificate::BadSignature => TlsFault::UnknownAuthority,
            Certificate::Expired | Certificate::ExpiredContext { .. } => TlsFault::Expired,
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => TlsFault::NotYetValid,
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => TlsFault::OtherName,
            Certificate::InvalidPurpose | Certificate::InvalidPurposeContext { .. } => TlsFault::Purpose,
            Certificate::UnsupportedSignatureAlgorithmContext { .. }
            | Certificate::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => TlsFault::Algorithm,
            Certificate::BadEncoding | Certificate::UnhandledCriticalExtension => TlsFault::Certificate,
            _ if kyma_tls::is_authority_refused(error) => TlsFault::Authority,
            _ => TlsFault::Certificate,
        },
        rustls::Error::AlertReceived(alert) => match alert {
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateRequired
            | Alert::UnknownCA => TlsFault::ClientCertificate,
            Alert::ProtocolVersion | Alert::HandshakeFailure | Alert::InsufficientSecurity => {
                TlsFault::Version
            }
            _ => TlsFault::Refused,
        },
        rustls::Error::PeerIncompatible(_) => TlsFault::Version,
        rustls::Error::InvalidMessage(_) => TlsFault::NotTls,
        _ => TlsFault::Handshake,
    }
}
