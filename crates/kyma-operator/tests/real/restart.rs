//! Nothing is kept that a restart cannot rebuild, and nothing is written that is there already.

use anyhow::Result;
use kyma_api::State;

use crate::landscape::{Landscape, modules, until_remote};

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_changes_nothing_and_goes_on_where_it_was() -> Result<()> {
    let mut landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("restart").await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}, {name: nobody}]").await?;
    landscape.report_ready("keda").await?;
    let is_settled =
        |kyma: &kyma_api::Kyma| modules(kyma) == ["keda Ready 1.0.0 regular", "nobody Warning - regular"];
    landscape.until_kyma("one module Ready, one refused", "sample", is_settled).await?;
    until_remote(&target, "the target shows it", is_settled).await?;
    landscape.stop().await?;

    let (on_hub, on_target) = (landscape.hub.audit()?.mark()?, target.audit()?.mark()?);
    landscape.run().await?;
    // An upgrade is the sign that the new process works; what it wrote before that it need not have written.
    landscape.module("keda", &[("regular", "1.1.0")]).await?;
    landscape
        .until_component("the upgrade after the restart", "keda", |component| {
            component.spec.module.as_ref().is_some_and(|module| module.version == "1.1.0")
        })
        .await?;
    let user = landscape.user();
    let writes = |events: Vec<testbed::AuditEvent>| -> Vec<String> {
        let ours =
            events.into_iter().filter(|event| event.is_write() && event.user.ends_with(":kyma-operator"));
        ours.filter(|event| event.group != "events.k8s.io")
            .map(|event| format!("{} {} {}", event.verb, event.resource, event.name))
            .collect()
    };
    let hub = landscape.hub.audit()?.since(on_hub)?.into_iter().filter(|event| event.user == user).collect();
    let hub = writes(hub);
    assert!(hub.first().is_some_and(|first| first.starts_with("patch helmcomponents")), "{hub:?}");
    let target_writes = writes(target.audit()?.since(on_target)?);
    assert!(target_writes.iter().all(|write| write.starts_with("patch kymas/status")), "{target_writes:?}");
    landscape
        .until_kyma("the upgrade is reported", "sample", |kyma| {
            kyma.status.as_ref().and_then(|status| status.state) == Some(State::Warning)
                && modules(kyma)[0] == "keda Processing 1.1.0 regular"
        })
        .await?;
    Ok(())
}
