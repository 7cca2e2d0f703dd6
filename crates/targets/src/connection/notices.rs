//! Events on the suspension and recovery of targets.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};

use crate::credentials::secret_key::SecretKey;

/// A suspension or recovery of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetEvent {
    /// Calls are refused from now on; the target is probed.
    Suspended(SecretKey),
    /// Calls pass again, so refused callers may continue.
    Recovered(SecretKey),
}

/// The events of one target, and the permits for its probes.
pub(crate) struct Notices {
    /// `None` for the hub itself, which sends no events.
    pub(crate) place: Option<SecretKey>,
    pub(crate) events: broadcast::Sender<TargetEvent>,
    pub(crate) probes: Arc<Semaphore>,
}

impl Notices {
    pub(crate) fn suspended(&self) {
        self.send(TargetEvent::Suspended);
    }

    pub(crate) fn recovered(&self) {
        self.send(TargetEvent::Recovered);
    }

    fn send(&self, event: fn(SecretKey) -> TargetEvent) {
        if let Some(place) = &self.place {
            // Fails only if there is no receiver.
            self.events.send(event(place.clone())).ok();
        }
    }

    pub(crate) async fn probe_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.probes).acquire_owned().await.ok()
    }
}
