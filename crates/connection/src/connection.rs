//! An open connection to a target.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kyma_api::{Kyma, SecretKeyRef, TargetIdentity};
use kyma_targets::Target;

use crate::verification::is_on_record;

/// Share of the resync after which the checks and the state of a session have expired. Below the lowest randomized
/// resync, which therefore checks and reads again.
const LIFETIME_SHARE_OF_RESYNC: f64 = 0.8;

/// Returns the time for which the checks and the state of a session are valid.
pub fn session_lifetime(resync: Duration) -> Duration {
    resync.mul_f64(LIFETIME_SHARE_OF_RESYNC)
}

/// A connection to a target whose identity is verified.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The access Secret.
    pub access: SecretKeyRef,
    /// The target; every write checks that this hub still owns it.
    pub target: Target,
    /// The identity recorded on the hub.
    pub identity: TargetIdentity,
    /// When the connection was opened.
    pub opened: Instant,
    /// [`Target::connection`] whose identity was verified.
    verified: u64,
    /// Whether no change was requested yet in the present fencing generation.
    unused_fencing_generation: Arc<AtomicBool>,
}

impl Connection {
    pub(crate) fn new(access: SecretKeyRef, target: Target, identity: TargetIdentity, verified: u64) -> Self {
        let (opened, unused_fencing_generation) = (Instant::now(), Arc::default());
        Self { access, target, identity, opened, verified, unused_fencing_generation }
    }

    /// Reports whether the connection uses this access Secret, the cluster behind it is the verified one, and the Kyma
    /// still records its identity.
    pub fn is_verified_for(&self, kyma: &Kyma, access: &SecretKeyRef) -> bool {
        self.access == *access
            && self.verified == self.target.connection()
            && is_on_record(kyma, &self.identity)
    }

    /// Reports whether the checks made when the connection was opened have to be repeated.
    pub fn has_expired(&self, resync: Duration) -> bool {
        self.opened.elapsed() >= session_lifetime(resync)
    }

    /// Records that a change was requested in the present fencing generation.
    pub fn fencing_generation_is_used(&self) {
        self.unused_fencing_generation.store(false, Ordering::Relaxed);
    }

    pub(crate) fn has_unused_fencing_generation(&self) -> bool {
        self.unused_fencing_generation.load(Ordering::Relaxed)
    }

    /// Returns the connection with the identity of the next fencing generation, in which no change was requested yet.
    pub(crate) fn with_next_identity(&self, identity: TargetIdentity) -> Self {
        let unused_fencing_generation = Arc::new(AtomicBool::new(true));
        Self { identity, unused_fencing_generation, ..self.clone() }
    }
}
