//! A target: clients for it, the state of its connection, and the identity of its cluster.

use std::sync::Arc;
use std::time::Duration;

use crate::client::account::ServiceAccount;
use crate::client::caller::{Agent, AllowedCalls, Caller};
use crate::connection::contact::Contact;
use crate::connection::transport::{Health, Transport};
use crate::credentials::grant::Grant;
use crate::credentials::secret_key::SecretKey;
use crate::error::TargetError;
use crate::fencing::fence::Fence;
use crate::identity::{LiveIdentity, Stamp, TargetRecord, Verdict};
use crate::identity_cache::{HubEpoch, IdentityCache};

/// A cluster that modules get installed on. Cheap to clone; clones share connections, breaker and budgets.
#[derive(Clone)]
pub struct Target {
    transport: Arc<Transport>,
    place: Option<SecretKey>,
    agent: Agent,
    fence: Option<Arc<Fence>>,
    client: kube::Client,
    identity_cache: IdentityCache,
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
        let identity_cache = IdentityCache::new(Arc::clone(&transport), client.clone(), hub_epoch);
        Self { transport, place, agent, fence: None, client, identity_cache, grant: None }
    }

    /// Returns the client for calls and watches. Each call, its body included, is bounded by
    /// [`Limits`](crate::Limits); a watch is bounded by silence and event size. The client never retries and follows
    /// no redirect. [`classify`](crate::classify) turns its errors into a `TargetError`.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Returns the client for one component, which impersonates `account` if there is one.
    pub(crate) fn component_client(
        &self,
        component_uid: &str,
        account: Option<&ServiceAccount>,
        allowed: AllowedCalls,
    ) -> kube::Client {
        let caller = Caller::component(&self.agent, component_uid, account).limited_to(allowed);
        // Reads and dry runs change nothing, so they are not fenced.
        caller.client(&self.transport, self.guard().filter(|_| allowed == AllowedCalls::All))
    }

    /// Returns a client that refuses all calls but reads.
    pub(crate) fn reader(&self) -> kube::Client {
        Caller::operator(&self.agent).limited_to(AllowedCalls::Reads).client(&self.transport, None)
    }

    /// Returns the same target with a client whose writes `fence` has to admit one by one. A refused write fails with
    /// [`TargetError::Refused`].
    pub fn fenced(&self, fence: Fence) -> Self {
        let mut fenced = Self { fence: Some(Arc::new(fence)), ..self.clone() };
        fenced.client = Caller::operator(&self.agent).client(&self.transport, fenced.guard());
        fenced
    }

    fn guard(&self) -> Option<(Arc<Fence>, IdentityCache)> {
        self.fence.clone().map(|fence| (fence, self.identity_cache.clone()))
    }

    /// Returns the location of the kubeconfig; `None` for the hub itself.
    pub fn key(&self) -> Option<&SecretKey> {
        self.place.as_ref()
    }

    /// Returns the same target, to be used only until `grant` is withdrawn.
    pub fn granted(&self, grant: Grant) -> Self {
        Self { grant: Some(grant), ..self.clone() }
    }

    /// Reports whether the access Secret changed since the target was created from it. The caller then has to get the
    /// target again.
    pub fn is_withdrawn(&self) -> bool {
        self.grant.as_ref().is_some_and(Grant::is_withdrawn)
    }

    /// Reports whether this is the hub itself.
    pub fn is_local(&self) -> bool {
        self.place.is_none()
    }

    /// Reports whether calls are sent, as opposed to refused with [`TargetError::Suspended`].
    pub fn calls_pass(&self) -> bool {
        self.transport.health().borrow().calls_pass
    }

    /// Returns the time since the last answer, and why calls are refused, if they are.
    pub fn contact(&self) -> Contact {
        self.transport.contact()
    }

    /// Waits until calls pass; returns at once if they do.
    pub async fn healthy_again(&self) {
        let mut health = self.transport.health();
        // `self` owns the sender, so the wait cannot fail.
        health.wait_for(|health: &Health| health.calls_pass).await.ok();
    }

    /// Returns a number that grows whenever another server may answer than before: after an outage, after a broken
    /// connection, and when the server presents another certificate.
    pub fn connection(&self) -> u64 {
        self.transport.connection()
    }

    /// Returns the identity of the cluster and its stamp, read from the target once for each access Secret version
    /// and [`Target::connection`].
    ///
    /// Errors: any [`TargetError`]. A stamp that may not be read is an error, not a missing stamp.
    pub async fn identify(&self) -> Result<LiveIdentity, TargetError> {
        self.identity_cache.read_within(Duration::MAX).await
    }

    /// Returns the same as [`Target::identify`], from a new read.
    pub async fn identify_anew(&self) -> Result<LiveIdentity, TargetError> {
        self.identity_cache.read_within(Duration::ZERO).await
    }

    /// Returns the verdict on `found` for the claim of `fence`. Reads the record of the hub again only if the
    /// target's stamp is later than the record that was last read.
    ///
    /// Errors: [`TargetError::Unconfirmed`] if the hub's record cannot be read.
    pub async fn judge(&self, fence: &Fence, found: &LiveIdentity) -> Result<Verdict, TargetError> {
        fence.judge(&self.identity_cache, found).await
    }

    /// Returns the error of a verdict that forbids writes. The next [`Target::identify`] reads the target again,
    /// since the conflict may have been resolved.
    pub async fn refuse(&self, verdict: Verdict) -> TargetError {
        self.identity_cache.refuse(verdict).await
    }

    /// Caches a record that was read from the hub, for later verdicts.
    pub fn set_hub_record(&self, recorded: TargetRecord) {
        self.identity_cache.set_hub_record(recorded);
    }

    /// Writes `stamp` to the target, if the stamp there is still the one in `over`.
    ///
    /// Errors: 409 if another client wrote the stamp since (read it again with `Target::identify_anew`); 404 if the
    /// namespace [`STAMP_NAMESPACE`](crate::STAMP_NAMESPACE) is missing, which the caller has to ensure.
    pub async fn put_stamp(&self, stamp: &Stamp, over: &LiveIdentity) -> Result<(), TargetError> {
        self.identity_cache.put_stamp(stamp, over).await
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
        target.set_hub_record(TargetRecord { epoch: 3, ..TargetRecord::default() });
        assert_eq!(target.identity_cache.hub_record().map(|recorded| recorded.epoch), Some(3));
        targets.invalidate_hub_records();
        assert_eq!(target.identity_cache.hub_record(), None);
        target.set_hub_record(TargetRecord { epoch: 4, ..TargetRecord::default() });
        assert_eq!(target.identity_cache.hub_record().map(|recorded| recorded.epoch), Some(4));
    }
}
