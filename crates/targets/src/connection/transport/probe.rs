//! Probe of a target while the breaker refuses calls.

use std::sync::Arc;

use http::header::HeaderValue;
use http::{Request, StatusCode};
use kube::client::Body;
use tokio::sync::Semaphore;

use super::answer::{self, AuditIdPresence};
use super::wire::Wire;
use crate::connection::limits::Limits;

/// Path of a probe.
const PROBE_PATH: &str = "/readyz";

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeResult {
    Healthy,
    /// The target works and would refuse every call.
    Unauthorized,
    Unhealthy,
}

/// Sends one probe.
pub(super) async fn probe(wire: &Wire, limits: &Limits, audits: &AuditIdPresence) -> ProbeResult {
    let Ok(request) = Request::get(PROBE_PATH).body(Body::empty()) else {
        return ProbeResult::Unhealthy;
    };
    let agent = HeaderValue::from_static(concat!("kyma-targets/", env!("CARGO_PKG_VERSION"), " (probe)"));
    // The probe does not depend on an issuer of tokens.
    let sent = wire.dispatch(request, agent, None);
    let answered = tokio::time::timeout(limits.connect, sent).await;
    let Ok(Ok(answer)) = answered else { return ProbeResult::Unhealthy };
    if answer.status() == StatusCode::UNAUTHORIZED && wire.tokens().is_none() {
        return ProbeResult::Unauthorized;
    }
    // A working API server may answer with 403 too; the next call shows its meaning.
    let large = Arc::new(Semaphore::new(1));
    let queue = answer::Queue::new(&large);
    let bounds = answer::Bounds::of(limits, &queue, audits);
    let read = answer::read(answer, bounds, PROBE_PATH);
    match tokio::time::timeout(limits.connect, read).await {
        Ok(Ok(answer)) if !answer.status().is_server_error() => ProbeResult::Healthy,
        _ => ProbeResult::Unhealthy,
    }
}
