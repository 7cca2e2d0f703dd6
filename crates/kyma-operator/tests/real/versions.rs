//! Versions: downgrades, and deprecation at a date.

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kyma_api::{DeletionPolicy, Kyma};
use serde_json::json;

use crate::landscape::{Landscape, is_ready, modules, until_remote};

/// Versions that the `ModuleReleaseMeta` offers, with a date for 1.0.0.
fn offer(deprecated: Timestamp) -> String {
    let date = deprecated.strftime("%Y-%m-%dT%H:%M:%SZ");
    format!(
        "versions: [{{version: 1.0.0, deprecationDate: '{date}', deprecationMessage: 'use 1.1.0'}}, {{version: 1.1.0}}]"
    )
}

fn message(kyma: &Kyma) -> Option<String> {
    let modules = kyma.status.as_ref()?.modules.as_ref()?;
    modules.iter().find(|module| module.name == "keda")?.message.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_supported_until_its_date_comes() -> Result<()> {
    let landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("deprecated").await?;
    for version in ["1.0.0", "1.1.0"] {
        landscape.template("keda", version).await?;
    }
    let tomorrow = Timestamp::now() + SignedDuration::from_hours(24);
    landscape.release("keda", &offer(tomorrow)).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda, version: 1.0.0}]").await?;
    landscape.report_ready("keda").await?;
    landscape.until_kyma("the version is like any other", "sample", is_ready).await?;

    // No event reports that the date has passed.
    landscape.release("keda", &offer(Timestamp::now() + SignedDuration::from_secs(3))).await?;
    let told = landscape
        .until_kyma("it stays with a warning", "sample", |kyma| modules(kyma) == ["keda Warning 1.0.0 -"])
        .await?;
    let message = message(&told).context("a message")?;
    assert!(message.contains("is deprecated since") && message.ends_with("use 1.1.0"), "{message}");
    until_remote(&target, "its user is told", |kyma| modules(kyma) == ["keda Warning 1.0.0 -"]).await?;

    landscape.secret("late", &landscape.target("late").await?.1).await?;
    landscape.kyma("late", "[{name: keda, version: 1.0.0}]").await?;
    landscape.until_kyma("nobody gets it anew", "late", |kyma| modules(kyma) == ["keda Error - -"]).await?;
    assert_eq!(landscape.components()?.list(&kube::api::ListParams::default()).await?.items.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manual_upgrade_comes_when_it_is_approved() -> Result<()> {
    let landscape = Landscape::start(&["--mode=single-cluster"]).await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.kyma("sample", "[{name: keda, upgrade: {mode: Manual, deadlineDays: 7}}]").await?;
    landscape.report_ready("keda").await?;
    landscape.until_kyma("the first version needs no approval", "sample", is_ready).await?;

    landscape.module("keda", &[("regular", "1.1.0")]).await?;
    let pending = |kyma: &Kyma| {
        let mut modules = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
        modules.find_map(|module| module.pending_upgrade.clone())
    };
    let asked = |version: &'static str| {
        move |kyma: &Kyma| pending(kyma).is_some_and(|pending| pending.version == version)
    };
    let first = landscape.until_kyma("a person is asked", "sample", asked("1.1.0")).await?;
    assert_eq!(modules(&first), ["keda Ready 1.0.0 regular"]);
    landscape.module("keda", &[("regular", "1.2.0")]).await?;
    let second = landscape.until_kyma("and again", "sample", asked("1.2.0")).await?;
    let since = |kyma: &Kyma| pending(kyma).map(|pending| pending.since);
    assert_eq!(since(&second), since(&first), "the days count from the first one");

    let approved = json!({ "mode": "Manual", "deadlineDays": 7, "approved": "1.2.0" });
    landscape.choose("sample", json!([{ "name": "keda", "upgrade": approved }])).await?;
    landscape
        .until_component("it comes", "keda", |component| {
            component.spec.module.as_ref().is_some_and(|module| module.version == "1.2.0")
        })
        .await?;
    let nothing_waits = |kyma: &Kyma| pending(kyma).is_none();
    landscape.until_kyma("and nobody is asked any more", "sample", nothing_waits).await?;
    Ok(())
}

/// The downgrade that the user documentation describes.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_version_comes_by_removal_and_a_pin() -> Result<()> {
    let landscape = Landscape::start(&["--mode=single-cluster"]).await?;
    landscape.template("keda", "1.0.0").await?;
    landscape.module("keda", &[("regular", "1.1.0")]).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    landscape.report_ready("keda").await?;
    landscape.until_kyma("the newer one runs", "sample", is_ready).await?;

    let older = json!([{ "name": "keda", "version": "1.0.0" }]);
    landscape.choose("sample", older.clone()).await?;
    landscape
        .until_kyma("a pin alone is refused", "sample", |kyma| {
            modules(kyma) == ["keda Warning 1.1.0 regular"]
        })
        .await?;
    landscape.choose("sample", json!([])).await?;
    let ordered = landscape
        .until_component("it is removed", "keda", |component| component.metadata.deletion_timestamp.is_some())
        .await?;
    assert_eq!(ordered.spec.deletion_policy, DeletionPolicy::Delete);
    landscape.let_component_go(&ordered.name_any()).await?;
    landscape.until_kyma("it is gone", "sample", |kyma| modules(kyma).is_empty()).await?;

    landscape.choose("sample", older).await?;
    landscape
        .until_component("the older one comes", "keda", |component| {
            component.metadata.deletion_timestamp.is_none()
                && component.spec.module.as_ref().is_some_and(|module| module.version == "1.0.0")
        })
        .await?;
    landscape.report_ready("keda").await?;
    let back =
        landscape.until_kyma("and runs", "sample", |kyma| modules(kyma) == ["keda Ready 1.0.0 -"]).await?;
    assert!(is_ready(&back));
    Ok(())
}
