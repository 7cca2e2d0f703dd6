//! Steps of the demo. Each acts as a user would, and waits for the operators' result.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::runtime::conditions::is_deleted;
use kube::{Api, Client, ResourceExt};
use kyma_api::{Kyma, State};
use serde_json::json;

use super::TARGET_NAMESPACE;
use crate::fleet::{Fleet, KYMAS, LANTERN};
use crate::landscape::Landscape;
use crate::remains::until_as_before;
use crate::snapshot::{self, Snapshot};
use crate::{catalogue, wait};

/// The Deployment of the module's operator.
const OPERATOR: &str = "lantern-operator";
/// The object on the target that is edited.
const EDITED_OBJECT: &str = "lantern-settings";

/// State shared by all steps.
pub struct Scenario<'a> {
    fleet: Fleet<'a>,
    say: &'a (dyn Fn(&str) + Sync),
    hub: Client,
    targets: Vec<Client>,
}

impl<'a> Scenario<'a> {
    /// Creates the scenario. Text for the user goes to `say`.
    ///
    /// # Errors
    /// A client cannot be created.
    pub fn new(landscape: &'a Landscape, say: &'a (dyn Fn(&str) + Sync)) -> Result<Self> {
        let targets = landscape.targets().iter().map(testbed::Cluster::client).collect::<Result<_>>()?;
        Ok(Self { fleet: Fleet::new(landscape)?, say, hub: landscape.hub().client()?, targets })
    }

    /// Pushes content and publishes the catalogue.
    ///
    /// # Errors
    /// The content cannot be pushed or published within the deadline.
    pub async fn publish(&self) -> Result<()> {
        self.fleet.publish().await
    }

    /// Creates the Kymas, and waits until all are Ready. Returns a snapshot of the second target before.
    ///
    /// # Errors
    /// A Kyma is not Ready within the deadline.
    pub async fn install(&self) -> Result<Snapshot> {
        let before = snapshot::take(&self.targets[1]).await?;
        self.fleet.apply().await?;
        for (name, target) in KYMAS.iter().zip(&self.targets) {
            self.fleet.until_installed(name).await?;
            self.until_image(target, "1.0.0").await?;
            let pier = deployments(target.clone()).get("harbour-pier").await?;
            let replicas = pier.status.and_then(|status| status.ready_replicas);
            ensure!(replicas == Some(3), "harbour must run with the replicas that its user asked for");
        }
        Ok(before)
    }

    /// Moves the channel to a new version, and waits until the targets are upgraded.
    ///
    /// # Errors
    /// A target is not upgraded within the deadline.
    pub async fn upgrade(&self) -> Result<()> {
        catalogue::assign(self.hub.clone(), LANTERN, "1.1.0").await?;
        for target in &self.targets {
            self.until_image(target, "1.1.0").await?;
        }
        for name in KYMAS {
            wait::until(
                &format!("{name} runs {LANTERN} 1.1.0"),
                self.fleet.kymas(),
                name,
                |kyma: Option<&Kyma>| {
                    kyma.is_some_and(|kyma| module(kyma, LANTERN) == Some(("1.1.0", State::Ready)))
                },
            )
            .await?;
        }
        Ok(())
    }

    /// Moves the channel back, and waits until the Kymas refuse the downgrade.
    ///
    /// # Errors
    /// A Kyma does not refuse it within the deadline.
    pub async fn refuse_downgrade(&self) -> Result<()> {
        catalogue::assign(self.hub.clone(), LANTERN, "1.0.0").await?;
        for (name, target) in KYMAS.iter().zip(&self.targets) {
            let what = format!("{name} refuses the downgrade");
            let refused = wait::until(&what, self.fleet.kymas(), name, |kyma: Option<&Kyma>| {
                kyma.is_some_and(|kyma| {
                    module(kyma, LANTERN) == Some(("1.1.0", State::Warning))
                        && ready_reason(kyma) == Some("DowngradeRefused")
                })
            });
            let refused = refused.await?;
            let why = refused.as_ref().and_then(|kyma| message(kyma, LANTERN)).unwrap_or_default();
            (self.say)(&format!("    {name}: {why}"));
            self.until_image(target, "1.1.0").await?;
        }
        catalogue::assign(self.hub.clone(), LANTERN, "1.1.0").await?;
        for name in KYMAS {
            self.fleet.until_state(name, State::Ready).await?;
        }
        Ok(())
    }

    /// Edits an object on a target and waits until the operator corrects it.
    ///
    /// # Errors
    /// If it is not corrected within the deadline.
    pub async fn correct_drift(&self) -> Result<()> {
        let settings: Api<ConfigMap> = Api::namespaced(self.targets[0].clone(), TARGET_NAMESPACE);
        let edit = Patch::Merge(json!({"data": {"brightness": "5"}}));
        settings.patch(EDITED_OBJECT, &PatchParams::default(), &edit).await?;
        wait::until(
            "the edited object is put right",
            settings,
            EDITED_OBJECT,
            |found: Option<&ConfigMap>| {
                let data = found.and_then(|found| found.data.as_ref());
                data.and_then(|data| data.get("brightness")).is_some_and(|brightness| brightness == "80")
            },
        )
        .await?;
        Ok(())
    }

    /// Disables a module in use: the removal waits until the user's object is deleted.
    ///
    /// # Errors
    /// A step does not happen within the deadline.
    pub async fn disable_in_use(&self) -> Result<()> {
        let target = self.targets[0].clone();
        let lanterns = lanterns(target.clone(), "default");
        lanterns.create(&PostParams::default(), &lantern("mine")).await?;
        self.select(&target, &["harbour", "greeting"]).await?;
        let blocked =
            wait::until("the removal is blocked", self.fleet.kymas(), KYMAS[0], |kyma: Option<&Kyma>| {
                kyma.is_some_and(|kyma| {
                    message(kyma, LANTERN).is_some_and(|message| message.contains("mine"))
                })
            })
            .await?;
        let why = blocked.as_ref().and_then(|kyma| message(kyma, LANTERN)).unwrap_or_default();
        (self.say)(&format!("    {}: {why}", KYMAS[0]));
        ensure!(
            deployments(target.clone()).get_opt(OPERATOR).await?.is_some(),
            "the module's operator must run while it is in use"
        );
        lanterns.delete("mine", &DeleteParams::default()).await?;
        wait::until(
            "the module is gone from the status",
            self.fleet.kymas(),
            KYMAS[0],
            |kyma: Option<&Kyma>| kyma.is_some_and(|kyma| module(kyma, LANTERN).is_none()),
        )
        .await?;
        ensure!(
            deployments(target.clone()).get_opt(OPERATOR).await?.is_none(),
            "the module's operator must be gone"
        );
        let crds: Api<CustomResourceDefinition> = Api::all(target);
        ensure!(crds.get_opt("lanterns.demo.example.com").await?.is_none(), "the module's CRD must be gone");
        Ok(())
    }

    /// Deletes a Kyma with everything that it installed, and waits until the second target is as `before`.
    ///
    /// # Errors
    /// The target is not as before within the deadline.
    pub async fn delete_kyma(&self, before: &Snapshot) -> Result<()> {
        let found = self.fleet.kymas().get(KYMAS[1]).await?;
        self.fleet.kymas().delete(KYMAS[1], &DeleteParams::default()).await?;
        let uid = found.uid().context("a stored Kyma has a uid")?;
        wait::until("the Kyma is gone", self.fleet.kymas(), KYMAS[1], is_deleted(&uid)).await?;
        for kept in until_as_before(&self.targets[1], before).await? {
            (self.say)(&format!("    stays: {kept}"));
        }
        Ok(())
    }

    async fn until_image(&self, target: &Client, version: &str) -> Result<()> {
        let tag = format!(":{version}");
        wait::until(
            &format!("the operator runs {version}"),
            deployments(target.clone()),
            OPERATOR,
            |found: Option<&Deployment>| {
                let spec =
                    found.and_then(|found| found.spec.as_ref()).and_then(|spec| spec.template.spec.as_ref());
                let images = spec
                    .into_iter()
                    .flat_map(|spec| &spec.containers)
                    .filter_map(|container| container.image.as_ref());
                images.into_iter().any(|image| image.ends_with(&tag))
            },
        )
        .await?;
        Ok(())
    }

    /// Selects modules in the target's Kyma, as its user.
    async fn select(&self, target: &Client, modules: &[&str]) -> Result<()> {
        let kymas: Api<Kyma> = Api::namespaced(target.clone(), TARGET_NAMESPACE);
        let modules: Vec<_> = modules.iter().map(|name| json!({"name": name})).collect();
        kymas
            .patch("default", &PatchParams::default(), &Patch::Merge(json!({"spec": {"modules": modules}})))
            .await?;
        Ok(())
    }
}

fn module<'a>(kyma: &'a Kyma, name: &str) -> Option<(&'a str, State)> {
    let mut modules = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
    let found = modules.find(|module| module.name == name)?;
    Some((found.version.as_deref().unwrap_or_default(), found.state))
}

fn message<'a>(kyma: &'a Kyma, name: &str) -> Option<&'a str> {
    let mut modules = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
    modules.find(|module| module.name == name)?.message.as_deref()
}

fn ready_reason(kyma: &Kyma) -> Option<&str> {
    let mut conditions = kyma.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == "Ready").map(|condition| condition.reason.as_str())
}

fn deployments(target: Client) -> Api<Deployment> {
    Api::namespaced(target, TARGET_NAMESPACE)
}

fn lanterns(target: Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("demo.example.com", "v1", "Lantern"));
    Api::namespaced_with(target, namespace, &resource)
}

fn lantern(name: &str) -> DynamicObject {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("demo.example.com", "v1", "Lantern"));
    DynamicObject::new(name, &resource).data(json!({"spec": {"colour": "green"}}))
}
