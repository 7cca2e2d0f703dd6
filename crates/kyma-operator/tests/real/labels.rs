//! Labels on templates and Kymas that decide about visibility.

use anyhow::Result;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::{DeletionPolicy, HelmComponent, Kyma, ModuleTemplate, State, labels};
use serde_json::json;

use crate::landscape::{Landscape, is_left_alone, is_ready, modules};

async fn label_template(landscape: &Landscape, label: &str, value: Option<&str>) -> Result<()> {
    let templates: Api<ModuleTemplate> = Api::namespaced(landscape.hub.client()?, &landscape.namespace);
    let labelled = json!({ "metadata": { "labels": { label: value } } });
    templates.patch("keda-1.0.0", &PatchParams::default(), &Patch::Merge(&labelled)).await?;
    Ok(())
}

fn is_refused(kyma: &Kyma) -> bool {
    modules(kyma) == ["keda Error - regular"]
        && kyma.status.as_ref().and_then(|status| status.state) == Some(State::Error)
}

fn version(component: &HelmComponent) -> &str {
    component.spec.module.as_ref().map_or("", |module| module.version.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn e26_module_is_refused_while_template_is_beta_or_internal() -> Result<()> {
    // Without this flag, installed modules would stay.
    let landscape = Landscape::start(&["--mode=single-cluster", "--visibility-loss=uninstall"]).await?;
    // The operator watches templates and releases separately: a template that got its label later could be installed.
    landscape
        .apply(&format!(
            "{{apiVersion: operator.kyma-project.io/v1beta2, kind: ModuleTemplate, \
             metadata: {{name: keda-1.0.0, labels: {{{}: 'true'}}}}, spec: {{moduleName: keda, version: 1.0.0, descriptor: {{}}}}}}",
            labels::BETA
        ))
        .await?;
    landscape.release("keda", "channels: [{channel: regular, version: 1.0.0}]").await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    landscape.until_kyma("a beta version is refused", "sample", is_refused).await?;

    label_template(&landscape, labels::BETA, None).await?;
    landscape.report_ready("keda").await?;
    landscape.until_kyma("it is installed", "sample", is_ready).await?;

    label_template(&landscape, labels::INTERNAL, Some("true")).await?;
    let ordered = landscape
        .until_component("an internal one goes", "keda", |component| {
            component.metadata.deletion_timestamp.is_some()
        })
        .await?;
    assert_eq!(ordered.spec.deletion_policy, DeletionPolicy::Delete);
    landscape.let_component_go(&ordered.name_any()).await?;
    landscape.until_kyma("and is refused", "sample", is_refused).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn i75_to_i80_skipped_kyma_is_unchanged_and_can_be_deleted() -> Result<()> {
    let landscape = Landscape::start(&["--mode=single-cluster"]).await?;
    for (kyma, module) in [("sample", "keda"), ("other", "nats")] {
        landscape.module(module, &[("regular", "1.0.0")]).await?;
        landscape.kyma(kyma, &format!("[{{name: {module}}}]")).await?;
        landscape.report_ready(module).await?;
        landscape.until_kyma("it is Ready", kyma, is_ready).await?;
    }
    let skip = json!({ "metadata": { "labels": { labels::SKIP_RECONCILIATION: "true" } } });
    landscape.kymas()?.patch("sample", &PatchParams::default(), &Patch::Merge(&skip)).await?;
    landscape.until_kyma("it says that it is left alone", "sample", is_left_alone).await?;

    let component = landscape.until_component("its component", "keda", |_| true).await?;
    let failed = json!({ "status": { "state": "Error" } });
    let params = PatchParams::default();
    landscape.components()?.patch_status(&component.name_any(), &params, &Patch::Merge(&failed)).await?;
    for module in ["keda", "nats"] {
        landscape.module(module, &[("regular", "1.1.0")]).await?;
    }
    landscape.until_component("the other module is upgraded", "nats", |it| version(it) == "1.1.0").await?;
    landscape.report_ready("nats").await?;
    landscape
        .until_kyma("and tells it", "other", |kyma| modules(kyma) == ["nats Ready 1.1.0 regular"])
        .await?;
    let component = landscape.until_component("its component", "keda", |_| true).await?;
    assert_eq!(version(&component), "1.0.0", "what the catalogue offers is not applied");
    let kyma = landscape.kymas()?.get("sample").await?;
    assert_eq!(modules(&kyma), ["keda Ready 1.0.0 regular"], "what the component says is not shown");

    let kymas = landscape.kymas()?;
    kymas.delete("sample", &DeleteParams::default()).await?;
    let ordered = landscape
        .until_component("its deletion goes on all the same", "keda", |component| {
            component.spec.deletion_policy == DeletionPolicy::Delete
                && component.metadata.deletion_timestamp.is_some()
        })
        .await?;
    landscape.let_component_go(&ordered.name_any()).await?;
    landscape.until_kyma_is_gone("sample").await
}
