//! Rules of ModuleConfigs on modules' own objects: the target enforces them while it has the module.

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use kyma_api::condition::{self, types};
use kyma_api::{HelmComponent, Kyma, ModuleConfigStatus, labels};
use serde_json::{Value, json};
use testbed::{Cluster, until};

use crate::landscape::{Landscape, SOON, dynamic, install_crds, is_ready, until_remote};
use crate::lifecycle::choose;

const GROUP: &str = "lantern.example.org";

/// A cluster with Lanterns and policies.
struct Ground {
    lanterns: Api<DynamicObject>,
    policies: Api<ValidatingAdmissionPolicy>,
    bindings: Api<ValidatingAdmissionPolicyBinding>,
}

impl Ground {
    async fn of(cluster: &Cluster) -> Result<Self> {
        let client = cluster.client()?;
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let crd = json!({
            "metadata": {"name": format!("lanterns.{GROUP}")},
            "spec": {
                "group": GROUP, "scope": "Namespaced", "names": {"kind": "Lantern", "plural": "lanterns"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": schema}}],
            },
        });
        install_crds(&client, vec![serde_json::from_value(crd)?]).await?;
        let kind = json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Lantern" });
        let lanterns = dynamic(client.clone(), &kind, "default")?;
        Ok(Self { lanterns, policies: Api::all(client.clone()), bindings: Api::all(client) })
    }

    async fn create(&self, name: &str, watts: u32, only_tried: bool) -> kube::Result<DynamicObject> {
        let params = PostParams { dry_run: only_tried, ..PostParams::default() };
        self.lanterns.create(&params, &lantern(name, watts)).await
    }

    /// An apiserver enforces a policy shortly after storing it.
    async fn until_refused(&self, watts: u32, message: &str) -> Result<()> {
        until(&format!("{watts} W are refused: {message}"), SOON, || async {
            match self.create("tried", watts, true).await {
                Ok(_) => Ok(None),
                Err(kube::Error::Api(status)) if status.message.contains(message) => Ok(Some(())),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    async fn until_accepted(&self, watts: u32) -> Result<()> {
        until(&format!("{watts} W are accepted"), SOON, || async {
            Ok(self.create("tried", watts, true).await.ok().map(drop))
        })
        .await
    }

    /// Returns the number of the operator's policies and bindings.
    async fn count(&self) -> Result<(usize, usize)> {
        let ours = ListParams::default().labels(labels::MODULE_CONFIG);
        Ok((self.policies.list(&ours).await?.items.len(), self.bindings.list(&ours).await?.items.len()))
    }

    async fn until_clean(&self) -> Result<()> {
        until("no policy is left", SOON, || async { Ok((self.count().await? == (0, 0)).then_some(())) }).await
    }
}

fn lantern(name: &str, watts: u32) -> DynamicObject {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", "Lantern"));
    DynamicObject::new(name, &kind).data(json!({"spec": {"watts": watts}}))
}

fn rules(expression: &str) -> Value {
    json!({ "module": "keda", "resourceRules": [{ "group": GROUP, "resource": "lanterns",
        "expression": expression, "message": "lanterns of this fleet stay dim" }] })
}

/// Returns status, reason and message of the condition.
fn told(kyma: &Kyma) -> Option<(String, String, String)> {
    let conditions = kyma.status.as_ref()?.conditions.as_deref()?;
    let told = condition::get(conditions, types::RESOURCE_RULES_APPLIED)?;
    Some((told.status.clone(), told.reason.clone(), told.message.clone()))
}

/// Status and message of the condition of a ModuleConfig.
fn told_by_config(status: &ModuleConfigStatus) -> Option<(&str, &str)> {
    let told = condition::get(status.conditions.as_deref()?, types::RESOURCE_RULES_APPLIED)?;
    Some((told.status.as_str(), told.message.as_str()))
}

fn no_target_refuses(status: &ModuleConfigStatus) -> bool {
    told_by_config(status).is_some_and(|(status, _)| status == "True")
}

fn are_in_force(kyma: &Kyma) -> bool {
    told(kyma).is_some_and(|(status, ..)| status == "True")
}

async fn edit(api: &Api<DynamicObject>, name: &str, edit: Value) -> kube::Result<DynamicObject> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(edit)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_rules_hold_on_target_while_module_is_installed() -> Result<()> {
    let landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("ruled").await?;
    let ground = Ground::of(&target).await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.config("dim", &rules("object.spec.watts <= 10")).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[]").await?;
    landscape.until_kyma("it is Ready without the module", "sample", is_ready).await?;
    assert_eq!(ground.count().await?, (0, 0), "nothing is asked of a target without the module");
    ground.create("old", 60, false).await?;
    edit(&ground.lanterns, "old", json!({"metadata": {"finalizers": ["example.org/lamplighter"]}})).await?;

    choose(&target, json!([{ "name": "keda" }])).await?;
    landscape.until_component("keda", "keda", |_| true).await?;
    landscape.report_ready("keda").await?;
    until_remote(&target, "they are in force", |kyma| are_in_force(kyma) && is_ready(kyma)).await?;
    ground.until_refused(11, "lanterns of this fleet stay dim").await?;
    ground.create("new", 10, false).await?;
    what_was_there_may_go(&ground).await?;
    what_was_edited_is_put_right(&ground).await?;

    landscape.config("dim", &rules("object.spec.watts <= 20")).await?;
    ground.until_accepted(11).await?;
    ground.until_refused(21, "lanterns of this fleet stay dim").await?;
    landscape.config("dim", &rules("object.spec.watts <=")).await?;
    let refused = |kyma: &Kyma| {
        told(kyma).is_some_and(|(status, reason, message)| {
            status == "False" && reason == "ApplyRefused" && message.contains("rules of ModuleConfig dim")
        })
    };
    let warned = landscape.until_kyma("a target that refuses a rule is told of", "sample", refused).await?;
    assert!(!is_ready(&warned));
    ground.until_refused(21, "lanterns of this fleet stay dim").await?;
    the_config_names_a_kyma_whose_target_refuses_it(&landscape, &ground).await?;

    landscape.configs()?.delete("dim", &DeleteParams::default()).await?;
    ground.until_clean().await?;
    landscape.until_kyma("nothing is told of rules", "sample", |kyma| told(kyma).is_none()).await?;
    ground.until_accepted(1_000).await
}

/// The rule of ModuleConfig dim is not valid CEL. Rules of another one are in force beside it.
async fn the_config_names_a_kyma_whose_target_refuses_it(
    landscape: &Landscape,
    ground: &Ground,
) -> Result<()> {
    let names_the_kyma = |status: &ModuleConfigStatus| {
        told_by_config(status).is_some_and(|(status, message)| {
            status == "False" && message.contains("1 in all: sample (ApplyRefused);")
        })
    };
    landscape.until_config("the ModuleConfig names the Kyma", "dim", names_the_kyma).await?;
    landscape.config("tall", &rules("!has(object.spec.height) || object.spec.height >= 1")).await?;
    landscape.until_config("no target refuses the other one", "tall", no_target_refuses).await?;
    until("both ModuleConfigs have their policies", SOON, || async {
        Ok((ground.count().await? == (2, 2)).then_some(()))
    })
    .await?;
    landscape.until_config("the first one is still refused", "dim", names_the_kyma).await?;
    landscape.configs()?.delete("tall", &DeleteParams::default()).await?;
    until(
        "policies of the deleted ModuleConfig are deleted, those of the refused one stay",
        SOON,
        || async { Ok((ground.count().await? == (1, 1)).then_some(())) },
    )
    .await?;
    ground.until_refused(21, "lanterns of this fleet stay dim").await?;
    landscape.config("dim", &rules("object.spec.watts <= 20")).await?;
    landscape.until_config("the mended rule is taken", "dim", no_target_refuses).await
}

/// An object from before may be labelled and may go, but not change against the rules.
async fn what_was_there_may_go(ground: &Ground) -> Result<()> {
    edit(&ground.lanterns, "old", json!({"metadata": {"labels": {"lit": "true"}}})).await?;
    let brighter = edit(&ground.lanterns, "old", json!({"spec": {"watts": 61}})).await;
    assert!(brighter.is_err_and(|error| error.to_string().contains("stay dim")));
    ground.lanterns.delete("old", &DeleteParams::default()).await?;
    edit(&ground.lanterns, "old", json!({"metadata": {"finalizers": null}})).await?;
    assert!(ground.lanterns.get_opt("old").await?.is_none());
    Ok(())
}

async fn what_was_edited_is_put_right(ground: &Ground) -> Result<()> {
    let ours = ListParams::default().labels(labels::MODULE_CONFIG);
    let binding = ground.bindings.list(&ours).await?.items.pop().context("the binding")?;
    let name = binding.name_any();
    ground.bindings.delete(&name, &DeleteParams::default()).await?;
    until("the binding is created again", SOON, || async {
        let again = ground.bindings.get_opt(&name).await?;
        Ok(again.filter(|again| again.uid() != binding.uid()).map(drop))
    })
    .await?;
    let harmless = json!({"spec": {"validations": [{"expression": "true"}]}});
    ground.policies.patch(&name, &PatchParams::default(), &Patch::Merge(harmless)).await?;
    until("the policy is corrected", SOON, || async {
        let policy = ground.policies.get(&name).await?;
        let validations = policy.spec.and_then(|spec| spec.validations).unwrap_or_default();
        Ok(validations.iter().any(|one| one.expression == "object.spec.watts <= 10").then_some(()))
    })
    .await?;
    ground.until_refused(11, "lanterns of this fleet stay dim").await
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_go_with_the_module_and_with_the_kyma() -> Result<()> {
    let landscape = Landscape::start(&["--mode=single-cluster"]).await?;
    let ground = Ground::of(&landscape.hub).await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.config("dim", &rules("object.spec.watts <= 10")).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    let component = landscape.until_component("keda", "keda", |_| true).await?.name_any();
    ground.until_refused(11, "lanterns of this fleet stay dim").await?;

    landscape.choose("sample", json!([])).await?;
    landscape
        .until_component("its removal is ordered", "keda", |held| held.metadata.deletion_timestamp.is_some())
        .await?;
    assert_eq!(ground.count().await?, (1, 1), "the module is still there");
    landscape.let_component_go(&component).await?;
    ground.until_clean().await?;

    landscape.choose("sample", json!([{ "name": "keda" }])).await?;
    ground.until_refused(11, "lanterns of this fleet stay dim").await?;
    landscape.kymas()?.delete("sample", &DeleteParams::default()).await?;
    let component = landscape
        .until_component("its removal is ordered", "keda", |held| held.metadata.deletion_timestamp.is_some())
        .await?
        .name_any();
    landscape.let_component_go(&component).await?;
    landscape.until_kyma_is_gone("sample").await?;
    assert_eq!(ground.count().await?, (0, 0));
    Ok(())
}

/// Nothing proves that the last ModuleConfig was deleted on request while no operator ran.
#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_vanished_while_no_operator_ran_stays_in_force() -> Result<()> {
    let mut landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("forsaken").await?;
    let ground = Ground::of(&target).await?;
    let config = |watts: u32| {
        let mut spec = rules(&format!("object.spec.watts <= {watts}"));
        spec["values"] = json!({ "watts": watts });
        spec
    };
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.config("dim", &config(10)).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    let has = |watts: u32| {
        move |component: &HelmComponent| json!(component.spec)["overrides"] == json!({ "watts": watts })
    };
    landscape.until_component("the forced value", "keda", has(10)).await?;
    landscape.report_ready("keda").await?;
    until_remote(&target, "the policy is in force", are_in_force).await?;

    landscape.stop().await?;
    landscape.configs()?.delete("dim", &DeleteParams::default()).await?;
    landscape.run().await?;
    let is_missing = |kyma: &Kyma| {
        let mut modules = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
        modules.any(|module| {
            module.reason.as_deref() == Some("ModuleConfigMissing")
                && module.message.as_deref().is_some_and(|message| message.contains("ModuleConfig dim"))
        })
    };
    landscape.until_kyma("the ModuleConfig is missed", "sample", is_missing).await?;
    choose(&target, json!([{ "name": "keda", "values": { "watts": 99 } }])).await?;
    landscape.until_component("the forced value stays", "keda", has(10)).await?;
    assert_eq!(ground.count().await?, (1, 1), "the policy was lifted");

    landscape.config("dim", &config(20)).await?;
    landscape.until_component("it is in force again", "keda", has(20)).await?;
    ground.until_refused(21, "lanterns of this fleet stay dim").await?;
    landscape.configs()?.delete("dim", &DeleteParams::default()).await?;
    let is_free = |component: &HelmComponent| json!(component.spec).get("overrides").is_none();
    landscape.until_component("its deletion releases the value", "keda", is_free).await?;
    ground.until_clean().await
}
