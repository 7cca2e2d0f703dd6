//! ModuleConfigs: their effect on components and status.

use anyhow::{Context, Result};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::{HelmComponent, Kyma, ModuleConfig, ModuleConfigStatus, labels};
use serde_json::{Value, json};
use testbed::{Cluster, until_or_why};

use crate::landscape::{Landscape, SOON, is_ready, modules, until_remote};
use crate::lifecycle::choose;

impl Landscape {
    pub(crate) async fn config(&self, name: &str, spec: &Value) -> Result<()> {
        let object = json!({ "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "ModuleConfig",
            "metadata": { "name": name }, "spec": spec });
        self.apply(&object.to_string()).await.map(drop)
    }

    pub(crate) fn configs(&self) -> Result<Api<ModuleConfig>> {
        Ok(Api::namespaced(self.hub.client()?, &self.namespace))
    }

    pub(crate) async fn until_config(
        &self,
        what: &str,
        name: &str,
        is: impl Fn(&ModuleConfigStatus) -> bool,
    ) -> Result<()> {
        let (api, is) = (self.configs()?, &is);
        until_or_why(what, SOON, || async {
            let status = api.get(name).await?.status.unwrap_or_default();
            Ok(if is(&status) { Ok(()) } else { Err(serde_json::to_string_pretty(&status)?) })
        })
        .await
    }
}

/// Returns the numbers of matching and of refused Kymas.
pub(crate) fn counts(status: &ModuleConfigStatus) -> (i64, i64) {
    let count = |found: &Option<kyma_api::FleetCount>| found.as_ref().map_or(0, |found| found.count);
    (count(&status.matching), count(&status.refused))
}

pub(crate) fn is_in_force(status: &ModuleConfigStatus) -> bool {
    status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn message(kyma: &Kyma) -> Option<String> {
    kyma.status.as_ref()?.modules.as_ref()?.first()?.message.clone()
}

fn spec(component: &HelmComponent) -> Value {
    json!(component.spec)
}

/// A broken rule is reported, and the component stays unchanged.
async fn what_breaks_a_rule_changes_nothing(
    landscape: &Landscape,
    target: &Cluster,
    configured: &HelmComponent,
) -> Result<()> {
    for (choice, told) in [
        (
            json!([{ "name": "keda", "channel": "fast" }]),
            "stay in channel regular; required by ModuleConfig gold",
        ),
        (
            json!([{ "name": "keda", "version": "1.1.0" }]),
            "stay in channel regular; required by ModuleConfig gold",
        ),
        (
            json!([{ "name": "keda", "values": { "replicas": 9 } }]),
            "at most 3 replicas; required by ModuleConfig gold",
        ),
    ] {
        choose(target, choice).await?;
        until_remote(target, told, |kyma| message(kyma).is_some_and(|message| message.starts_with(told)))
            .await?;
    }
    let refused = landscape
        .until_kyma("a warning", "sample", |kyma| modules(kyma) == ["keda Warning 1.0.0 regular"])
        .await?;
    assert!(!is_ready(&refused));
    landscape.until_config("it is counted", "gold", |status| counts(status) == (1, 1)).await?;
    let untouched = landscape.components()?.get(&configured.name_any()).await?;
    assert_eq!(untouched.spec, configured.spec, "what runs is as before");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn module_config_wins_and_choice_that_breaks_a_rule_is_ignored() -> Result<()> {
    let landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("configured").await?;
    landscape.module("keda", &[("regular", "1.0.0"), ("fast", "1.1.0")]).await?;
    let rules = json!([
        { "expression": "!has(self.values.replicas) || self.values.replicas <= 3", "message": "at most 3 replicas" },
        { "expression": "has(self.channel) && self.channel == 'regular'", "message": "stay in channel regular" },
    ]);
    let gold = json!({ "matchLabels": { "tier": "gold" } });
    landscape
        .config(
            "gold",
            &json!({ "module": "keda", "selector": gold, "rules": rules, "values": { "debug": false },
            "overrides": { "component": { "drift": { "mode": "Warn" } } } }),
        )
        .await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda, values: {debug: true, replicas: 2}}]").await?;
    landscape.until_component("without the label it is the user's alone", "keda", |_| true).await?;
    landscape
        .until_config("it holds for nobody", "gold", |status| is_in_force(status) && counts(status) == (0, 0))
        .await?;

    let label = json!({ "metadata": { "labels": { "tier": "gold" } } });
    landscape.kymas()?.patch("sample", &PatchParams::default(), &Patch::Merge(&label)).await?;
    let configured = landscape
        .until_component("the label makes it hold", "keda", |component| {
            spec(component)["overrides"] == json!({ "debug": false })
        })
        .await?;
    assert_eq!(
        spec(&configured)["userValues"],
        json!({ "debug": true, "replicas": 2 }),
        "the user's stay visible"
    );
    assert_eq!(spec(&configured)["drift"]["mode"], "Warn");
    landscape.report_ready("keda").await?;
    landscape.until_kyma("the Kyma is Ready", "sample", is_ready).await?;
    landscape.until_config("it counts", "gold", |status| counts(status) == (1, 0)).await?;

    what_breaks_a_rule_changes_nothing(&landscape, &target, &configured).await?;
    landscape.configs()?.delete("gold", &DeleteParams::default()).await?;
    landscape
        .until_component("without it the user's choice counts", "keda", |component| {
            spec(component)["userValues"] == json!({ "replicas": 9 })
                && spec(component).get("overrides").is_none()
        })
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_config_freezes_module_until_fixed_across_restarts() -> Result<()> {
    let mut landscape = Landscape::start(&[]).await?;
    let (_target, kubeconfig) = landscape.target("misconfigured").await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    let before = landscape.until_component("it is installed", "keda", |_| true).await?;
    let broken = json!([{ "expression": "self.channel ==", "message": "never" }]);
    landscape.config("broken", &json!({ "module": "keda", "rules": broken })).await?;
    landscape
        .until_config("it says so", "broken", |status| {
            let conditions = status.conditions.clone().unwrap_or_default();
            conditions.iter().any(|condition| {
                condition.reason == "ModuleConfigInvalid"
                    && condition.message.starts_with("spec.rules[0] is not valid CEL")
            })
        })
        .await?;
    landscape
        .until_kyma("its user is told", "sample", |kyma| modules(kyma) == ["keda Warning 1.0.0 regular"])
        .await?;
    landscape.until_config("the Kyma is counted", "broken", |status| counts(status) == (1, 1)).await?;

    landscape.stop().await?;
    landscape.module("keda", &[("regular", "1.1.0")]).await?;
    landscape.run().await?;
    let told = landscape
        .until_kyma("nothing is upgraded past it", "sample", |kyma| {
            kyma.metadata.resource_version.is_some() && message(kyma).is_some()
        })
        .await?;
    assert!(message(&told).context("a message")?.contains("is invalid"), "{told:?}");
    let after = landscape.components()?.get(&before.name_any()).await?;
    assert_eq!(after.spec, before.spec);

    let mended = json!([{ "expression": "self.channel == 'regular'", "message": "stay" }]);
    landscape.config("broken", &json!({ "module": "keda", "rules": mended })).await?;
    let is_new = |component: &HelmComponent| {
        component.spec.module.as_ref().is_some_and(|module| module.version == "1.1.0")
    };
    landscape.until_component("the upgrade", "keda", is_new).await?;
    landscape.until_config("counts change after a restart", "broken", |status| counts(status) == (1, 0)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mandatory_module_takes_central_values_and_none_of_a_user() -> Result<()> {
    let landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("imposed").await?;
    landscape.mandatory_module("warden", "1.0.0").await?;
    landscape.config("warden", &json!({ "module": "warden", "values": { "strict": true } })).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[]").await?;
    until_remote(&target, "the target's Kyma is born", |_| true).await?;
    let entry = json!([{ "name": "warden", "values": { "strict": false, "evil": 1 }, "customResourcePolicy": "Ignore" }]);
    choose(&target, entry).await?;
    landscape.until_kyma("the entry is refused", "sample", |kyma| modules(kyma).len() == 1).await?;
    let component = landscape
        .until_component("the central values", "warden", |component| {
            spec(component)["overrides"] == json!({ "strict": true })
        })
        .await?;
    assert_eq!(spec(&component).get("userValues"), None, "what every Kyma gets is no user's to configure");
    assert_eq!(spec(&component)["resourcePolicy"], "CreateAndDelete");
    assert_eq!(component.labels().get(labels::MANDATORY_MODULE).map(String::as_str), Some("true"));
    Ok(())
}
