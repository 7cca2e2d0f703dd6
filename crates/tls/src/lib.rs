//! Verification of server certificates as client-go and other Go programs do it.
//!
//! rustls trusts authorities only. Go also accepts a server certificate that is itself in the list of trusted
//! certificates: a self-signed certificate, with or without `CA:TRUE`, or a certificate of an untrusted authority. Name
//! and validity are verified in either case.
//!
//! ```
//! # fn main() -> Result<(), kyma_tls::AuthorityError> {
//! use rustls::RootCertStore;
//!
//! // No authority at all is an error.
//! assert!(kyma_tls::server_verifier(&[], RootCertStore::empty()).is_err());
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

#[cfg(test)]
mod tests;

/// Reason why certificates cannot be used as authorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// None of the entries is an X.509 certificate.
    #[error("none of the certificates can be read")]
    Unreadable,
    /// The list is empty.
    #[error("there is no certificate")]
    Missing,
}

/// Returns a verifier that trusts `certificates`, both as authorities and as server certificates, and `authorities`. It
/// uses rustls' provider `ring`. As in Go, a certificate that cannot be read does not affect the others.
///
/// # Errors
/// None of `certificates` can be read, or both `certificates` and `authorities` are empty.
pub fn server_verifier(
    certificates: &[CertificateDer<'static>],
    authorities: RootCertStore,
) -> Result<Arc<dyn ServerCertVerifier>, AuthorityError> {
    let mut roots = authorities;
    let (readable, unreadable) = roots.add_parsable_certificates(certificates.iter().cloned());
    if readable == 0 && unreadable > 0 {
        return Err(AuthorityError::Unreadable);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let by_authority = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let by_authority = by_authority.map_err(|_| AuthorityError::Missing)?;
    Ok(Arc::new(Verifier { by_authority, trusted: certificates.to_vec() }))
}

/// Accepts server certificates that a trusted authority issued, and the certificates in `trusted`.
#[derive(Debug)]
struct Verifier {
    by_authority: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verdict =
            self.by_authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verdict {
            Err(error) if is_about_issuer(&error) && self.trusted.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

/// Reports whether a certificate is refused only because of its issuer: the issuer is untrusted, has the name but not
/// the key of a trusted issuer, or signed with an unsupported algorithm such as SHA-1. The validity period is checked
/// before the issuer, so an expired certificate is not refused with one of these errors.
fn is_about_issuer(error: &Error) -> bool {
    let Error::InvalidCertificate(problem) = error else { return false };
    let is_about_signature = matches!(
        problem,
        CertificateError::UnknownIssuer
            | CertificateError::BadSignature
            | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
    );
    is_about_signature || is_authority_refused(error)
}

/// Reports whether a server certificate was refused because it is the certificate of an authority.
pub fn is_authority_refused(error: &Error) -> bool {
    // rustls passes on this webpki error as `Other`; its text is the name of the webpki variant.
    matches!(
        error,
        Error::InvalidCertificate(CertificateError::Other(other)) if other.0.to_string() == "CaUsedAsEndEntity"
    )
}
