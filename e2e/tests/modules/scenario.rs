//! Enables, upgrades and disables all modules on one Kyma.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::inputs::modules::{Module, Release};
use e2e::landscape::{HUB_NAMESPACE, Landscape, TARGET_NAMESPACE};
use e2e::remains::until_as_before;
use e2e::snapshot::{self, Difference, Snapshot};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kyma_api::condition::{self, types};
use kyma_api::{Kyma, ModuleReleaseMeta, ModuleStatus, ModuleTemplate, State};
use serde_json::{Value, json};
use testbed::{until, until_or_why};

/// Name of the Kyma on the hub.
pub(crate) const KYMA: &str = "everything";
/// The channel at the start, and the one with the newest versions.
const CHANNELS: [&str; 2] = ["regular", "fast"];
/// Deadline of a wait for all modules.
const DEADLINE: Duration = Duration::from_mins(2);
/// Field manager of the catalogue.
const FIELD_MANAGER: &str = "tests";

pub(crate) struct Scenario<'a> {
    landscape: &'a Landscape,
    pub(crate) modules: &'a [Module],
    hub: Client,
    pub(crate) target: Client,
}

impl<'a> Scenario<'a> {
    pub(crate) fn new(landscape: &'a Landscape, modules: &'a [Module]) -> Result<Self> {
        let (hub, target) = (landscape.hub().client()?, landscape.targets()[0].client()?);
        Ok(Self { landscape, modules, hub, target })
    }

    /// Pushes every release, and offers the earlier one in one channel and the newest in the other.
    pub(crate) async fn publish(&self) -> Result<()> {
        for module in self.modules {
            for release in module.previous.iter().chain([&module.current]) {
                let template = self.push(module, release).await?;
                let name = template.name_any();
                let templates: Api<ModuleTemplate> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
                let apply = PatchParams::apply(FIELD_MANAGER).force();
                templates.patch(&name, &apply, &Patch::Apply(&template)).await?;
            }
            self.offer(module).await?;
        }
        Ok(())
    }

    async fn push(&self, module: &Module, release: &Release) -> Result<ModuleTemplate> {
        let mut command = self.landscape.kymactl();
        command.args(["module", "push", "--insecure", "--registry", self.landscape.registry().address()]);
        // The release's file may lack the version or name another one; flags take precedence.
        if let Some(config) = release.config() {
            command.arg("--config").arg(config);
        }
        command.args(["--name", &module.component(), "--version", &release.version]);
        command.arg("--manifest").arg(release.directory.join("raw-manifest.yaml"));
        command.arg("--default-cr").arg(release.directory.join("default-cr.yaml"));
        let output = command.output().await.context("cannot start kymactl")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kymactl module push of {}: {stderr}", module.name);
        Ok(serde_saphyr::from_str(&String::from_utf8(output.stdout)?)?)
    }

    async fn offer(&self, module: &Module) -> Result<()> {
        let versions = [&module.first().version, &module.current.version];
        let channels = CHANNELS.iter().zip(versions);
        let channels: Vec<Value> =
            channels.map(|(channel, version)| json!({"channel": channel, "version": version})).collect();
        let meta = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2",
            "kind": "ModuleReleaseMeta",
            "metadata": {"name": module.name},
            "spec": {
                "moduleName": module.name,
                "ocmComponentName": module.component(),
                "channels": channels,
            },
        });
        let metas: Api<ModuleReleaseMeta> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        metas.patch(&module.name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&meta)).await?;
        Ok(())
    }

    /// Creates a Kyma without modules, waits until its target has the catalogue, and returns a snapshot of the
    /// target.
    pub(crate) async fn begin(&self) -> Result<Snapshot> {
        let secret = self.landscape.access_secret(KYMA, &self.landscape.targets()[0]).await?;
        let secrets: Api<Secret> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        secrets.create(&PostParams::default(), &secret).await?;
        let kyma: Kyma = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2",
            "kind": "Kyma",
            "metadata": {"name": KYMA},
            "spec": {"channel": CHANNELS[0]},
        }))?;
        self.kymas().create(&PostParams::default(), &kyma).await?;
        self.until_ready(&[]).await?;
        until("the target has the catalogue", DEADLINE, || async {
            let status = self.kymas().get(KYMA).await?.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            let condition = condition::get(&conditions, types::MODULE_CATALOG);
            Ok(condition.filter(|condition| condition.status == "True").map(drop))
        })
        .await?;
        snapshot::take(&self.target).await
    }

    /// Enables all modules on the target, and waits until they are Ready.
    pub(crate) async fn enable(&self) -> Result<()> {
        let modules: Vec<Value> = self.modules.iter().map(|module| json!({"name": module.name})).collect();
        self.choose(&json!({"spec": {"modules": modules}})).await?;
        let wanted: Vec<_> = self
            .modules
            .iter()
            .map(|module| (module.name.as_str(), module.first().version.as_str()))
            .collect();
        self.until_ready(&wanted).await
    }

    /// Changes to the other channel on the target, and waits until all modules are upgraded.
    pub(crate) async fn upgrade(&self) -> Result<()> {
        self.choose(&json!({"spec": {"channel": CHANNELS[1]}})).await?;
        let wanted: Vec<_> = self
            .modules
            .iter()
            .map(|module| (module.name.as_str(), module.current.version.as_str()))
            .collect();
        self.until_ready(&wanted).await
    }

    /// Disables all modules on the target and goes back to the first channel. Returns what stays of the modules.
    pub(crate) async fn disable(&self, before: &Snapshot) -> Result<Vec<Difference>> {
        self.choose(&json!({"spec": {"channel": CHANNELS[0], "modules": []}})).await?;
        self.until_ready(&[]).await?;
        until_as_before(&self.target, before).await
    }

    pub(crate) async fn choose(&self, edit: &Value) -> Result<()> {
        let kymas: Api<Kyma> = Api::namespaced(self.target.clone(), TARGET_NAMESPACE);
        kymas.patch("default", &PatchParams::default(), &Patch::Merge(edit)).await?;
        Ok(())
    }

    /// Waits until the Kyma is Ready with exactly these modules in these versions.
    async fn until_ready(&self, wanted: &[(&str, &str)]) -> Result<()> {
        let wanted = wanted.iter().copied().collect();
        until_or_why("the Kyma has what it wants", DEADLINE, || async {
            let status = self.kymas().get(KYMA).await?.status.unwrap_or_default();
            let modules = status.modules.unwrap_or_default();
            let ready = modules.iter().filter(|module| module.state == State::Ready);
            let found: BTreeSet<(&str, &str)> = ready.map(named).collect();
            if status.state == Some(State::Ready) && modules.len() == found.len() && found == wanted {
                return Ok(Ok(()));
            }
            let lines = modules.iter().map(|module| {
                let (name, version) = named(module);
                let message = module.message.as_deref().unwrap_or_default();
                format!("\n  {name} {version}: {:?} {message}", module.state)
            });
            Ok(Err(format!("{:?}{}", status.state, lines.collect::<String>())))
        })
        .await
    }

    pub(crate) fn kymas(&self) -> Api<Kyma> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }
}

/// Returns name and version of a module.
fn named(module: &ModuleStatus) -> (&str, &str) {
    (&module.name, module.version.as_deref().unwrap_or_default())
}
