//! What is held of an open session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kyma_api::{SecretKeyRef, TargetIdentity};
use kyma_targets::Target;

/// Share of the resync after which a session is opened anew; less than what the resync is shortened by at random.
const VERIFY_AT: f64 = 0.8;

/// An open session.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// The access Secret it goes through.
    pub(crate) access: SecretKeyRef,
    /// The target; written to only as long as it is this hub's.
    pub(crate) target: Target,
    /// What the hub recorded about it.
    pub(crate) identity: TargetIdentity,
    /// Whether nothing was ordered yet in the turn that it has.
    pub(super) unused_turn: Arc<AtomicBool>,
    /// When it was opened.
    pub(crate) opened: Instant,
    /// The connection that was proven.
    pub(super) connection: u64,
}

impl Session {
    /// Something was ordered.
    pub(crate) fn turn_is_used(&self) {
        self.unused_turn.store(false, Ordering::Relaxed);
    }

    pub(super) fn has_unused_turn(&self) -> bool {
        self.unused_turn.load(Ordering::Relaxed)
    }

    /// Whether what was proven and prepared when it was opened may still be relied on.
    pub(super) fn is_fresh(&self, resync: Duration) -> bool {
        self.connection == self.target.connection() && self.opened.elapsed() < resync.mul_f64(VERIFY_AT)
    }
}
