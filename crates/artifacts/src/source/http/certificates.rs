//! Trusted certificates of servers.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use super::failure::settings;
use crate::error::ArtifactError;

/// Returns TLS settings that trust the system's authorities and the certificates of a PEM file, which may also be
/// server certificates.
pub(super) fn client_config(ca_pem: Option<&[u8]>) -> Result<ClientConfig, ArtifactError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    let given = parse_certificates(ca_pem)?;
    let unusable = |error: &dyn std::fmt::Display| settings("client", &error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    let mut tls = if given.is_empty() {
        builder.with_root_certificates(roots).with_no_client_auth()
    } else {
        let verifier = kyma_tls::server_verifier(&given, roots);
        let verifier = verifier.map_err(|error| settings("ca_pem", &error.to_string()))?;
        builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
    };
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

/// Returns the certificates of a PEM file. As in Go, one that cannot be read does not affect the others.
fn parse_certificates(ca_pem: Option<&[u8]>) -> Result<Vec<CertificateDer<'static>>, ArtifactError> {
    let mut given = Vec::new();
    for certificate in ca_pem.map(CertificateDer::pem_slice_iter).into_iter().flatten() {
        let certificate = certificate.map_err(|_| settings("ca_pem", "not PEM certificates"))?;
        given.push(certificate);
    }
    let count = given.len();
    given.retain(|certificate| RootCertStore::empty().add(certificate.clone()).is_ok());
    let unreadable = count - given.len();
    if unreadable > 0 && given.is_empty() {
        return Err(settings("ca_pem", "none of its certificates can be read"));
    }
    if unreadable > 0 {
        tracing::warn!(unreadable, "certificates of the CA file cannot be read and are ignored");
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PEM, but not a certificate.
    const UNREADABLE: &str = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";

    #[test]
    fn unreadable_certificate_leaves_others_of_a_bundle_in_use() {
        let authority = || {
            let params = rcgen::CertificateParams::new(vec!["registry.example".to_owned()]).unwrap();
            params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
        };
        let bundle = format!("# Issuer: a\n{}\n{UNREADABLE}\n# Issuer: b\n{}", authority(), authority());
        for bundle in [bundle.clone(), bundle.replace("\r\n", "\n").replace('\n', "\r\n")] {
            assert_eq!(parse_certificates(Some(bundle.as_bytes())).unwrap().len(), 2);
            assert!(client_config(Some(bundle.as_bytes())).is_ok());
        }
        assert!(parse_certificates(Some(UNREADABLE.as_bytes())).is_err());
        assert!(parse_certificates(Some(b"# no certificate yet\n")).unwrap().is_empty());
    }
}
