//! The admin server: /livez, /readyz, /metrics, and /diagnosis/NAMESPACE/NAME.
//!
//! A diagnosis names hub objects and their failures, and the server does not authenticate callers, so it answers on
//! loopback only, where a port-forward ends.

use std::net::SocketAddr;

use axum::{
    Json, Router,
    extract::{ConnectInfo, Path, connect_info::Connected},
    http::StatusCode,
    response::IntoResponse,
    routing::get,
    serve::IncomingStream,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::process::runtime::Process;

/// Both ends of a connection to the server.
#[derive(Clone, Copy, Debug)]
struct ConnectionAddresses {
    peer: SocketAddr,
    /// `None` if the system does not report it.
    local: Option<SocketAddr>,
}

impl ConnectionAddresses {
    /// Reports whether both ends are on loopback. A sidecar proxy may connect from loopback to the Pod's address.
    fn are_loopback(self) -> bool {
        let is_loopback = |address: SocketAddr| address.ip().to_canonical().is_loopback();
        is_loopback(self.peer) && self.local.is_some_and(is_loopback)
    }
}

impl Connected<IncomingStream<'_, tokio::net::TcpListener>> for ConnectionAddresses {
    fn connect_info(stream: IncomingStream<'_, tokio::net::TcpListener>) -> Self {
        Self { peer: *stream.remote_addr(), local: stream.io().local_addr().ok() }
    }
}

impl Process {
    /// Binds `address` and serves /livez, /readyz, /metrics and /diagnosis there until the shutdown.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn serve_admin(
        &self,
        address: SocketAddr,
    ) -> Result<JoinHandle<Result<(), AdminError>>, AdminError> {
        let server = AdminServer::bind(address, self).await?;
        tracing::info!(address = %server.address()?, "admin server");
        Ok(tokio::spawn(server.serve(self.shutdown.clone())))
    }
}

/// Error of the admin server at its start or while it serves.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address is in use, or this machine does not have it.
    #[error("--admin-address {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// The server stopped with an error.
    #[error("admin server: {0}")]
    Serve(std::io::Error),
}

/// An admin server that is bound to its address and does not serve yet.
#[derive(Debug)]
pub struct AdminServer {
    listener: tokio::net::TcpListener,
    router: Router,
}

impl AdminServer {
    /// Binds `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// The address is in use, or this machine does not have it.
    pub async fn bind(address: SocketAddr, process: &Process) -> Result<Self, AdminError> {
        let Process { health, metrics, diagnoses, .. } = process.clone();
        let bound = tokio::net::TcpListener::bind(address).await;
        let listener = bound.map_err(|error| AdminError::Bind { address, error })?;
        let ready = move || {
            let missing = health.missing();
            std::future::ready(if missing.is_empty() {
                (StatusCode::OK, "ok".to_owned())
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for: {}", missing.join(", ")))
            })
        };
        let render = move || {
            std::future::ready(match metrics.render() {
                Ok(text) => (StatusCode::OK, text),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            })
        };
        let diagnosis = move |ConnectInfo(ends): ConnectInfo<ConnectionAddresses>,
                              Path((namespace, name)): Path<(String, String)>| {
            std::future::ready(if ends.are_loopback() {
                Json(diagnoses.of(&namespace, &name)).into_response()
            } else {
                (StatusCode::FORBIDDEN, "served on loopback only: use kubectl port-forward").into_response()
            })
        };
        let router = Router::new()
            .route("/livez", get(|| std::future::ready("ok")))
            .route("/readyz", get(ready))
            .route("/metrics", get(render))
            .route("/diagnosis/{namespace}/{name}", get(diagnosis));
        Ok(Self { listener, router })
    }

    /// Returns the address on which the server listens.
    ///
    /// # Errors
    /// The operating system does not report the address.
    pub fn address(&self) -> Result<SocketAddr, AdminError> {
        self.listener.local_addr().map_err(AdminError::Serve)
    }

    /// Serves until `shutdown`.
    ///
    /// # Errors
    /// The listener failed.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), AdminError> {
        axum::serve(self.listener, self.router.into_make_service_with_connect_info::<ConnectionAddresses>())
            .with_graceful_shutdown(shutdown.cancelled_owned())
            .await
            .map_err(AdminError::Serve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_within_loopback_are_local() {
        let rows = [
            ("127.0.0.1:5", Some("127.0.0.1:8080"), true),
            ("[::1]:5", Some("[::1]:8080"), true),
            ("[::ffff:127.0.0.1]:5", Some("[::ffff:127.0.0.1]:8080"), true),
            ("10.0.0.7:5", Some("10.0.0.8:8080"), false),
            ("127.0.0.6:5", Some("10.0.0.8:8080"), false),
            ("10.0.0.7:5", Some("127.0.0.1:8080"), false),
            ("[fe80::1]:5", Some("[::1]:8080"), false),
            ("127.0.0.1:5", None, false),
        ];
        for (peer, local, expected) in rows {
            let ends = ConnectionAddresses {
                peer: peer.parse().unwrap(),
                local: local.map(|local: &str| local.parse().unwrap()),
            };
            assert_eq!(ends.are_loopback(), expected, "{peer} {local:?}");
        }
    }

    async fn answer(address: SocketAddr, path: &str) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    /// Returns an address of this machine other than loopback, if it has one. Sends no packet.
    fn outer_address() -> Option<std::net::IpAddr> {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect("192.0.2.1:9").ok()?;
        socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
    }

    #[tokio::test]
    async fn a_diagnosis_is_refused_at_the_address_of_the_pod() {
        let process = Process::new().unwrap();
        let server = AdminServer::bind("0.0.0.0:0".parse().unwrap(), &process).await.unwrap();
        let port = server.address().unwrap().port();
        let serving = tokio::spawn(server.serve(process.shutdown.clone()));
        let inner = SocketAddr::from(([127, 0, 0, 1], port));
        assert!(answer(inner, "/diagnosis/a/b").await.starts_with("HTTP/1.1 200"));
        if let Some(ip) = outer_address() {
            let outer = SocketAddr::new(ip, port);
            assert!(answer(outer, "/diagnosis/a/b").await.starts_with("HTTP/1.1 403"));
            assert!(answer(outer, "/livez").await.starts_with("HTTP/1.1 200"));
        }
        process.shutdown.cancel();
        serving.await.unwrap().unwrap();
    }
}
