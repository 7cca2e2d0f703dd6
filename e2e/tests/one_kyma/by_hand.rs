//! A module that the target's user installed with kubectl: it is taken over when it is enabled, never downgraded,
//! and left alone by all operators while it is not enabled.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use e2e::catalogue;
use e2e::fleet::LANTERN;
use e2e::landscape::{HUB_NAMESPACE, Landscape, TARGET_NAMESPACE, apply_all, asks};
use e2e::wait::{self, has_condition};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, Kyma, Reason, labels, names};
use serde_json::{Value, json};
use testbed::{AuditEvent, AuditMark};

use crate::{create, is, kymas};

const KYMA: &str = "workshop";
/// The user's field manager.
const USER: &str = "kubectl";
const OPERATORS: [&str; 3] = ["kyma-operator", "helm-component", "release-meta-syncer"];

/// Objects that a user applies with `kubectl apply -f`.
struct UserManifests {
    manifest: String,
    resource: String,
}

struct Scenario {
    hub: Client,
    target: Client,
}

pub(crate) async fn run(landscape: &mut Landscape) -> Result<()> {
    let scenario = Scenario { hub: landscape.hub().client()?, target: landscape.targets()[0].client()? };
    publish(landscape).await?;
    create(landscape, KYMA, &landscape.targets()[0]).await?;
    scenario.an_unknown_version_keeps_running().await.context("unknown")?;
    scenario.a_newer_version_keeps_running(landscape).await.context("newer")?;
    scenario.it_is_taken_over_once_the_channel_reaches_it().await.context("taken over")?;
    scenario.an_upgrade_by_hand_of_a_managed_module_stays(landscape).await.context("upgraded by hand")?;
    Box::pin(scenario.ignored_it_stays(landscape)).await.context("ignored")?;
    scenario.it_is_installed_by_hand_again().await.context("by hand again")?;
    scenario.it_stays_unchanged(landscape).await.context("left alone")
}

/// Returns the manifest of module lantern with the operator's image of this version.
fn manifest(version: &str) -> Result<String> {
    let file = catalogue::module_directory("lantern/1.0.0").join("manifest.yaml");
    Ok(std::fs::read_to_string(file)?
        .replace("lantern-operator:1.0.0", &format!("lantern-operator:{version}")))
}

async fn publish(landscape: &Landscape) -> Result<()> {
    catalogue::push(landscape, &catalogue::module_directory("lantern/1.0.0")).await?;
    let directory = catalogue::module_directory("lantern/1.0.0");
    let text = std::fs::read_to_string(directory.join("module-config.yaml"))?;
    let mut config: Value = serde_saphyr::from_str(&text)?;
    config["version"] = "2.1.0".into();
    let resource = std::fs::read_to_string(directory.join("default-cr.yaml"))?;
    let files = [("manifest.yaml", manifest("2.1.0")?), ("default-cr.yaml", resource)];
    catalogue::push_files(landscape, LANTERN, &config, &files).await?;
    catalogue::assign(landscape.hub().client()?, LANTERN, "1.0.0").await
}

impl UserManifests {
    fn of(version: &str, colour: &str) -> Result<Self> {
        let file = catalogue::module_directory("lantern/1.0.0").join("default-cr.yaml");
        let resource = std::fs::read_to_string(file)?.replace("amber", colour);
        Ok(Self { manifest: manifest(version)?, resource })
    }

    async fn apply(&self, target: &Client) -> Result<()> {
        apply_all(target, USER, &self.manifest).await?;
        let crd = "lanterns.demo.example.com";
        testbed::crd_is_served(target, crd).await?;
        apply_all(target, USER, &self.resource).await
    }

    fn objects(&self) -> Result<Vec<DynamicObject>> {
        let mut all: Vec<DynamicObject> = serde_saphyr::from_multiple(&self.manifest)?;
        all.push(serde_saphyr::from_str(&self.resource)?);
        Ok(all)
    }
}

impl Scenario {
    /// Applies the image tag `main`, which cannot be compared with the channel's version: the hub reports
    /// VersionUnknown, and the image stays.
    async fn an_unknown_version_keeps_running(&self) -> Result<()> {
        UserManifests::of("main", "red")?.apply(&self.target).await?;
        self.choose(&json!([{"name": LANTERN}])).await?;
        let says = |kyma: &Value| has_condition(kyma, "Ready", "False", Reason::VersionUnknown);
        self.until("the hub says that the version is not known", says).await?;
        ensure!(self.image().await?.ends_with(":main"), "{}", self.image().await?);
        Ok(())
    }

    /// Applies 2.0.0 while the channel has 1.0.0: no operator writes to the module's objects, and hub and target
    /// report why.
    async fn a_newer_version_keeps_running(&self, landscape: &Landscape) -> Result<()> {
        let by_hand = UserManifests::of("2.0.0", "red")?;
        let mark = landscape.targets()[0].audit()?.mark()?;
        by_hand.apply(&self.target).await?;
        let says = |kyma: &Value| {
            let line = &kyma["status"]["modules"][0];
            let message = line["message"].as_str().unwrap_or_default();
            has_condition(kyma, "Ready", "False", Reason::DowngradeRefused)
                && line["state"] == "Warning"
                && message.contains("a user installed version 2.0.0")
        };
        self.until("the hub says why 2.0.0 stays", says).await?;
        wait::until("so does the target", self.shown(), "default", |kyma: Option<&Kyma>| is(kyma, says))
            .await?;
        landscape.until_at_rest().await?;
        let component = self.components().get(&names::component_name(KYMA, LANTERN)).await?;
        let running = component.status.and_then(|status| status.version);
        ensure!(running.is_none(), "it claims that {running:?} runs");
        self.no_operator_wrote(&by_hand, landscape, mark).await
    }

    /// Moves the channel to 2.1.0: the module is upgraded in place, and the user's own resource is not written to.
    async fn it_is_taken_over_once_the_channel_reaches_it(&self) -> Result<()> {
        let by_hand = UserManifests::of("2.0.0", "red")?;
        let before = self.uids(&by_hand).await?;
        let resource = self.get(by_hand.objects()?.last().context("the default CR")?).await?;
        catalogue::assign(self.hub.clone(), LANTERN, "2.1.0").await?;
        self.until("2.1.0 is Ready", |kyma| {
            let line = &kyma["status"]["modules"][0];
            line["state"] == "Ready" && line["version"] == "2.1.0" && kyma["status"]["state"] == "Ready"
        })
        .await?;
        ensure!(self.uids(&by_hand).await? == before, "objects were made anew");
        ensure!(self.image().await?.ends_with(":2.1.0"), "{}", self.image().await?);
        let kept = self.get(&resource).await?;
        ensure!(kept.resource_version() == resource.resource_version(), "the user's resource was written to");
        Ok(())
    }

    /// Applies 2.2.0 over the installed 2.1.0 as the user: the hub reports it, and 2.2.0 stays, since operators do
    /// not downgrade. Then goes back to 2.1.0.
    async fn an_upgrade_by_hand_of_a_managed_module_stays(&self, landscape: &Landscape) -> Result<()> {
        UserManifests::of("2.2.0", "red")?.apply(&self.target).await?;
        self.until("the hub says why 2.2.0 stays", |kyma| {
            let message = kyma["status"]["modules"][0]["message"].as_str().unwrap_or_default();
            has_condition(kyma, "Ready", "False", Reason::DowngradeRefused)
                && message.contains("a user installed version 2.2.0")
        })
        .await?;
        landscape.until_at_rest().await?;
        ensure!(self.image().await?.ends_with(":2.2.0"), "{}", self.image().await?);
        UserManifests::of("2.1.0", "red")?.apply(&self.target).await?;
        self.until("2.1.0 is Ready again", |kyma| kyma["status"]["state"] == "Ready").await
    }

    /// Disables the module with policy Ignore while no operator runs: the component is removed, and no object of
    /// the module is written to.
    async fn ignored_it_stays(&self, landscape: &mut Landscape) -> Result<()> {
        let by_hand = UserManifests::of("2.1.0", "red")?;
        self.choose(&json!([{"name": LANTERN, "customResourcePolicy": "Ignore"}])).await?;
        let name = names::component_name(KYMA, LANTERN);
        let ignores = |component: Option<&HelmComponent>| {
            component.is_some_and(|held| held.spec.resource_policy == kyma_api::ResourcePolicy::Ignore)
        };
        wait::until("the policy is known", self.components(), &name, ignores).await?;
        landscape.until_at_rest().await?;
        let before = self.states(&by_hand).await?;
        for operator in OPERATORS {
            landscape.kill(operator)?;
        }
        self.choose(&json!([])).await?;
        for operator in OPERATORS {
            landscape.start_again(operator).await?;
        }
        let is_gone = |component: Option<&HelmComponent>| component.is_none();
        wait::until("the component goes", self.components(), &name, is_gone).await?;
        self.until("no module is left", |kyma| {
            kyma["status"]["modules"].as_array().is_none_or(Vec::is_empty)
                && kyma["status"]["state"] == "Ready"
        })
        .await?;
        landscape.until_at_rest().await?;
        ensure!(self.states(&by_hand).await? == before, "something was written to");
        Ok(())
    }

    /// Deletes part of the remaining objects as the user, and applies another version over the rest, so that some
    /// objects carry the operators' owner label.
    async fn it_is_installed_by_hand_again(&self) -> Result<()> {
        let by_hand = UserManifests::of("1.0.0", "blue")?;
        for object in
            by_hand.objects()?.iter().filter(|object| object.types.as_ref().unwrap().kind == "ConfigMap")
        {
            let (api, name) = self.api(object).await?;
            api.delete(&name, &DeleteParams::default()).await?;
        }
        by_hand.apply(&self.target).await?;
        let objects = by_hand.objects()?;
        let mut marked = 0;
        for object in &objects {
            marked += usize::from(self.get(object).await?.labels().contains_key(labels::OWNER));
        }
        ensure!(marked > 0 && marked < objects.len(), "{marked} of {} bear our label", objects.len());
        Ok(())
    }

    /// Checks that no operator writes on the target, through a resync and a restart of every operator.
    async fn it_stays_unchanged(&self, landscape: &mut Landscape) -> Result<()> {
        let by_hand = UserManifests::of("1.0.0", "blue")?;
        landscape.until_at_rest().await?;
        let mark = landscape.targets()[0].audit()?.mark()?;
        let before = self.states(&by_hand).await?;
        self.until_resynced(landscape, mark).await?;
        for operator in OPERATORS {
            landscape.kill_and_restart(operator).await?;
        }
        landscape.until_at_rest().await?;
        ensure!(self.states(&by_hand).await? == before, "something was written to");
        ensure!(self.image().await?.ends_with(":1.0.0"), "{}", self.image().await?);
        let events = landscape.targets()[0].audit()?.since(mark)?;
        let written: Vec<&AuditEvent> =
            events.iter().filter(|event| asks(event) && event.is_write()).collect();
        ensure!(written.is_empty(), "written on the target: {written:#?}");
        Ok(())
    }

    /// Waits until an operator sends a request to the target although nothing changed.
    async fn until_resynced(&self, landscape: &Landscape, mark: AuditMark) -> Result<()> {
        testbed::until("a resync looks at the target", std::time::Duration::from_mins(1), || async {
            let events = landscape.targets()[0].audit()?.since(mark)?;
            Ok(events.iter().any(asks).then_some(()))
        })
        .await
    }

    /// Checks that no operator wrote to an object of the module since the mark.
    async fn no_operator_wrote(
        &self,
        by_hand: &UserManifests,
        landscape: &Landscape,
        mark: AuditMark,
    ) -> Result<()> {
        let names: Vec<String> = by_hand.objects()?.iter().map(ResourceExt::name_any).collect();
        let events = landscape.targets()[0].audit()?.since(mark)?;
        let concerns = |event: &&AuditEvent| names.contains(&event.name) && event.resource != "kymas";
        let written: Vec<&AuditEvent> = events
            .iter()
            .filter(|event| asks(event) && event.is_write() && !event.resource.starts_with("kymas"))
            .filter(concerns)
            .collect();
        ensure!(written.is_empty(), "written: {written:#?}");
        ensure!(self.image().await?.ends_with(":2.0.0"), "{}", self.image().await?);
        Ok(())
    }

    fn components(&self) -> Api<HelmComponent> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }

    /// Returns the API for the target's Kyma, which its user sees.
    fn shown(&self) -> Api<Kyma> {
        Api::namespaced(self.target.clone(), TARGET_NAMESPACE)
    }

    async fn choose(&self, modules: &Value) -> Result<()> {
        let choice = Patch::Merge(json!({"spec": {"modules": modules}}));
        self.shown().patch("default", &PatchParams::default(), &choice).await?;
        Ok(())
    }

    async fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
        wait::until(what, kymas(&self.hub), KYMA, |kyma: Option<&Kyma>| is(kyma, &wanted)).await?;
        Ok(())
    }

    async fn image(&self) -> Result<String> {
        let deployments: Api<k8s_openapi::api::apps::v1::Deployment> =
            Api::namespaced(self.target.clone(), TARGET_NAMESPACE);
        let found = serde_json::to_value(deployments.get("lantern-operator").await?)?;
        Ok(found["spec"]["template"]["spec"]["containers"][0]["image"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    async fn api(&self, object: &DynamicObject) -> Result<(Api<DynamicObject>, String)> {
        let types = object.types.as_ref().context("a kind")?;
        let (resource, capabilities) = pinned_kind(&self.target, &GroupVersionKind::try_from(types)?).await?;
        let api = match (capabilities.scope, object.namespace()) {
            (Scope::Namespaced, Some(namespace)) => {
                Api::namespaced_with(self.target.clone(), &namespace, &resource)
            }
            _ => Api::all_with(self.target.clone(), &resource),
        };
        Ok((api, object.name_any()))
    }

    async fn get(&self, object: &DynamicObject) -> Result<DynamicObject> {
        let (api, name) = self.api(object).await?;
        Ok(api.get(&name).await?)
    }

    /// Returns the uids of the module's objects, its default CR included, by kind and name.
    async fn uids(&self, by_hand: &UserManifests) -> Result<BTreeMap<String, Option<String>>> {
        Ok(self.states(by_hand).await?.into_iter().map(|(name, (uid, _))| (name, uid)).collect())
    }

    /// Returns uids and versions of the module's objects. The version is the resourceVersion, or the generation for
    /// Deployments, whose status Kubernetes writes.
    async fn states(
        &self,
        by_hand: &UserManifests,
    ) -> Result<BTreeMap<String, (Option<String>, Option<String>)>> {
        let mut states = BTreeMap::new();
        for object in by_hand.objects()? {
            let kind = object.types.as_ref().context("a kind")?.kind.clone();
            let found = self.get(&object).await?;
            let generation = found.metadata.generation.map(|generation| generation.to_string());
            let state = if kind == "Deployment" { generation } else { found.resource_version() };
            states.insert(format!("{kind} {}", object.name_any()), (found.uid(), state));
        }
        Ok(states)
    }
}
