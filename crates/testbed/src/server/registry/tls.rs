//! TLS in front of a server that speaks plain HTTP.

use anyhow::{Context, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::certificates::Authority;
use crate::server::tls::acceptor;

/// A TLS proxy of a server on loopback, with a certificate of an authority of its own. It ends when it is dropped,
/// and belongs to the tokio runtime that created it.
pub struct TlsProxy {
    address: String,
    authority: String,
    server: JoinHandle<()>,
}

impl TlsProxy {
    /// Starts a proxy in front of `upstream`, `127.0.0.1:PORT`.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(upstream: &str) -> Result<Self> {
        let authority = Authority::new("proxy")?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port")?;
        let address = listener.local_addr()?.to_string();
        let server = tokio::spawn(serve(listener, acceptor(&authority.server()?)?, upstream.to_owned()));
        Ok(Self { address, authority: authority.pem(), server })
    }

    /// Returns host and port, `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the authority's certificate as PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

impl Drop for TlsProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Accepts connections until the task is aborted, which closes them too.
async fn serve(listener: TcpListener, tls: TlsAcceptor, upstream: String) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, upstream) = (tls.clone(), upstream.clone());
        // A client that disconnects is no failure.
        connections.spawn(async move { pass(stream, &tls, &upstream).await.ok() });
        while connections.try_join_next().is_some() {}
    }
}

async fn pass(stream: TcpStream, tls: &TlsAcceptor, upstream: &str) -> Result<()> {
    let mut client = tls.accept(stream).await?;
    let mut server = TcpStream::connect(upstream).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
