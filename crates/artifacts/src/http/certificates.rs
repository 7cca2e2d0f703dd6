//! Certificates of servers that are trusted.

use std::sync::Arc;

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};

use super::settings;
use crate::ArtifactError;

/// TLS settings that trust the system's authorities and those of a PEM file.
pub(super) fn client_config(ca_pem: Option<&[u8]>) -> Result<ClientConfig, ArtifactError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    let mut given = Vec::new();
    for certificate in ca_pem.map(CertificateDer::pem_slice_iter).into_iter().flatten() {
        let certificate = certificate.map_err(|_| settings("ca_pem", "not PEM certificates"))?;
        roots
            .add(certificate.clone())
            .map_err(|_| settings("ca_pem", "not a certificate that can be trusted"))?;
        given.push(certificate);
    }
    let unusable = |error: &dyn std::fmt::Display| settings("client", &error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    let mut tls = if given.is_empty() {
        builder.with_root_certificates(roots).with_no_client_auth()
    } else {
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let inner = inner.build().map_err(|error| unusable(&error))?;
        let verifier = Verifier { inner, given, provider };
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
    };
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

/// Verifies as webpki does. In addition it accepts a server whose certificate is one of the given authorities itself:
/// webpki refuses authorities as certificates of servers, and `openssl req -x509` makes such certificates.
#[derive(Debug)]
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    given: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    /// Whether the certificate is given as an authority, byte for byte, and is valid now for this name.
    fn accepts_as_given(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<bool, Error> {
        if !self.given.iter().any(|given| given.as_ref() == certificate.as_ref())
            || !is_valid_at(certificate, now)
        {
            return Ok(false);
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(true)
    }
}

/// Whether `now` lies within the certificate's period of validity.
fn is_valid_at(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else { return false };
    let validity = parsed.validity();
    i64::try_from(now.as_secs())
        .is_ok_and(|now| (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now))
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
        let verified =
            self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(_) if self.accepts_as_given(end_entity, server_name, now)? => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    /// A certificate that is an authority and names `registry.example`, valid from 2020 to 2040.
    fn self_signed() -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["registry.example".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2040, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn verifier(given: &CertificateDer<'static>) -> Verifier {
        let mut roots = RootCertStore::empty();
        roots.add(given.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        Verifier { inner: inner.build().unwrap(), given: vec![given.clone()], provider }
    }

    fn accepts(verifier: &Verifier, certificate: &CertificateDer<'_>, name: &'static str, year: u64) -> bool {
        let now = UnixTime::since_unix_epoch(Duration::from_hours((year - 1970) * 8766 + 4000));
        let name = ServerName::try_from(name).unwrap();
        verifier.verify_server_cert(certificate, &[], &name, &[], now).is_ok()
    }

    #[test]
    fn an_authority_is_accepted_as_server_certificate_only_where_it_is_given() {
        let (given, other) = (self_signed(), self_signed());
        let verifier = verifier(&given);
        assert!(accepts(&verifier, &given, "registry.example", 2030));
        assert!(!accepts(&verifier, &given, "other.example", 2030), "another name");
        assert!(!accepts(&verifier, &given, "registry.example", 2041), "expired");
        assert!(!accepts(&verifier, &given, "registry.example", 2019), "not valid yet");
        assert!(!accepts(&verifier, &other, "registry.example", 2030), "another certificate of that name");
    }
}
