//! One target: clients for it, whether it answers, and which cluster it is.

use std::sync::Arc;
use std::time::Duration;

use crate::account::ServiceAccount;
use crate::caller::{Agent, Caller, Passes};
use crate::contact::Contact;
use crate::error::TargetError;
use crate::fence::Fence;
use crate::grant::Grant;
use crate::identity::{Found, Recorded, Stamp, Verdict};
use crate::looks::{HubEpoch, Looks};
use crate::secret_key::SecretKey;
use crate::transport::{Health, Transport};

/// A cluster that modules get installed on. Cheap to clone; clones share connections, breaker and budgets.
#[derive(Clone)]
pub struct Target {
    transport: Arc<Transport>,
    place: Option<SecretKey>,
    agent: Agent,
    fence: Option<Arc<Fence>>,
    client: kube::Client,
    looks: Looks,
    grant: Option<Grant>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Target {
    pub(crate) fn new(
        transport: Arc<Transport>,
        place: Option<SecretKey>,
        agent: Agent,
        hub_epoch: HubEpoch,
    ) -> Self {
        let client = Caller::operator(&agent).client(&transport, None);
        let looks = Looks::new(Arc::clone(&transport), client.clone(), hub_epoch);
        Self { transport, place, agent, fence: None, client, looks, grant: None }
    }

    /// Client for calls and watches. Each call is bounded as [`Limits`](crate::Limits) says, the body
    /// included; a watch is bounded by silence and event size. It never retries and follows no redirect.
    /// Errors are for [`classify`](crate::classify).
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Client for one component, as `account` if there is one.
    pub(crate) fn component_client(
        &self,
        component_uid: &str,
        account: Option<&ServiceAccount>,
        passes: Passes,
    ) -> kube::Client {
        let caller = Caller::component(&self.agent, component_uid, account).limited_to(passes);
        // Reads are not fenced.
        caller.client(&self.transport, self.guard().filter(|_| passes == Passes::All))
    }

    /// Client that only reads.
    pub(crate) fn reader(&self) -> kube::Client {
        Caller::operator(&self.agent).limited_to(Passes::Reads).client(&self.transport, None)
    }

    /// The same target, to which nothing is written unless `fence` admits it at that moment. What it refuses ends with
    /// [`TargetError::Refused`].
    pub fn fenced(&self, fence: Fence) -> Self {
        let mut fenced = Self { fence: Some(Arc::new(fence)), ..self.clone() };
        fenced.client = Caller::operator(&self.agent).client(&self.transport, fenced.guard());
        fenced
    }

    fn guard(&self) -> Option<(Arc<Fence>, Looks)> {
        self.fence.clone().map(|fence| (fence, self.looks.clone()))
    }

    /// The Secret that leads here; none for the hub itself.
    pub fn key(&self) -> Option<&SecretKey> {
        self.place.as_ref()
    }

    /// The same target, of use as long as `grant` holds.
    pub fn granted(&self, grant: Grant) -> Self {
        Self { grant: Some(grant), ..self.clone() }
    }

    /// Whether the access Secret changed since this was taken from it: whoever goes on takes it anew.
    pub fn is_withdrawn(&self) -> bool {
        self.grant.as_ref().is_some_and(Grant::is_withdrawn)
    }

    /// Whether this is the hub itself.
    pub fn is_local(&self) -> bool {
        self.place.is_none()
    }

    /// Whether calls are tried, as opposed to refused with [`TargetError::Suspended`].
    pub fn calls_pass(&self) -> bool {
        self.transport.health().borrow().calls_pass
    }

    /// When it last answered, and what keeps calls from it.
    pub fn contact(&self) -> Contact {
        self.transport.contact()
    }

    /// Returns once calls pass. At once if they do.
    pub async fn healthy_again(&self) {
        let mut health = self.transport.health();
        // The sender lives as long as `self`, so this ends only with the state waited for.
        health.wait_for(|health: &Health| health.calls_pass).await.ok();
    }

    /// Another number whenever another server may answer than before: after an outage, after a connection that
    /// broke, and where the server shows another certificate.
    pub fn connection(&self) -> u64 {
        self.transport.connection()
    }

    /// Which cluster this is and whose, from the target itself: one look for each access Secret version and
    /// [`Target::connection`].
    ///
    /// Errors: any [`TargetError`]. That the stamp may not be read is an error, not its absence.
    pub async fn identify(&self) -> Result<Found, TargetError> {
        self.looks.within(Duration::MAX).await
    }

    /// The same, from a look that is made now.
    pub async fn identify_anew(&self) -> Result<Found, TargetError> {
        self.looks.within(Duration::ZERO).await
    }

    /// What `found` means for the hub, on the grounds of `fence`. Asks the hub how far it is only if the target is further
    /// than the hub was known to be.
    ///
    /// Errors: [`TargetError::Unconfirmed`] if the hub does not say.
    pub async fn judge(&self, fence: &Fence, found: &Found) -> Result<Verdict, TargetError> {
        fence.judge(&self.looks, found).await
    }

    /// The error of a verdict that forbids to write. The next [`Target::identify`] looks again: somebody may mend that.
    pub async fn refuse(&self, verdict: Verdict) -> TargetError {
        self.looks.refuse(verdict).await
    }

    /// The hub was seen to have this on record.
    pub fn hub_has(&self, recorded: Recorded) {
        self.looks.hub_has(recorded);
    }

    /// Puts `stamp` on the target, provided that the one there is still the one in `over`.
    ///
    /// Errors: 409 if somebody else wrote it since (look again with [`Target::identify`]); 404 if the
    /// namespace [`STAMP_NAMESPACE`](crate::STAMP_NAMESPACE) is missing, which the caller ensures.
    pub async fn put_stamp(&self, stamp: &Stamp, over: &Found) -> Result<(), TargetError> {
        self.looks.put_stamp(stamp, over).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessPolicy, Limits, Targets};

    #[tokio::test]
    async fn a_target_outside_the_cache_forgets_the_hub_record_too() {
        let targets = Targets::new(AccessPolicy::default(), Limits::default(), "test/1", "pod", 1);
        let config = kube::Config::new("http://hub.example.com".parse().unwrap());
        let target = targets.local(kube::Client::try_from(config).unwrap());
        assert!(targets.is_empty());
        target.hub_has(Recorded { epoch: 3, ..Recorded::default() });
        assert_eq!(target.looks.hub_record().map(|recorded| recorded.epoch), Some(3));
        targets.forget_turns();
        assert_eq!(target.looks.hub_record(), None);
        target.hub_has(Recorded { epoch: 4, ..Recorded::default() });
        assert_eq!(target.looks.hub_record().map(|recorded| recorded.epoch), Some(4));
    }
}
