//! Objects of an empty landscape for installing a chart by hand: the chart, and shell variables.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use testbed::{Program, Registry};
use tokio::process::Command;

use super::Landscape;
use super::state::quoted;

/// Name and version of the chart.
const CHART: (&str, &str) = ("hello", "1.0.0");

/// Packs the chart and pushes it.
pub(super) async fn push(registry: &Registry, directory: &Path) -> Result<()> {
    let (name, version) = CHART;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts").join(name);
    let archive = directory.join(format!("{name}-{version}.tgz"));
    let mut package = Command::new(Program::Helm.path()?);
    run(package.arg("package").arg(source).arg("--destination").arg(directory)).await?;
    let mut push = Command::new(Program::Helm.path()?);
    run(push.arg("push").arg(archive).arg(format!("oci://{}/charts", registry.address())).arg("--plain-http"))
        .await
}

async fn run(command: &mut Command) -> Result<()> {
    let output = command.output().await.context("cannot start helm")?;
    ensure!(output.status.success(), "helm: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Returns lines of a shell file: the hub is the current cluster, the binaries are on PATH, and helm-component may
/// use clusters and a registry of this machine.
pub(super) fn variables(landscape: &Landscape) -> Result<Vec<String>> {
    let (name, version) = CHART;
    let registry = landscape.registry().address();
    let bin = landscape.bin("helm-component");
    let bin = bin.parent().context("a program is in a directory")?;
    let helm = Program::Helm.path()?;
    let helms = helm.parent().context("a program is in a directory")?;
    let directory = landscape.directory();
    Ok(vec![
        format!("KUBECONFIG={}", quoted(&directory.join("hub.kubeconfig").display().to_string())),
        format!("TARGET_KUBECONFIG={}", quoted(&directory.join("target-1.kubeconfig").display().to_string())),
        format!("CHART=oci://{registry}/charts/{name}"),
        format!("CHART_VERSION={version}"),
        "CHART_FLAGS=--plain-http".to_owned(),
        format!(
            "PATH={}:\"$PATH\":{}",
            quoted(&bin.display().to_string()),
            quoted(&helms.display().to_string())
        ),
        format!("HELM={}", quoted(&helm.display().to_string())),
        format!("OCI_INSECURE_HOSTS={registry}"),
        "ALLOW_LOOPBACK_TARGETS=true".to_owned(),
        "ADMIN_ADDRESS=".to_owned(),
        "LOG_LEVEL=warn".to_owned(),
    ])
}
