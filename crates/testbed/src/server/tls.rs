//! TLS of the servers on loopback.

use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tokio_rustls::TlsAcceptor;

use crate::certificates::Certificate;
use crate::client::access::certificates;

/// Returns an acceptor of connections that shows this certificate.
pub(crate) fn acceptor(certificate: &Certificate) -> Result<TlsAcceptor> {
    let chain = certificates(&certificate.certificate)?.into_iter().map(Into::into).collect();
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).context("the server's key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
