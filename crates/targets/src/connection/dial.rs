//! Opens connections: resolves the name, checks each address, and connects only to a checked one.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tower::Service;

use crate::access::AccessPolicy;
use crate::credentials::client_certificate;
use crate::credentials::kubeconfig::{Kubeconfig, KubeconfigError};
use crate::error::{TargetError, from_chain};

type Opening<T> = Pin<Box<dyn Future<Output = Result<T, TargetError>> + Send>>;

/// Maximum number of addresses of one name that are checked.
const MAX_ADDRESSES: usize = 16;

/// TCP to addresses that the policy accepts, directly or through a proxy.
///
/// Connects to the checked address itself, so a name whose address changes in between gains nothing.
#[derive(Clone, Debug)]
pub(crate) struct GuardedTcp {
    policy: Arc<AccessPolicy>,
    proxy: Option<Uri>,
    timeout: Duration,
}

impl Service<Uri> for GuardedTcp {
    type Response = TokioIo<TcpStream>;
    type Error = TargetError;
    type Future = Opening<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TargetError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let mut tcp = self.clone();
        Box::pin(async move {
            match tcp.proxy.take() {
                None => tcp.open(&to).await,
                Some(proxy) => {
                    tcp.judge_literal(&to)?;
                    Tunnel::new(proxy, tcp).call(to).await.map_err(|error| from_chain(&error))
                }
            }
        })
    }
}

impl GuardedTcp {
    async fn open(&self, to: &Uri) -> Result<TokioIo<TcpStream>, TargetError> {
        let default_port = if to.scheme_str() == Some("http") { 80 } else { 443 };
        let resolved = tokio::net::lookup_host((host(to), to.port_u16().unwrap_or(default_port))).await;
        let resolved = resolved.map_err(|_| TargetError::NameNotFound)?;
        let addresses: Vec<SocketAddr> = resolved.take(MAX_ADDRESSES).collect();
        // One refused address makes the whole name refused: a public address beside it may be bait.
        for address in &addresses {
            self.policy.check(*address).map_err(TargetError::AddressRefused)?;
        }
        let mut outcome = TargetError::NameNotFound;
        let share = if addresses.len() > 1 { self.timeout / 2 } else { self.timeout };
        for address in addresses {
            match tokio::time::timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Requests are small and answered at once, so Nagle's algorithm would only delay them.
                    stream.set_nodelay(true).map_err(|error| from_chain(&error))?;
                    return Ok(TokioIo::new(stream));
                }
                Ok(Err(error)) => outcome = from_chain(&error),
                Err(_) => outcome = TargetError::Connect(NO_ANSWER),
            }
        }
        Err(outcome)
    }

    /// Checks a literal address of the server. A name is resolved by the proxy, so it cannot be checked here.
    fn judge_literal(&self, to: &Uri) -> Result<(), TargetError> {
        let host = host(to);
        let literal = if host.eq_ignore_ascii_case("localhost") { "127.0.0.1" } else { host };
        let Ok(ip) = literal.parse() else { return Ok(()) };
        let address = SocketAddr::new(ip, to.port_u16().unwrap_or(443));
        self.policy.check(address).map_err(TargetError::AddressRefused)
    }
}

const NO_ANSWER: &str = "no answer to the connection attempt";

fn host(uri: &Uri) -> &str {
    uri.host().unwrap_or_default().trim_matches(['[', ']'])
}

/// Maximum number of remembered certificates of one target. Each server of a highly available control plane has its
/// own.
const MAX_CERTIFICATES: usize = 32;

/// Counts signs that another server answers than before: a new certificate, or a broken connection.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    /// The certificates seen so far, the latest last.
    met: Mutex<Vec<Vec<u8>>>,
    changes: AtomicU64,
}

impl Servers {
    fn met(&self, certificate: &[u8]) {
        let mut met = self.met.lock();
        if let Some(at) = met.iter().position(|known| known == certificate) {
            let known = met.remove(at);
            met.push(known);
            return;
        }
        if !met.is_empty() {
            self.record_failed_connection();
        }
        if met.len() >= MAX_CERTIFICATES {
            met.remove(0);
        }
        met.push(certificate.to_vec());
    }

    /// Records that a connection broke, or that none could be opened.
    pub(crate) fn record_failed_connection(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }
}

/// Connector of one target: guarded TCP, TLS with the kubeconfig's authorities only, one deadline for both.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    https: HttpsConnector<GuardedTcp>,
    timeout: Duration,
    servers: Arc<Servers>,
}

impl Dialer {
    /// Errors: certificates, keys or names in the kubeconfig that are not what their field says.
    pub(crate) fn new(
        kubeconfig: &Kubeconfig,
        policy: Arc<AccessPolicy>,
        timeout: Duration,
        servers: Arc<Servers>,
    ) -> Result<Self, KubeconfigError> {
        let malformed = |field, why| KubeconfigError::Malformed { field, why };
        let proxy = kubeconfig.proxy.as_ref().map(|proxy| proxy.as_str().parse::<Uri>()).transpose();
        let proxy = proxy.map_err(|_| malformed("clusters[].cluster.proxy-url", "a URL is expected"))?;
        let tcp = GuardedTcp { policy, proxy, timeout };
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls_config(kubeconfig)?).https_only();
        let https = match &kubeconfig.server_name {
            None => builder.enable_http1().wrap_connector(tcp),
            Some(name) => {
                let name = ServerName::try_from(name.clone());
                let field = "clusters[].cluster.tls-server-name";
                let name = name.map_err(|_| malformed(field, "a DNS name or address is expected"))?;
                let resolver = FixedServerNameResolver::new(name);
                builder.with_server_name_resolver(resolver).enable_http1().wrap_connector(tcp)
            }
        };
        Ok(Self { https, timeout, servers })
    }
}

impl Service<Uri> for Dialer {
    type Response = <HttpsConnector<GuardedTcp> as Service<Uri>>::Response;
    type Error = TargetError;
    type Future = Opening<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TargetError>> {
        self.https.poll_ready(cx).map_err(|error| from_chain(error.as_ref()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let opening = tokio::time::timeout(self.timeout, self.https.call(to));
        let servers = Arc::clone(&self.servers);
        Box::pin(async move {
            let opened = opening.await.map_err(|_| TargetError::Connect(NO_ANSWER))?;
            let opened = opened.map_err(|error| from_chain(error.as_ref()))?;
            if let MaybeHttpsStream::Https(stream) = &opened {
                let certificates = stream.inner().get_ref().1.peer_certificates();
                certificates.and_then(<[_]>::first).inspect(|certificate| servers.met(certificate));
            }
            Ok(opened)
        })
    }
}

fn tls_config(kubeconfig: &Kubeconfig) -> Result<ClientConfig, KubeconfigError> {
    let authorities_field = "clusters[].cluster.certificate-authority-data";
    let why = "PEM certificates are expected";
    let no_authority = || KubeconfigError::Malformed { field: authorities_field, why };
    let authorities: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(&kubeconfig.authorities).collect();
    let authorities = authorities.map_err(|_| no_authority())?;
    let verifier = kyma_tls::server_verifier(&authorities, RootCertStore::empty());
    let verifier = verifier.map_err(|_| no_authority())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|_| no_authority())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let Some(identity) = &kubeconfig.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let identity = client_certificate::load(identity, builder.crypto_provider())?;
    Ok(builder.with_client_cert_resolver(identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_certificate_or_a_broken_connection_is_a_change() {
        let servers = Servers::default();
        let mut changes = vec![];
        for certificate in [b"one", b"one", b"two", b"two"] {
            servers.met(certificate);
            changes.push(servers.changes());
        }
        assert_eq!(changes, [0, 0, 1, 1]);
        servers.record_failed_connection();
        assert_eq!(servers.changes(), 2);
    }

    #[test]
    fn servers_that_answer_in_turn_are_each_a_change_once() {
        let servers = Servers::default();
        for connection in 0..300_u32 {
            servers.met(&(connection % 3).to_be_bytes());
        }
        assert_eq!(servers.changes(), 2);
        for connection in 0..100_u32 {
            servers.met(&connection.to_be_bytes());
        }
        assert_eq!(servers.met.lock().len(), MAX_CERTIFICATES);
    }
}
