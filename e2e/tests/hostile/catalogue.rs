//! A catalogue that refers to objects of others, with names at and beyond limits.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::catalogue::{assign, offer, publish, publish_greeting};
use e2e::landscape::{HUB_NAMESPACE, TARGET_NAMESPACE};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kyma_api::{HelmComponent, Kyma, ModuleTemplate, names};
use serde_json::{Value, json};
use testbed::until_or_why;

use crate::readers;
use crate::world::{ANCHOR, CALM, World, kyma, reason_of};

const DEADLINE: Duration = Duration::from_mins(2);
/// A module name of the maximum length.
const LONGEST: &str = "catalogue-module-with-the-longest-name-that-any-template-carries";
/// API version and kind of a HelmComponent.
pub(crate) const HELM: (&str, &str) = ("component.kyma-project.io/v1alpha1", "HelmComponent");

/// Returns a Kyma name of the maximum length.
pub(crate) fn shop() -> String {
    format!("shop-{}", "k".repeat(248))
}

pub(crate) async fn scenario(world: &World) -> Result<()> {
    join(world).await?;
    foreign_kinds(world).await?;
    fields_of_others(world).await?;
    readers::objects_of_others(world).await?;
    crds_of_others(world).await?;
    names_over_limits(world).await?;
    names_at_limits(world).await?;
    unlisted_pins(world).await
}

async fn join(world: &World) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kubeconfig-shop"},
        "stringData": {"config": world.landscape.access(&world.shop).await?.kubeconfig()},
    });
    let secrets: Api<Secret> = Api::namespaced(world.hub.clone(), HUB_NAMESPACE);
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    let mut kyma = serde_json::to_value(kyma(&shop(), &json!([{"name": ANCHOR}]))?)?;
    kyma["spec"]["kubeconfigSecretRef"] = json!({"name": "kubeconfig-shop", "key": "config"});
    world.kymas().create(&PostParams::default(), &serde_json::from_value(kyma)?).await?;
    world.is_ready(&shop()).await
}

/// Publishes a module with this component, and assigns its version to the channel.
pub(crate) async fn template(world: &World, module: &str, version: &str, component: &Value) -> Result<()> {
    let template: ModuleTemplate = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {"name": format!("{module}-{version}")},
        "spec": {"moduleName": module, "version": version, "descriptor": {}, "component": component},
    }))?;
    publish(world.hub.clone(), template).await?;
    assign(world.hub.clone(), module, version).await
}

/// Enables a module beside `anchor` in the Kyma of the shop's target.
pub(crate) async fn choose(world: &World, entry: &Value) -> Result<()> {
    let kymas: Api<Kyma> = Api::namespaced(world.shop.client()?, TARGET_NAMESPACE);
    let choice = Patch::Merge(json!({"spec": {"modules": [{"name": ANCHOR}, entry]}}));
    kymas.patch("default", &PatchParams::default(), &choice).await?;
    Ok(())
}

/// Waits until the module is refused for this reason while its neighbour is Ready.
async fn is_refused(world: &World, module: &str, reason: &str) -> Result<()> {
    until_or_why(&format!("{module} is refused for {reason}"), DEADLINE, || async {
        let status = serde_json::to_value(world.kymas().get(&shop()).await?)?["status"].clone();
        let ready = reason_of(&status["conditions"], "Ready");
        let is_named = status["conditions"].to_string().contains(module)
            || status["modules"].to_string().contains(module);
        let neighbour = status["modules"]
            .as_array()
            .is_some_and(|all| all.iter().any(|line| line["name"] == ANCHOR && line["state"] == "Ready"));
        let refused = ready.is_some_and(|(is, why)| is == "False" && why == reason);
        Ok(if refused && is_named && neighbour { Ok(()) } else { Err(status.to_string()) })
    })
    .await
}

async fn foreign_kinds(world: &World) -> Result<()> {
    for (number, (api_version, kind)) in [
        ("pirates.example.com/v1", "Pirate"),
        ("apps/v1", "Deployment"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("operator.kyma-project.io/v1beta2", "Kyma"),
        ("operator.kyma-project.io/v1alpha1", "Pause"),
        ("component.kyma-project.io/v1alpha1", "Anything"),
    ]
    .into_iter()
    .enumerate()
    {
        let module = format!("pirate-{}", ["one", "two", "three", "four", "five", "six", "seven"][number]);
        let component = json!({"apiVersion": api_version, "kind": kind, "spec": {}});
        template(world, &module, "1.0.0", &component).await?;
        choose(world, &json!({"name": module})).await?;
        is_refused(world, &module, "ComponentGroupNotAllowed")
            .await
            .with_context(|| format!("{api_version} {kind}"))?;
    }
    Ok(())
}

/// Checks that a template's `component.spec` cannot set the target, module, users' values, deletion policy or
/// adoption: kyma-operator sets these.
async fn fields_of_others(world: &World) -> Result<()> {
    let spec = json!({
        "source": {"manifests": {"url": "http://127.0.0.1:1/none.yaml"}},
        "target": {"kubeconfigSecretRef": {"name": format!("kubeconfig-{CALM}"), "key": "config"}},
        "module": {"name": ANCHOR, "version": "9.9.9"},
        "userValues": {"not": "the user's"},
        "deletionPolicy": "Delete",
        "adopt": "Always",
    });
    let component = json!({"apiVersion": HELM.0, "kind": HELM.1, "spec": spec});
    template(world, "reaching", "1.0.0", &component).await?;
    choose(world, &json!({"name": "reaching"})).await?;
    let components: Api<HelmComponent> = Api::namespaced(world.hub.clone(), HUB_NAMESPACE);
    let name = names::component_name(&shop(), "reaching");
    let found = until_or_why("its component is there", DEADLINE, || async {
        Ok(components.get_opt(&name).await?.ok_or_else(String::new))
    })
    .await?;
    let found = serde_json::to_value(found)?;
    let wanted = [
        ("/spec/target/kubeconfigSecretRef/name", json!("kubeconfig-shop")),
        ("/spec/module/name", json!("reaching")),
        ("/spec/module/version", json!("1.0.0")),
        ("/spec/deletionPolicy", json!("Orphan")),
        ("/metadata/labels/operator.kyma-project.io~1module-name", json!("reaching")),
        ("/metadata/labels/operator.kyma-project.io~1kyma-name", json!(names::label_value(&shop()))),
    ];
    for (field, value) in wanted {
        ensure!(found.pointer(field) == Some(&value), "{field} is {:?}", found.pointer(field));
    }
    ensure!(found["spec"]["userValues"]["not"].is_null(), "values that no user gave: {found}");
    ensure!(found["spec"]["adopt"] != "Always", "it takes over what belongs to others");
    Ok(())
}

/// Checks that templates are refused whose CRD is one of the operators', of another kind than the template's, or
/// different from the CRD of the same kind.
async fn crds_of_others(world: &World) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(world.hub.clone());
    publish_greeting(&world.landscape).await?;
    assign(world.hub.clone(), "greeting", "1.0.0").await?;
    choose(world, &json!({"name": "greeting"})).await?;
    let name = "greetings.demo.kyma-project.io";
    let crd = until_or_why("the CRD of the first is there", DEADLINE, || async {
        Ok(crds.get_opt(name).await?.ok_or_else(String::new))
    })
    .await?;
    let mut ours = serde_json::to_value(crds.get("kymas.operator.kyma-project.io").await?)?;
    ours["metadata"] = json!({"name": "kymas.operator.kyma-project.io"});
    ours["status"] = Value::Null;
    let before = specs(&crds).await?;
    let mut differing = serde_json::to_value(&crd)?;
    differing["metadata"] = json!({"name": name});
    differing["status"] = Value::Null;
    let version = differing["spec"]["versions"][0]["name"].as_str().context("a version")?.to_owned();
    let greeting = format!("demo.kyma-project.io/{version}");
    for (module, kind, crd, reason) in [
        ("ships-our-crd", "Greeting", &ours, "ContractViolated"),
        ("ships-another-kind", "Salute", &differing, "ContractViolated"),
        ("crd-that-differs", "Greeting", &differing, "CrdConflict"),
    ] {
        let component = json!({"apiVersion": greeting, "kind": kind, "spec": {"text": "x"}, "crd": crd});
        template(world, module, "9.0.0", &component).await?;
        choose(world, &json!({"name": module})).await?;
        is_refused(world, module, reason).await?;
    }
    ensure!(before == specs(&crds).await?, "a CRD of the hub was changed");
    Ok(())
}

/// Returns name and spec of every CRD.
async fn specs(crds: &Api<CustomResourceDefinition>) -> Result<Value> {
    let listed = crds.list(&ListParams::default()).await?.items;
    Ok(listed.iter().map(|crd| json!({"name": crd.metadata.name, "spec": crd.spec})).collect())
}

/// Checks that the API refuses such names, or that the Kyma reports them.
async fn names_over_limits(world: &World) -> Result<()> {
    let over = [
        format!("{LONGEST}s"),
        "naïve-module".to_owned(),
        "módulo".to_owned(),
        "UPPER".to_owned(),
        "a".repeat(254),
    ];
    for module in &over {
        let component = json!({"apiVersion": HELM.0, "kind": HELM.1, "spec": {}});
        ensure!(
            template(world, module, "1.0.0", &component).await.is_err(),
            "a template took module {module}"
        );
        let channels = json!({"channels": [{"channel": "regular", "version": "1.0.0"}]});
        ensure!(offer(world.hub.clone(), module, &channels).await.is_err(), "a release took module {module}");
    }
    for name in ["k".repeat(254), "ünïcode".to_owned(), "under_score".to_owned()] {
        let created = world.kymas().create(&PostParams::default(), &kyma(&name, &json!([]))?).await;
        ensure!(created.is_err(), "a Kyma is called {name}");
    }
    for entry in [
        json!({"name": "x".repeat(65)}),
        json!({"name": ANCHOR, "version": "not.a.version"}),
        json!({"name": "é".repeat(64)}),
    ] {
        if choose(world, &entry).await.is_ok() {
            until_or_why(&format!("{entry} is refused"), DEADLINE, || async {
                let status = serde_json::to_value(world.kymas().get(&shop()).await?)?["status"].clone();
                let ready = reason_of(&status["conditions"], "Ready");
                let is_refused = ready.is_some_and(|(_, why)| {
                    matches!(why.as_str(), "SelectionInvalid" | "ModuleReleaseMetaMissing")
                });
                Ok(if is_refused { Ok(()) } else { Err(status.to_string()) })
            })
            .await?;
        }
    }
    Ok(())
}

/// Checks that a module with the longest name runs on a Kyma with the longest name, so that all names made of them
/// fit.
async fn names_at_limits(world: &World) -> Result<()> {
    ensure!(LONGEST.len() == 64 && shop().len() == 253, "{} {}", LONGEST.len(), shop().len());
    world.publish(LONGEST, "1.0.0").await?;
    choose(world, &json!({"name": LONGEST})).await?;
    until_or_why("the module with the longest name runs", DEADLINE, || async {
        let status = serde_json::to_value(world.kymas().get(&shop()).await?)?["status"].clone();
        let runs = status["modules"]
            .as_array()
            .is_some_and(|all| all.iter().any(|line| line["name"] == LONGEST && line["state"] == "Ready"));
        Ok(if runs { Ok(()) } else { Err(status.to_string()) })
    })
    .await
}

/// Checks that pins of versions are refused that exist but are not offered, or do not exist.
async fn unlisted_pins(world: &World) -> Result<()> {
    world.publish("pinned", "1.0.0").await?;
    world.publish("pinned", "1.1.0").await?;
    offer(world.hub.clone(), "pinned", &json!({"versions": [{"version": "1.0.0"}]})).await?;
    for version in ["1.1.0", "9.9.9", "1.0.0-rc", "1.0.1"] {
        choose(world, &json!({"name": "pinned", "version": version})).await?;
        is_refused(world, "pinned", "VersionNotListed").await.with_context(|| version.to_owned())?;
    }
    Ok(())
}
