//! The admin server: /livez, /readyz, /metrics, and /diagnosis/NAMESPACE/NAME.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{Json, Router, extract::Path, http::StatusCode, routing::get};
use tokio_util::sync::CancellationToken;

use crate::Process;

/// What /readyz asks: whether everything that has to come up is up. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<String, bool>>>,
}

impl Health {
    /// Registers a part that is not ready yet; [`Health::ready`] says when it is.
    pub fn expect(&self, part: &str) {
        self.set(part, false);
    }

    /// The part is up.
    pub fn ready(&self, part: &str) {
        self.set(part, true);
    }

    /// The parts that are not up. Empty: ready.
    pub fn missing(&self) -> Vec<String> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter().filter(|(_, ready)| !**ready).map(|(part, _)| part.clone()).collect()
    }

    fn set(&self, part: &str, ready: bool) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(part.to_owned(), ready);
    }
}

/// Why the admin server could not be started or ended.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address is taken or not ours.
    #[error("--admin-address {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// Serving ended.
    #[error("admin server: {0}")]
    Serve(std::io::Error),
}

/// A server that is bound and not yet serving.
#[derive(Debug)]
pub struct AdminServer {
    listener: tokio::net::TcpListener,
    router: Router,
}

impl AdminServer {
    /// Binds `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// The address is taken or not ours.
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
        let diagnosis = move |Path((namespace, name)): Path<(String, String)>| {
            std::future::ready(Json(diagnoses.of(&namespace, &name)))
        };
        let router = Router::new()
            .route("/livez", get(|| std::future::ready("ok")))
            .route("/readyz", get(ready))
            .route("/metrics", get(render))
            .route("/diagnosis/{namespace}/{name}", get(diagnosis));
        Ok(Self { listener, router })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> Result<SocketAddr, AdminError> {
        self.listener.local_addr().map_err(AdminError::Serve)
    }

    /// Serves until `shutdown`.
    ///
    /// # Errors
    /// The listener broke.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), AdminError> {
        axum::serve(self.listener, self.router)
            .with_graceful_shutdown(shutdown.cancelled_owned())
            .await
            .map_err(AdminError::Serve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_every_expected_part_is_up() {
        let health = Health::default();
        assert_eq!(health.missing(), [""; 0]);
        health.expect("watch");
        health.expect("access");
        health.ready("access");
        assert_eq!(health.missing(), ["watch"]);
        health.ready("watch");
        assert_eq!(health.missing(), [""; 0]);
    }
}
