//! Queries that the Kyma CLI and Busola send to a target, on the Kyma `lake`.

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::catalogue::{chosen, runs};
use crate::row::DEADLINE;
use crate::world::{World, row};

const MODULE_NAME: &str = "operator.kyma-project.io/module-name";
const MANAGED_BY: &str = "operator.kyma-project.io/managed-by";

#[test]
fn kyma_cli_and_busola_queries_find_channel_and_version_modules() -> Result<()> {
    row("clients", async |row| {
        let _in_use = row.world.lake.in_use.lock().await;
        for module in ["skiff", "punt"] {
            row.world.push(module, "1.0.0").await?;
        }
        row.world.offer("skiff", json!({"channels": [{"channel": "regular", "version": "1.0.0"}]})).await?;
        row.world.offer("punt", json!({"versions": [{"version": "1.0.0"}]})).await?;
        chosen(row.world, &json!([{"name": "skiff"}, {"name": "punt", "version": "1.0.0"}])).await?;
        runs(row.world, "skiff", "1.0.0").await?;
        runs(row.world, "punt", "1.0.0").await?;
        // release-meta-syncer copies the catalogue by itself, and kyma-operator writes the status to the target last.
        testbed::until_or_why("both clients find the modules", DEADLINE, || async {
            let target = Target::read(row.world).await?;
            let found = target.cli().and_then(|()| target.busola());
            Ok(found.map_err(|error| format!("{error:#}")))
        })
        .await?;
        chosen(row.world, &json!([])).await
    })
}

/// Objects that both clients read.
struct Target {
    kymas: Vec<Value>,
    templates: Vec<Value>,
    releases: Vec<Value>,
}

impl Target {
    async fn read(world: &World) -> Result<Self> {
        let client = world.lake.target.client()?;
        let list = async |kind: &str, plural: &str, namespace: Option<&str>| {
            let kind = GroupVersionKind::gvk("operator.kyma-project.io", "v1beta2", kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, plural);
            let api: Api<DynamicObject> = match namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            let found = api.list(&ListParams::default()).await?;
            anyhow::Ok(found.items.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?)
        };
        Ok(Self {
            kymas: list("Kyma", "kymas", Some("kyma-system")).await?,
            templates: list("ModuleTemplate", "moduletemplates", None).await?,
            releases: list("ModuleReleaseMeta", "modulereleasemetas", None).await?,
        })
    }

    /// Checks what `kyma module list`, `catalog` and `add` read.
    fn cli(&self) -> Result<()> {
        let kyma = self.kymas.iter().find(|kyma| kyma["metadata"]["name"] == "default");
        let kyma = kyma.context("the CLI reads kyma-system/default")?;
        ensure!(kyma["spec"]["channel"] == "regular", "default channel: {}", kyma["spec"]);
        for (module, channel) in [("skiff", "regular"), ("punt", "")] {
            let of_module = |template: &&Value| {
                template["spec"]["moduleName"] == module && template["spec"]["version"] == "1.0.0"
            };
            let template = self.templates.iter().find(of_module).context("the CLI lists the template")?;
            let managed_by = &template["metadata"]["labels"][MANAGED_BY];
            ensure!(managed_by == "kyma", "the CLI takes {module} for a community module: {managed_by}");
            ensure!(template["spec"]["info"]["repository"].is_string(), "{module}: {}", template["spec"]);
            let status = entry(kyma, module)?;
            ensure!(status["state"] == "Ready" && status["version"] == "1.0.0", "{module}: {status}");
            let release = self.releases.iter().find(|release| release["spec"]["moduleName"] == module);
            let release = release.context("the CLI reads the release meta")?;
            let mut assigned = release["spec"]["channels"].as_array().into_iter().flatten();
            let assigned = assigned.find(|assigned| assigned["version"] == "1.0.0");
            let found = assigned.map_or("", |assigned| assigned["channel"].as_str().unwrap_or_default());
            ensure!(found == channel, "{module} is in channel {found:?}, not {channel:?}");
        }
        Ok(())
    }

    /// Checks what Busola's list of modules and its dialog for adding one read.
    fn busola(&self) -> Result<()> {
        let kyma = self.kymas.iter().find(|kyma| kyma["status"].is_object());
        let kyma = kyma.context("Busola takes the first Kyma with a status")?;
        for template in &self.templates {
            let metadata = &template["metadata"];
            ensure!(metadata["labels"].is_object(), "Busola fails without labels: {metadata}");
            ensure!(metadata["annotations"].is_object(), "Busola fails without annotations: {metadata}");
            ensure!(metadata["labels"][MANAGED_BY].is_string(), "a community module: {metadata}");
            let name =
                metadata["labels"][MODULE_NAME].as_str().context("the label with the module's name")?;
            // Busola calls `moduleReleaseMeta?.spec.channels.forEach`.
            let release = self.releases.iter().find(|release| release["spec"]["moduleName"] == name);
            let channels = release.map(|release| &release["spec"]["channels"]);
            ensure!(
                channels.is_none_or(Value::is_array),
                "Busola fails without a list of channels: {release:?}"
            );
        }
        for module in ["skiff", "punt"] {
            let status = entry(kyma, module)?;
            let of_module = |template: &&Value| {
                template["metadata"]["labels"][MODULE_NAME] == module
                    && template["spec"]["channel"].as_str().is_none_or(str::is_empty)
                    && template["spec"]["version"] == status["version"]
            };
            let template = self.templates.iter().find(of_module);
            let template = template.with_context(|| format!("Busola finds no template of {module}"))?;
            ensure!(template["spec"]["info"]["documentation"].is_string(), "{module}: {}", template["spec"]);
            ensure!(status["state"] == "Ready", "{module}: {status}");
        }
        Ok(())
    }
}

/// Returns the Kyma's status of a module.
fn entry<'a>(kyma: &'a Value, module: &str) -> Result<&'a Value> {
    let mut entries = kyma["status"]["modules"].as_array().into_iter().flatten();
    entries.find(|entry| entry["name"] == module).with_context(|| format!("{module}: {}", kyma["status"]))
}
