//! Probes of a target while the breaker refuses calls.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use http::header::HeaderValue;
use http::{Request, StatusCode};
use kube::client::Body;
use tokio::sync::Semaphore;

use super::{Transport, answer, jitter};
use crate::breaker::Effect;
use crate::error::TargetError;

/// Path of a probe.
const PROBE_PATH: &str = "/readyz";

impl Transport {
    /// Starts the only probing task of this target, which ends when calls pass again or the target is no longer used.
    pub(super) fn probe_after(self: &Arc<Self>, delay: Duration) {
        tokio::spawn(probe_until_healthy(Arc::downgrade(self), delay));
    }

    async fn probe(&self) -> bool {
        let _permit = self.notices.probe_permit().await;
        let Ok(request) = Request::get(PROBE_PATH).body(Body::empty()) else {
            return false;
        };
        let agent = HeaderValue::from_static(concat!("kyma-targets/", env!("CARGO_PKG_VERSION"), " (probe)"));
        // The probe does not depend on an issuer of tokens.
        let sent = self.wire.dispatch(request, agent, None);
        let answered = tokio::time::timeout(self.limits.connect, sent).await;
        let Ok(Ok(answer)) = answered else { return false };
        if answer.status() == StatusCode::UNAUTHORIZED && self.wire.tokens().is_none() {
            // The target works and would refuse every call.
            *self.cause.lock() = Some(TargetError::Unauthorized);
            return false;
        }
        // A working API server may answer with 403 too; the next call shows its meaning.
        let large = Arc::new(Semaphore::new(1));
        let queue = answer::Queue::new(&large);
        let bounds = answer::Bounds::of(&self.limits, &queue, &self.audits);
        let read = answer::read(answer, bounds, PROBE_PATH);
        match tokio::time::timeout(self.limits.connect, read).await {
            Ok(Ok(answer)) => !answer.status().is_server_error(),
            _ => false,
        }
    }
}

async fn probe_until_healthy(target: Weak<Transport>, mut delay: Duration) {
    loop {
        tokio::time::sleep(delay).await;
        let Some(target) = target.upgrade() else { return };
        let healthy = target.probe().await;
        let effect = target.breaker.lock().probed(healthy, Instant::now(), jitter());
        match effect {
            Effect::Open(next) => {
                target.suspended();
                delay = next;
            }
            Effect::Recovered => return target.recovered(),
            Effect::None | Effect::ProbeNow => return,
        }
    }
}
