//! Before anything is written on a target: is it still this hub's to write there?
//!
//! A target is proven when it is opened. What happens after that, an old copy of the hub that falls behind or another
//! hub that takes the target over, is seen here, at the next write.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::Method;

use crate::error::TargetError;
use crate::identity::{Claim, Found, Mismatch, Recorded, Verdict, compare};
use crate::looks::Looks;

/// Maximum age of the identity and stamp that allow a write, as read from the target.
const RECENT: Duration = Duration::from_secs(2);

/// Where the hub has on record whose turn it is.
pub trait Ledger: Send + Sync {
    /// What is on record, from the hub itself; none if nobody is there any more who could take a turn.
    ///
    /// Errors: [`TargetError::Unconfirmed`] if the hub does not say.
    fn recorded(&self) -> BoxFuture<'_, Result<Option<Recorded>, TargetError>>;
}

/// On what grounds writes pass to a target.
#[derive(Clone)]
pub struct Fence {
    /// Claim of the operator that writes.
    pub claim: Claim,
    /// Record of the hub when the target was verified.
    pub recorded: Recorded,
    /// Asked where the target is further than that; none where nobody counts turns.
    pub ledger: Option<Arc<dyn Ledger>>,
}

impl Fence {
    /// What `found` means for the hub. Asks it how far it is only if the target is further than the hub was known to be.
    ///
    /// Errors: [`TargetError::Unconfirmed`] if the hub does not say.
    pub(crate) async fn judge(&self, looks: &Looks, found: &Found) -> Result<Verdict, TargetError> {
        let judged = compare(&self.claim, &self.known(looks), found);
        let (Verdict::StampMismatch(Mismatch::LaterState), Some(ledger)) = (&judged, &self.ledger) else {
            return Ok(judged);
        };
        let known = match ledger.recorded().await? {
            Some(recorded) => {
                looks.hub_has(recorded);
                self.known(looks)
            }
            // Nothing is ordered any more; what was ordered before is finished.
            None => Recorded { turn: found.turn(), ..self.recorded.clone() },
        };
        Ok(compare(&self.claim, &known, found))
    }

    /// Whether a write may go to the target now: rests on a look at it that is not older than two seconds. Gives the
    /// uid of the cluster that was seen: the write may go to no other one.
    ///
    /// Errors: [`TargetError::Refused`]; that the target or the hub does not answer.
    pub(crate) async fn admit(&self, looks: &Looks) -> Result<String, TargetError> {
        let found = looks.within(RECENT).await?;
        match self.judge(looks, &found).await? {
            Verdict::Match { .. } | Verdict::FirstContact { .. } => Ok(found.target_uid),
            refused => Err(looks.refuse(refused).await),
        }
    }

    /// With the turn that the hub was last seen to have on record; each epoch counts anew.
    fn known(&self, looks: &Looks) -> Recorded {
        let seen = looks.hub_record().filter(|seen| seen.epoch == self.recorded.epoch);
        Recorded { turn: seen.and_then(|seen| seen.turn), ..self.recorded.clone() }
    }
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fence").field("recorded", &self.recorded).finish_non_exhaustive()
    }
}

/// Whether a request changes something.
pub(crate) fn is_write(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}
