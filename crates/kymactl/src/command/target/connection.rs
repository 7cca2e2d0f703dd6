//! Connection to a Kyma's cluster as the operators make it.

use clap::Args;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt, api::ListParams};
use kyma_api::{Kyma, SecretKeyRef, labels, names};
use kyma_controller::{
    Access, AccessArgs, Failure, KymaAccess, Operator, claim_of, hub_addresses, hub_uid, target_record,
    verdict_failure,
};
use kyma_targets::{
    AccessPolicy, Claim, Fence, Limits, LiveIdentity, Target, TargetRecord, Targets, Verdict, compare,
};

use crate::{
    error::Error,
    hub::{GlobalFlags, USER_AGENT},
    output,
};

/// Operator whose version is compared with those in the stamp.
const OPERATOR: Operator = Operator { name: "kyma-operator", version: env!("CARGO_PKG_VERSION") };

/// Maximum number of cached connections.
const MAX_CACHED_CONNECTIONS: usize = 64;

/// Selects the hub, and limits its access Secrets.
#[derive(Args)]
pub(crate) struct ConnectionArgs {
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    pub(crate) hub: GlobalFlags,
}

/// The hub, with the connections to its targets.
pub(crate) struct Hub {
    client: Client,
    namespace: String,
    access: Access,
    uid: String,
}

/// The Kyma from which a target is opened.
pub(crate) struct Start {
    pub(crate) hub: Client,
    pub(crate) kyma: Kyma,
    access: Access,
    hub_uid: String,
}

impl ConnectionArgs {
    /// Connects to the hub.
    pub(crate) async fn hub(&self) -> Result<Hub, Error> {
        let config = self.hub.config().await?;
        let policy =
            AccessPolicy { hub_addresses: hub_addresses(&config).await, ..self.access.clone().policy()? };
        let client = kyma_targets::client_from(config)?;
        let namespace = self.hub.namespace().to_owned();
        let targets = Targets::new(policy, Limits::default(), USER_AGENT, "a person", MAX_CACHED_CONNECTIONS);
        let access = Access::new(client.clone(), &namespace, targets);
        let uid = hub_uid(&client).await?;
        Ok(Hub { client, namespace, access, uid })
    }
}

impl Hub {
    /// Reads the Kyma of this name.
    pub(crate) async fn start(&self, kyma: &str) -> Result<Start, Error> {
        let found = self.kymas().get_opt(kyma).await?;
        let missing = || Error::no_kyma(kyma, &self.namespace);
        found.map(|kyma| self.start_at(kyma)).ok_or_else(missing)
    }

    /// Lists all Kymas, or those with these labels.
    pub(crate) async fn starts(&self, selector: Option<&str>) -> Result<Vec<Start>, Error> {
        let parameters =
            ListParams { label_selector: selector.map(ToOwned::to_owned), ..ListParams::default() };
        let found = self.kymas().list(&parameters).await?;
        if found.items.is_empty() {
            output::remark(&format!("No Kymas found in {} namespace.", self.namespace));
        }
        Ok(found.items.into_iter().map(|kyma| self.start_at(kyma)).collect())
    }

    fn start_at(&self, kyma: Kyma) -> Start {
        Start { hub: self.client.clone(), kyma, access: self.access.clone(), hub_uid: self.uid.clone() }
    }

    fn kymas(&self) -> Api<Kyma> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

impl Start {
    /// Returns the access Secret of the target.
    pub(crate) async fn secret(&self) -> Result<SecretKeyRef, Failure> {
        self.kyma_access().await?.chosen
    }

    /// Returns the name of any Secret that the Kyma names or that is labelled for it.
    pub(crate) async fn any_secret(&self) -> Result<Option<String>, Failure> {
        Ok(self.kyma_access().await?.secrets.into_iter().next())
    }

    /// Returns the hub's uid.
    pub(crate) fn hub_uid(&self) -> &str {
        &self.hub_uid
    }

    async fn kyma_access(&self) -> Result<KymaAccess, Failure> {
        let name = self.kyma.name_any();
        let namespace = self.kyma.namespace().unwrap_or_default();
        let secrets: Api<Secret> = Api::namespaced(self.hub.clone(), &namespace);
        let labelled = ListParams::default().labels(&names::label_selector(labels::KYMA_NAME, &name));
        let listed = secrets.list_metadata(&labelled).await;
        let listed = listed.map_err(|error| Failure::hub("list access Secrets", &error))?;
        Ok(KymaAccess::of(&self.kyma, listed.items.iter().map(ResourceExt::name_any).collect()))
    }

    /// Connects to the cluster of the Secret.
    pub(crate) async fn target(&self, secret: &SecretKeyRef) -> Result<Target, Failure> {
        self.access.target(secret).await
    }

    /// Returns the cluster after verifying that it is the Kyma's or has no owner. Writes check that this hub still
    /// has the latest fencing generation.
    pub(crate) async fn proven(&self, secret: &SecretKeyRef) -> Result<(Target, Verdict), Failure> {
        let target = self.target(secret).await?;
        let found = target.identify().await?;
        let (claim, recorded) = self.sides();
        let verdict = compare(&claim, &recorded, &found);
        if !matches!(verdict, Verdict::Match { .. } | Verdict::FirstContact { .. }) {
            return Err(verdict_failure(&verdict));
        }
        // The hub's record was read just before. During a hand-over it stays, since all operators are halted.
        target.set_hub_record(recorded.clone());
        Ok((target.fenced(Fence { claim, recorded, ledger: None }), verdict))
    }

    /// Reads the Kyma again.
    pub(crate) async fn read_again(self) -> Result<Self, Error> {
        let namespace = self.kyma.namespace().unwrap_or_default();
        let kymas: Api<Kyma> = Api::namespaced(self.hub.clone(), &namespace);
        let kyma = kymas.get(&self.kyma.name_any()).await?;
        Ok(Self { kyma, ..self })
    }

    /// Returns the Kyma's claim and the hub's record for a comparison.
    pub(crate) fn sides(&self) -> (Claim, TargetRecord) {
        (claim_of(&self.kyma, &self.hub_uid, OPERATOR), target_record(&self.kyma))
    }
}

/// Returns the uid of the cluster if it is a valid one: other text of a target is not shown, since it could mislead.
pub(crate) fn uid_of(found: &LiveIdentity) -> Result<&str, Error> {
    let uid = found.target_uid.as_str();
    let is_uid = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    if uid.is_empty() || uid.len() > 64 || !uid.bytes().all(is_uid) {
        return Err(Error::input("the target", "its Namespace kube-system has an invalid uid"));
    }
    Ok(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_a_uid_is_shown() {
        let found = |uid: &str| LiveIdentity { target_uid: uid.to_owned(), stamp: None, stamp_version: None };
        assert!(uid_of(&found("0b5cf3a0-9c1c-4d1f-8f37-5f7d1f0f2b11")).is_ok());
        for forged in ["", "all is well; type yes", "a\u{1b}[2J", &"a".repeat(65)] {
            assert!(uid_of(&found(forged)).is_err(), "{forged:?}");
        }
    }
}
