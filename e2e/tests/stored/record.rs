//! Drives helm-component into the recorded states.

use anyhow::{Context, Result, ensure};
use e2e::net::FileServer;
use jiff::Timestamp;
use kyma_api::annotations;
use testbed::Program;
use tokio::process::Command;

use crate::charts;
use crate::clusters::Clusters;
use crate::recording::{Recording, keeps_on_hub, keeps_on_target};
use crate::states::{
    ADOPTED, FAILED_REVISION, HELM_HISTORY, RUNNING_HOOK, RUNNING_TEST, STATES, TEST_REQUEST, UPGRADING,
    find, spec,
};

/// Brings all components into their states, and returns what hub and target store then.
pub(crate) async fn record(file_server: &FileServer) -> Result<Recording> {
    let mut clusters = Clusters::start(None).await?;
    clusters.install().await?;
    let directory = clusters.test_env.directory().join("charts");
    std::fs::create_dir_all(&directory)?;
    let archives = charts::package_all(&directory).await?;
    charts::publish(file_server, &archives, false)?;
    install_with_helm(&clusters, &directory).await?;
    clusters.start_operator(None).await?;
    install(&clusters).await?;
    change(&clusters).await?;
    clusters.until_at_rest().await?;
    clusters.stop_operator().await?;
    let recorded_at = Timestamp::now();
    for state in &STATES {
        state.check(&clusters.components()?.get(state.name).await?)?;
    }
    let hub = clusters.hub.dump_etcd(keeps_on_hub).await?;
    let target = clusters.target.dump_etcd(keeps_on_target).await?;
    Ok(Recording { recorded_at, archives, hub, target })
}

/// Installs the release that is adopted later.
async fn install_with_helm(clusters: &Clusters, directory: &std::path::Path) -> Result<()> {
    let state = find(ADOPTED)?;
    let kubeconfig = directory.join("target.kubeconfig");
    std::fs::write(&kubeconfig, clusters.target.kubeconfig())?;
    let mut helm = Command::new(Program::Helm.path()?);
    helm.args(["install", ADOPTED]).arg(charts::archive_path(directory, state.chart, state.version));
    helm.args(["--namespace", ADOPTED, "--create-namespace", "--set", "level=low"]);
    let output = helm.arg("--kubeconfig").arg(&kubeconfig).output().await.context("cannot start helm")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Installs all components, with `level` low.
async fn install(clusters: &Clusters) -> Result<()> {
    for state in &STATES {
        clusters.apply(state.name, &spec(state.name, state.version, "low")?).await?;
    }
    for state in &STATES {
        clusters.ready(state.name, "True", "Ready").await?;
    }
    Ok(())
}

/// Changes the components that are recorded in another state than after their installation.
async fn change(clusters: &Clusters) -> Result<()> {
    clusters.apply(FAILED_REVISION, &spec(FAILED_REVISION, "1.1.0", "high")?).await?;
    clusters.apply(UPGRADING, &spec(UPGRADING, "1.1.0", "high")?).await?;
    clusters.apply(RUNNING_HOOK, &spec(RUNNING_HOOK, "1.0.0", "high")?).await?;
    clusters.apply(HELM_HISTORY, &spec(HELM_HISTORY, "1.0.0", "high")?).await?;
    clusters.annotate(RUNNING_TEST, annotations::TEST_REQUESTED_AT, TEST_REQUEST).await?;

    clusters.ready(FAILED_REVISION, "False", "RolledBack").await?;
    clusters.ready(UPGRADING, "False", "DependencyMissing").await?;
    clusters.until_level(UPGRADING, "high").await?;
    clusters.ready(HELM_HISTORY, "True", "Ready").await?;
    clusters.running_pod(RUNNING_HOOK, "migrate").await?;
    clusters.running_pod(RUNNING_TEST, "probe").await?;
    for name in [RUNNING_HOOK, RUNNING_TEST] {
        let state = find(name)?;
        clusters.until_component(name, "it runs", |component| state.is_recorded_in(component)).await?;
    }
    Ok(())
}
