//! Checks before each write that this hub still manages the target.
//!
//! A target is verified when it is opened. If this hub is an outdated copy, or another hub takes the target over, the
//! next write detects that.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::error::TargetError;
use crate::identity::{Claim, LiveIdentity, Mismatch, TargetRecord, Verdict, compare};
use crate::identity_cache::IdentityCache;

/// Maximum age of the identity and stamp that allow a write, as read from the target.
const MAX_IDENTITY_AGE: Duration = Duration::from_secs(2);

/// Source of the hub's record of a target.
pub trait Ledger: Send + Sync {
    /// Returns the record, read live from the hub; `None` if its Kyma is gone, so that no change can be ordered any
    /// more.
    ///
    /// Errors: [`TargetError::Unconfirmed`] if the hub does not say.
    fn recorded(&self) -> BoxFuture<'_, Result<Option<TargetRecord>, TargetError>>;
}

/// Conditions for writes to a target.
#[derive(Clone)]
pub struct Fence {
    /// Claim of the operator that writes.
    pub claim: Claim,
    /// Record of the hub when the target was verified.
    pub recorded: TargetRecord,
    /// Source of a newer record if the stamp is later than `recorded`; `None` for a component without Kyma, which has
    /// no fencing generations.
    pub ledger: Option<Arc<dyn Ledger>>,
}

impl Fence {
    /// Returns the verdict on `found`. Reads the hub's record again only if the stamp is later than the last read
    /// record.
    ///
    /// Errors: [`TargetError::Unconfirmed`] if the hub does not say.
    pub(crate) async fn judge(
        &self,
        identity_cache: &IdentityCache,
        found: &LiveIdentity,
    ) -> Result<Verdict, TargetError> {
        let judged = compare(&self.claim, &self.latest_record(identity_cache), found);
        let (Verdict::StampMismatch(Mismatch::LaterState), Some(ledger)) = (&judged, &self.ledger) else {
            return Ok(judged);
        };
        let known = match ledger.recorded().await? {
            Some(recorded) => {
                identity_cache.set_hub_record(recorded);
                self.latest_record(identity_cache)
            }
            // No further change is ordered, and earlier ones are complete.
            None => TargetRecord { fencing_generation: found.fencing_generation(), ..self.recorded.clone() },
        };
        Ok(compare(&self.claim, &known, found))
    }

    /// Checks that a write may go to the target, by an identity and stamp that were read within two seconds. Returns
    /// the uid of the cluster, the only one to which the write may go.
    ///
    /// Errors: [`TargetError::Refused`]; the target or the hub does not answer.
    pub(crate) async fn admit(&self, identity_cache: &IdentityCache) -> Result<String, TargetError> {
        let found = identity_cache.read_within(MAX_IDENTITY_AGE).await?;
        match self.judge(identity_cache, &found).await? {
            Verdict::Match { .. } | Verdict::FirstContact { .. } => Ok(found.target_uid),
            refused => Err(identity_cache.refuse(refused).await),
        }
    }

    /// Returns the record with the fencing generation that was last read from the hub, if the epoch is the same: each
    /// epoch has its own fencing generations.
    fn latest_record(&self, identity_cache: &IdentityCache) -> TargetRecord {
        let seen = identity_cache.hub_record().filter(|seen| seen.epoch == self.recorded.epoch);
        TargetRecord {
            fencing_generation: seen.and_then(|seen| seen.fencing_generation),
            ..self.recorded.clone()
        }
    }
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fence").field("recorded", &self.recorded).finish_non_exhaustive()
    }
}
