//! The end of a version's support comes by the clock.

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use kyma_api::Kyma;

use crate::landscape::{Landscape, is_ready, modules, until_remote};

/// What the release meta offers, with a date for 1.0.0.
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

    // Nothing but the clock tells that it has come.
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
