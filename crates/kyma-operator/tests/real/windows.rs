//! Maintenance windows, with a policy file that changes under the running operator.

use std::path::PathBuf;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kyma_api::condition::types;
use kyma_api::{Kyma, labels};
use serde_json::{Value, json};
use testbed::Cluster;

use crate::landscape::{Landscape, is_ready, modules, remote, until_remote};

/// A policy file that an operator reads.
struct Policy {
    directory: tempfile::TempDir,
}

impl Policy {
    fn new(content: &Value) -> Result<Self> {
        let policy = Self { directory: tempfile::tempdir()? };
        policy.write(&content.to_string())?;
        Ok(policy)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("policy.json")
    }

    fn flag(&self) -> String {
        format!("--maintenance-policy={}", self.path().display())
    }

    /// Replaces the file atomically, as a mounted ConfigMap.
    fn write(&self, content: &str) -> Result<()> {
        let new = self.directory.path().join("new");
        std::fs::write(&new, content)?;
        Ok(std::fs::rename(new, self.path())?)
    }
}

/// Returns a window, in seconds and hours from now.
fn window(from_seconds: i64, to_hours: i64) -> Value {
    let (begin, end) = (SignedDuration::from_secs(from_seconds), SignedDuration::from_hours(to_hours));
    let now = Timestamp::now();
    json!({ "begin": (now + begin).to_string(), "end": (now + end).to_string() })
}

async fn release_with_downtime(landscape: &Landscape) -> Result<()> {
    landscape
        .apply(
            "{apiVersion: operator.kyma-project.io/v1beta2, kind: ModuleTemplate, metadata: {name: keda-1.1.0}, \
             spec: {moduleName: keda, version: 1.1.0, descriptor: {}, requiresDowntime: true}}",
        )
        .await?;
    landscape.release("keda", "channels: [{channel: regular, version: 1.1.0}]").await
}

/// Creates a Kyma whose module is Ready in 1.0.0.
async fn installed(landscape: &Landscape, name: &str) -> Result<Cluster> {
    let (target, kubeconfig) = landscape.target(name).await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    landscape.report_ready("keda").await?;
    landscape.until_kyma("the Kyma is Ready", "sample", is_ready).await?;
    Ok(target)
}

/// Waits until the condition has this reason; returns its message.
async fn until_told(landscape: &Landscape, what: &str, reason: &str) -> Result<String> {
    let kyma =
        landscape.until_kyma(what, "sample", |kyma| told(kyma).is_some_and(|told| told.0 == reason)).await?;
    Ok(told(&kyma).context("the condition")?.1)
}

fn told(kyma: &Kyma) -> Option<(String, String)> {
    let mut conditions = kyma.status.as_ref()?.conditions.as_ref()?.iter();
    let condition = conditions.find(|condition| condition.type_ == types::MAINTENANCE_WINDOW)?;
    Some((condition.reason.clone(), condition.message.clone()))
}

fn waits(kyma: &Kyma) -> bool {
    let modules = kyma.status.as_ref().and_then(|status| status.modules.as_ref());
    modules.is_some_and(|modules| modules.iter().any(|module| module.maintenance))
}

async fn until_upgraded(landscape: &Landscape) -> Result<()> {
    let is_new = |component: &kyma_api::HelmComponent| {
        component.spec.module.as_ref().is_some_and(|module| module.version == "1.1.0")
    };
    landscape.until_component("the upgrade", "keda", is_new).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn e28_i05_upgrade_with_downtime_waits_for_window_of_the_kyma() -> Result<()> {
    let policy = Policy::new(&json!({
        "rules": [{ "match": { "region": "europe" }, "windows": [window(-3600, 10)] }],
        "default": window(36_000, 20),
    }))?;
    let landscape = Landscape::start(&[&policy.flag()]).await?;
    let target = installed(&landscape, "windows").await?;
    release_with_downtime(&landscape).await?;

    let message = until_told(&landscape, "the upgrade waits", "AwaitingMaintenanceWindow").await?;
    assert!(message.starts_with("keda: version 1.1.0 waits for the maintenance window from "), "{message}");
    let waiting = landscape.until_kyma("the module says so", "sample", waits).await?;
    assert!(is_ready(&waiting), "what runs is fine");
    assert_eq!(modules(&waiting), ["keda Ready 1.0.0 regular"]);
    until_remote(&target, "its user sees it", |kyma| waits(kyma) && told(kyma).is_some()).await?;

    let region = json!({ "metadata": { "labels": { labels::REGION: "europe" } } });
    landscape.kymas()?.patch("sample", &PatchParams::default(), &Patch::Merge(&region)).await?;
    until_upgraded(&landscape).await?;
    landscape.report_ready("keda").await?;
    let upgraded = landscape
        .until_kyma("the new version", "sample", |kyma| modules(kyma) == ["keda Ready 1.1.0 regular"])
        .await?;
    assert!(!waits(&upgraded) && told(&upgraded).is_none(), "nothing waits any more");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn e29_a_first_installation_never_waits_even_without_a_policy() -> Result<()> {
    let landscape = Landscape::start(&["--maintenance-policy=/nowhere/policy.json"]).await?;
    let (_target, kubeconfig) = landscape.target("initial").await?;
    release_with_downtime(&landscape).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    until_upgraded(&landscape).await?;
    let metrics = landscape.metrics()?;
    assert!(metrics.contains("lifecycle_mgr_maintenance_window_config_read_success 0"), "{metrics}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_read_again_and_its_window_opens_by_the_clock() -> Result<()> {
    let policy = Policy::new(&json!({ "default": window(36_000, 20) }))?;
    let landscape = Landscape::start(&[&policy.flag()]).await?;
    installed(&landscape, "policy").await?;
    release_with_downtime(&landscape).await?;
    until_told(&landscape, "the upgrade waits", "AwaitingMaintenanceWindow").await?;
    let metrics = landscape.metrics()?;
    assert!(metrics.contains("lifecycle_mgr_maintenance_window_config_read_success 1"), "{metrics}");

    policy.write("{\"rules\": [{\"match\": {\"region\": \"(\"}}]}")?;
    let message =
        until_told(&landscape, "the invalid policy is reported", "MaintenanceWindowUnknown").await?;
    assert!(message.contains("rules[0].match.region is not a regular expression"), "{message}");
    let kept = landscape.components()?.list(&kube::api::ListParams::default()).await?;
    let kept =
        kept.items.first().and_then(|component| component.spec.module.clone()).context("a component")?;
    assert_eq!(kept.version, "1.0.0");

    policy.write(&json!({ "default": window(8, 20) }).to_string())?;
    until_upgraded(&landscape).await
}

#[tokio::test(flavor = "multi_thread")]
async fn window_skip_by_user_or_hub_is_named_in_the_status() -> Result<()> {
    let policy = Policy::new(&json!({ "default": window(36_000, 20) }))?;
    let landscape = Landscape::start(&[&policy.flag()]).await?;
    let target = installed(&landscape, "skipped").await?;
    release_with_downtime(&landscape).await?;
    until_told(&landscape, "the upgrade waits", "AwaitingMaintenanceWindow").await?;

    let skip = json!({ "spec": { "skipMaintenanceWindows": true } });
    let user = remote(&target)?.patch("default", &PatchParams::default(), &Patch::Merge(&skip)).await?;
    assert_eq!(user.name_any(), "default");
    until_upgraded(&landscape).await?;
    let message = until_told(&landscape, "the user skips the window", "MaintenanceWindowSkipped").await?;
    assert!(message.ends_with("by the cluster's user"), "{message}");
    landscape.kymas()?.patch("sample", &PatchParams::default(), &Patch::Merge(&skip)).await?;
    landscape
        .until_kyma("so did the hub", "sample", |kyma| {
            told(kyma).is_some_and(|told| told.1.ends_with("on the hub"))
        })
        .await?;
    Ok(())
}
