//! Stages in the life of a Kyma: what the user does, and the expected result.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::fleet::kyma;
use e2e::landscape::{HUB_NAMESPACE, TARGET_NAMESPACE};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, Kyma, KymaStatus, State, condition};
use serde_json::{Value, json};
use testbed::until_or_why;

/// Field manager of the user.
const USER: &str = "user";

/// All stages, in order.
pub(crate) const STAGES: [Stage; 6] =
    [Stage::Install, Stage::Upgrade, Stage::Unmanage, Stage::Manage, Stage::Disable, Stage::Delete];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// A Kyma with three modules is created.
    Install,
    /// The channel gets another version of one module.
    Upgrade,
    /// The user sets a module to unmanaged.
    Unmanage,
    /// The user sets it to managed again.
    Manage,
    /// The user disables a module.
    Disable,
    /// The Kyma is deleted.
    Delete,
}

/// A Kyma with its clusters.
pub(crate) struct TestKyma {
    pub(crate) kyma: String,
    pub(crate) hub: Client,
    pub(crate) target: Client,
    pub(crate) secret: Secret,
}

impl Stage {
    /// Returns modules with version and state after the stage, or `None` if the Kyma must be gone.
    fn end(self) -> Option<BTreeSet<(String, String, State)>> {
        let harbour = if self == Self::Unmanage { State::Unmanaged } else { State::Ready };
        let lantern = if self == Self::Install { "1.0.0" } else { "1.1.0" };
        let mut modules = vec![("greeting", "1.0.0", State::Ready), ("harbour", "2.0.0", harbour)];
        match self {
            Self::Delete => return None,
            Self::Disable => {}
            _ => modules.push(("lantern", lantern, State::Ready)),
        }
        Some(
            modules
                .into_iter()
                .map(|(name, version, state)| (name.to_owned(), version.to_owned(), state))
                .collect(),
        )
    }
}

impl TestKyma {
    /// Does what the user does in the stage. The channel's version is set for all Kymas at once in `World::round`.
    pub(crate) async fn act(&self, stage: Stage) -> Result<()> {
        match stage {
            Stage::Install => {
                let secrets: Api<Secret> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
                secrets.create(&PostParams::default(), &self.secret).await?;
                self.kymas().create(&PostParams::default(), &kyma(&self.kyma)?).await?;
            }
            Stage::Upgrade => {}
            Stage::Unmanage => {
                self.choose(|module| module["managed"] = (module["name"] != "harbour").into()).await?;
            }
            Stage::Manage => self.choose(|module| module["managed"] = true.into()).await?,
            Stage::Disable => {
                self.choose(|module| {
                    if module["name"] == "lantern" {
                        *module = Value::Null;
                    }
                })
                .await?;
            }
            Stage::Delete => {
                self.kymas().delete(&self.kyma, &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    /// Waits until the Kyma reports the expected result of the stage, on hub and target.
    pub(crate) async fn until_done(&self, stage: Stage, deadline: Duration) -> Result<()> {
        let expected = stage.end();
        until_or_why(&format!("{stage:?} of {}", self.kyma), deadline, || async {
            let found = self.kymas().get_opt(&self.kyma).await?;
            let (Some(found), Some(expected)) = (&found, &expected) else {
                let is_done = found.is_none() && expected.is_none();
                return Ok(if is_done {
                    Ok(())
                } else {
                    Err(format!("{:?}", found.map(|kyma| kyma.status)))
                });
            };
            let status = found.status.clone().unwrap_or_default();
            // kyma-operator writes the status on the hub first, and release-meta-syncer works by itself.
            let is_done = is_end(&status, expected)
                && has_catalogue(&status)
                && is_end(&Box::pin(self.target_status()).await?, expected);
            Ok(if is_done { Ok(()) } else { Err(self.progress(&status).await?) })
        })
        .await
    }

    /// Returns the status of the target's Kyma.
    async fn target_status(&self) -> Result<KymaStatus> {
        let kymas: Api<Kyma> = Api::namespaced(self.target.clone(), TARGET_NAMESPACE);
        Ok(kymas.get_opt("default").await?.and_then(|kyma| kyma.status).unwrap_or_default())
    }

    /// Returns the state of Kyma, components and Deployments, one line each.
    async fn progress(&self, status: &KymaStatus) -> Result<String> {
        let components: Api<HelmComponent> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        let deployments: Api<Deployment> = Api::namespaced(self.target.clone(), TARGET_NAMESPACE);
        let mut lines = vec![format!("\n{:?} {:?}", status.state, status.conditions)];
        for found in components.list(&ListParams::default()).await?.items {
            let name = found.name_any();
            lines.push(format!("{name}: {:?}", found.status.and_then(|status| status.conditions)));
        }
        for found in deployments.list(&ListParams::default()).await?.items {
            lines.push(format!("{}: {:?}", found.name_any(), found.status));
        }
        Ok(lines.join("\n"))
    }

    /// Returns when the Kyma became Ready, by the clock of the reporting operator.
    pub(crate) async fn ready_since(&self) -> Result<Timestamp> {
        let status = self.kymas().get(&self.kyma).await?.status.unwrap_or_default();
        let ready = condition::get(status.conditions.as_deref().unwrap_or_default(), condition::types::READY);
        Ok(ready.context("no condition Ready")?.last_transition_time.0)
    }

    /// Deletes the access Secret, once the Kyma is gone.
    pub(crate) async fn delete_access_secret(&self) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        let name = self.secret.metadata.name.as_deref().context("no name")?;
        secrets.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    fn kymas(&self) -> Api<Kyma> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }

    /// Edits each module in the target's Kyma; entries set to null are removed.
    async fn choose(&self, edit: impl Fn(&mut Value)) -> Result<()> {
        let kymas: Api<Kyma> = Api::namespaced(self.target.clone(), TARGET_NAMESPACE);
        let modules = kymas.get("default").await?.spec.modules.unwrap_or_default();
        let mut chosen: Vec<Value> = modules.iter().map(|module| json!(module)).collect();
        chosen.iter_mut().for_each(edit);
        chosen.retain(|module| !module.is_null());
        let params = PatchParams { field_manager: Some(USER.to_owned()), ..PatchParams::default() };
        kymas.patch("default", &params, &Patch::Merge(json!({"spec": {"modules": chosen}}))).await?;
        Ok(())
    }
}

/// Reports whether the Kyma is Ready with exactly these modules, versions and states.
fn is_end(status: &KymaStatus, expected: &BTreeSet<(String, String, State)>) -> bool {
    let modules = status.modules.iter().flatten();
    let modules: BTreeSet<_> = modules
        .map(|module| (module.name.clone(), module.version.clone().unwrap_or_default(), module.state))
        .collect();
    status.state == Some(State::Ready) && modules == *expected
}

/// Reports whether the target has the catalogue.
fn has_catalogue(status: &KymaStatus) -> bool {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let catalogue = condition::get(conditions, condition::types::MODULE_CATALOG);
    catalogue.is_some_and(|catalogue| catalogue.status == "True")
}
