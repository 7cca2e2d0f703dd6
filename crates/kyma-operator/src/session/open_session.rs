//! State of an open session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kyma_api::{SecretKeyRef, TargetIdentity};
use kyma_targets::Target;

/// Share of the resync after which a session expires. Below the lowest randomized resync, which therefore opens a new
/// session.
const EXPIRY_SHARE_OF_RESYNC: f64 = 0.8;

/// An open session.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// The access Secret.
    pub(crate) access: SecretKeyRef,
    /// The target; every write checks that this hub still owns it.
    pub(crate) target: Target,
    /// The identity recorded on the hub.
    pub(crate) identity: TargetIdentity,
    /// Whether no change was requested yet in the present fencing generation.
    pub(super) unused_fencing_generation: Arc<AtomicBool>,
    /// When the session was opened.
    pub(crate) opened: Instant,
    /// The connection whose identity was verified.
    pub(super) connection: u64,
}

impl Session {
    /// Records that a change was requested.
    pub(crate) fn fencing_generation_is_used(&self) {
        self.unused_fencing_generation.store(false, Ordering::Relaxed);
    }

    pub(super) fn has_unused_fencing_generation(&self) -> bool {
        self.unused_fencing_generation.load(Ordering::Relaxed)
    }

    /// Reports whether the checks made when the session was opened are still valid.
    pub(super) fn is_fresh(&self, resync: Duration) -> bool {
        self.connection == self.target.connection()
            && self.opened.elapsed() < resync.mul_f64(EXPIRY_SHARE_OF_RESYNC)
    }
}
