//! Trusted certificates of servers.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use super::settings;
use crate::ArtifactError;

/// Returns TLS settings that trust the system's authorities and the certificates of a PEM file, which may also be
/// server certificates.
pub(super) fn client_config(ca_pem: Option<&[u8]>) -> Result<ClientConfig, ArtifactError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    let mut given = Vec::new();
    for certificate in ca_pem.map(CertificateDer::pem_slice_iter).into_iter().flatten() {
        let certificate = certificate.map_err(|_| settings("ca_pem", "not PEM certificates"))?;
        given.push(certificate);
    }
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
