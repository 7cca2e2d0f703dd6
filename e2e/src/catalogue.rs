//! Publishes modules: content to the registry, ModuleTemplates and ModuleReleaseMetas to the hub.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use kyma_api::{ModuleReleaseMeta, ModuleTemplate};
use serde_json::{Value, json};

use crate::landscape::{HUB_NAMESPACE, Landscape};

/// Field manager of the catalogue.
const FIELD_MANAGER: &str = "demo";

/// Returns the directory of a module below `e2e/modules`.
pub fn module_directory(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("modules").join(path)
}

/// Pushes a module's content, and publishes the ModuleTemplate that kymactl returns.
///
/// # Errors
/// `kymactl` or the hub refuses the module.
pub async fn push(landscape: &Landscape, directory: &Path) -> Result<()> {
    let output = landscape
        .kymactl()
        .args(["module", "push", "--config"])
        .arg(directory.join("module-config.yaml"))
        .args(["--registry", landscape.registry().address(), "--insecure"])
        .output()
        .await
        .context("cannot start kymactl")?;
    ensure!(output.status.success(), "kymactl module push: {}", String::from_utf8_lossy(&output.stderr));
    let template: ModuleTemplate = serde_saphyr::from_str(&String::from_utf8(output.stdout)?)?;
    publish(landscape.hub().client()?, template).await
}

/// Writes a module of these files and pushes it. `config` extends or replaces the default configuration, in which
/// the version is 1.0.0.
///
/// # Errors
/// The files cannot be written, or `kymactl` or the hub refuses the module.
pub async fn push_files(
    landscape: &Landscape,
    module: &str,
    config: &Value,
    files: &[(&str, String)],
) -> Result<()> {
    let mut whole = json!({
        "name": format!("kyma-project.io/module/{module}"),
        "version": "1.0.0",
        "repository": "https://example.com/module",
        "documentation": "https://example.com/module/docs",
        "icons": [{"name": "module-icon", "link": "https://example.com/icon.svg"}],
    });
    for (field, value) in config.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    let version = whole["version"].as_str().context("a version is a string")?;
    let directory = landscape.directory().join("modules").join(format!("{module}-{version}"));
    let config = ("module-config.yaml", whole.to_string());
    for (path, content) in std::iter::once(&config).chain(files) {
        let path = directory.join(path);
        std::fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
        std::fs::write(path, content)?;
    }
    push(landscape, &directory).await
}

/// Publishes a module whose component is of another kind than HelmComponent.
///
/// # Errors
/// The component's binary prints no CRD, or the hub refuses the template.
pub async fn publish_greeting(landscape: &Landscape) -> Result<()> {
    publish_greeting_with(landscape, "1.0.0", None).await
}

/// Publishes a version of that module with this default CR.
///
/// # Errors
/// As for [`publish_greeting`].
pub async fn publish_greeting_with(
    landscape: &Landscape,
    version: &str,
    default_resource: Option<&Value>,
) -> Result<()> {
    let output =
        tokio::process::Command::new(landscape.bin("greeting-component")).arg("crd").output().await?;
    ensure!(output.status.success(), "greeting-component crd: {}", String::from_utf8_lossy(&output.stderr));
    let crd: serde_json::Value = serde_saphyr::from_str(&String::from_utf8(output.stdout)?)?;
    let group = crd["spec"]["group"].as_str().context("the CRD has a group")?;
    let served = crd["spec"]["versions"][0]["name"].as_str().context("the CRD has a version")?;
    let template = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2",
        "kind": "ModuleTemplate",
        "metadata": {"name": format!("greeting-{version}")},
        "spec": {
            "moduleName": "greeting",
            "version": version,
            "data": default_resource,
            "descriptor": {},
            "component": {
                "apiVersion": format!("{group}/{served}"),
                "kind": crd["spec"]["names"]["kind"],
                "spec": {"text": "Good morning"},
                "crd": crd,
            },
        },
    }))?;
    publish(landscape.hub().client()?, template).await
}

/// Assigns a version of a module to the channel `regular`.
///
/// # Errors
/// The hub refuses it.
pub async fn assign(hub: Client, module: &str, version: &str) -> Result<()> {
    offer(hub, module, &json!({"channels": [{"channel": "regular", "version": version}]})).await
}

/// Publishes a ModuleReleaseMeta with these fields of its `spec`.
///
/// # Errors
/// The hub refuses it.
pub async fn offer(hub: Client, module: &str, versions: &Value) -> Result<()> {
    let mut meta = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2",
        "kind": "ModuleReleaseMeta",
        "metadata": {"name": module},
        "spec": {
            "moduleName": module,
            "ocmComponentName": format!("kyma-project.io/module/{module}"),
        },
    });
    for (field, value) in versions.as_object().into_iter().flatten() {
        meta["spec"][field] = value.clone();
    }
    let metas: Api<ModuleReleaseMeta> = Api::namespaced(hub, HUB_NAMESPACE);
    metas.patch(module, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&meta)).await?;
    Ok(())
}

/// Publishes a ModuleTemplate.
///
/// # Errors
/// The hub refuses it.
pub async fn publish(hub: Client, template: ModuleTemplate) -> Result<()> {
    let templates: Api<ModuleTemplate> = Api::namespaced(hub, HUB_NAMESPACE);
    let name = template.name_any();
    templates.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&template)).await?;
    Ok(())
}
