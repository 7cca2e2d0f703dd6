//! Removal of components.

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testbed::{rounds, until};

use crate::chart::push;
use crate::hooks::{borrowed, config, wished};
use crate::module::manifest;
use crate::world::{DEADLINE, apply_yaml, ready_of, world};

#[tokio::test]
async fn e08_module_without_default_cr_is_ready_and_orphan_keeps_it() -> Result<()> {
    let world = world().await?;
    let source = world.push("coin", "1.0.0", &manifest("coin", "low")).await?;
    let spec = json!({"source": source, "release": {"namespace": "coin-system"}});
    world.apply("coin", spec.clone()).await?;
    world.ready("coin", "True", "Ready").await?;
    let (coins, _) = crate::world::api(&world.target.client()?, "test.example.org/v1", "Coin", None).await?;
    let coins = coins.list(&ListParams::default()).await?;
    assert_eq!(coins.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["shipped"]);
    let before = world.on_target("v1", "ConfigMap", "coin-system", "coin").await?.expect("the ConfigMap");
    world.delete("coin", "Orphan").await?;
    world.gone("coin").await?;
    let after = world.on_target("v1", "ConfigMap", "coin-system", "coin").await?.expect("it stays");
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    world.apply("coin-again", spec).await?;
    world.ready("coin-again", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn e10_removal_waits_for_user_objects_and_then_deletes_all() -> Result<()> {
    rounds(waits_and_takes_everything).await
}

async fn waits_and_takes_everything() -> Result<()> {
    let world = world().await?;
    let source = world.push("book", "1.0.0", &manifest("book", "low")).await?;
    let resource = json!({
        "apiVersion": "test.example.org/v1", "kind": "Book", "metadata": {"name": "default"},
    });
    let spec = json!({"source": source, "release": {"namespace": "book-system"}, "resource": resource});
    world.apply("book", spec).await?;
    world.ready("book", "True", "Ready").await?;
    let target = world.target.client()?;
    let users = "apiVersion: test.example.org/v1\nkind: Book\nmetadata: {name: users, namespace: default}\n";
    apply_yaml(&target, users).await?;
    world.delete("book", "Delete").await?;
    let component = world.ready("book", "False", "DeletionBlocked").await?;
    let (_, _, message) = ready_of(&component).context("Ready is told")?;
    assert!(message.contains("Book default/users"), "{message}");
    let deployments: Api<Deployment> = Api::namespaced(target.clone(), "book-system");
    let before = deployments.get("book").await?.metadata.uid;
    deployments.delete("book", &DeleteParams::default()).await?;
    let made_again = until("what is there keeps working", DEADLINE, || async {
        let found = deployments.get_opt("book").await?.and_then(|found| found.metadata.uid);
        Ok(found.filter(|uid| Some(uid) != before.as_ref()))
    })
    .await?;
    until("the new object is in the inventory, so that it is removed too", DEADLINE, || async {
        let status = world.components()?.get("book").await?.status.unwrap_or_default();
        Ok(status.entries()?.iter().any(|entry| entry.uid == made_again).then_some(()))
    })
    .await?;
    let (books, _) = crate::world::api(&target, "test.example.org/v1", "Book", Some("default")).await?;
    books.delete("users", &DeleteParams::default()).await?;
    world.gone("book").await?;
    assert!(world.on_target("apps/v1", "Deployment", "book-system", "book").await?.is_none());
    assert!(world.on_target("v1", "ConfigMap", "book-system", "book").await?.is_none());
    let crd =
        world.on_target("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "books.test.example.org");
    assert!(crd.await?.is_none_or(|crd| crd.metadata.deletion_timestamp.is_some()), "the CRD goes last");
    Ok(())
}

#[tokio::test]
async fn a_removal_goes_on_when_its_kinds_have_long_been_gone() -> Result<()> {
    let world = world().await?;
    let both = [manifest("torch", "low"), manifest("wick", "low")].join("\n---\n");
    let source = world.push("torch", "1.0.0", &both).await?;
    let resource = json!({
        "apiVersion": "test.example.org/v1", "kind": "Torch", "metadata": {"name": "default"},
    });
    let spec = json!({"source": source, "release": {"namespace": "torch-system"}, "resource": resource});
    world.apply("torch", spec).await?;
    world.ready("torch", "True", "Ready").await?;
    let crds: Api<CustomResourceDefinition> = Api::all(world.target.client()?);
    let finalizers = |held: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": held}}));
    let user = PatchParams::default();
    crds.patch("wicks.test.example.org", &user, &finalizers(&["test.example.org/user"])).await?;
    world.delete("torch", "Delete").await?;
    until("all but the CRD that is held is gone and forgotten", DEADLINE, || async {
        let status = world.components()?.get("torch").await?.status.unwrap_or_default();
        let left: Vec<_> = status.entries()?.into_iter().map(|entry| entry.name).collect();
        Ok((left == ["wicks.test.example.org"] && status.resource.is_none()).then_some(()))
    })
    .await?;
    crds.patch("wicks.test.example.org", &user, &finalizers(&[])).await?;
    world.gone("torch").await?;
    Ok(())
}

#[tokio::test]
async fn a_removal_that_takes_too_long_names_what_it_waits_for() -> Result<()> {
    let world = world().await?;
    let manifest =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: glue, finalizers: [test.example.org/never]}\n";
    let source = world.push("glue", "1.0.0", manifest).await?;
    let spec = json!({
        "source": source, "release": {"namespace": "glue"}, "timeouts": {"deleteSeconds": 1},
    });
    world.apply("glue", spec).await?;
    world.ready("glue", "True", "Ready").await?;
    world.delete("glue", "Delete").await?;
    let component = world.ready("glue", "False", "DeletionTimeout").await?;
    let (_, _, message) = ready_of(&component).expect("Ready");
    assert_eq!(message, "not gone within 1 s: ConfigMap glue/glue");
    let configs: Api<ConfigMap> = Api::namespaced(world.target.client()?, "glue");
    let done = json!({"metadata": {"finalizers": null}});
    configs.patch("glue", &PatchParams::default(), &Patch::Merge(done)).await?;
    world.gone("glue").await?;
    Ok(())
}

#[tokio::test]
async fn unrecorded_objects_of_a_pass_are_deleted_with_the_component() -> Result<()> {
    let world = world().await?;
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: lint}\n";
    let source = world.push("lint", "1.0.0", manifest).await?;
    world.apply("lint", json!({"source": source, "release": {"namespace": "lint"}})).await?;
    world.ready("lint", "True", "Ready").await?;
    // An object of a kind that is not on record, as from content that was reverted.
    let owner = kyma_api::names::owner_hash(crate::world::HUB_NAMESPACE, "lint");
    let labels = json!({kyma_object_set::OWNER_LABEL: owner});
    let stray =
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "lint", "labels": labels}});
    let quotas: Api<ResourceQuota> = Api::namespaced(world.target.client()?, "lint");
    quotas.patch("lint", &PatchParams::apply("helm-component"), &Patch::Apply(stray)).await?;
    let copied = json!({"metadata": {"name": "copied", "labels": labels}});
    quotas.create(&PostParams::default(), &serde_json::from_value(copied)?).await?;
    world.delete("lint", "Delete").await?;
    world.gone("lint").await?;
    assert!(world.on_target("v1", "ConfigMap", "lint", "lint").await?.is_none());
    assert!(quotas.get_opt("lint").await?.is_none(), "it was applied by the component");
    assert!(quotas.get_opt("copied").await?.is_some(), "somebody else made it");
    Ok(())
}

/// Returns a webhook for one request in a namespace, without a backend.
fn dead_webhook(namespace: &str, (group, resource): (&str, &str), operation: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [{
            "name": format!("{namespace}.example.org"), "sideEffects": "None", "timeoutSeconds": 1,
            "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "clientConfig": {"service": {"name": "absent", "namespace": namespace}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [{
                "apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": [operation],
            }],
        }],
    })
}

async fn has_webhook(name: &str) -> Result<bool> {
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(world().await?.target.client()?);
    Ok(webhooks.get_opt(name).await?.is_some())
}

#[tokio::test]
async fn dead_webhook_of_module_does_not_keep_its_default_resource() -> Result<()> {
    let world = world().await?;
    let name = "latch";
    let webhook = dead_webhook(name, ("test.example.org", "latchs"), "DELETE");
    let source = world.push(name, "1.0.0", &format!("{}---\n{webhook}\n", manifest(name, "low"))).await?;
    let resource = json!({
        "apiVersion": "test.example.org/v1", "kind": "Latch", "metadata": {"name": "default"},
    });
    let spec = json!({"source": source, "release": {"namespace": name}, "resource": resource});
    world.apply(name, spec).await?;
    world.ready(name, "True", "Ready").await?;
    let target = world.target.client()?;
    let (latches, _) = crate::world::api(&target, "test.example.org/v1", "Latch", Some(name)).await?;
    let dry_run = DeleteParams { dry_run: true, ..DeleteParams::default() };
    until("the webhook is called", DEADLINE, || async {
        Ok(latches.delete("default", &dry_run).await.is_err().then_some(()))
    })
    .await?;
    world.delete(name, "Delete").await?;
    world.gone(name).await?;
    assert!(!has_webhook(name).await?);
    Ok(())
}

#[tokio::test]
async fn dead_webhook_of_chart_does_not_block_hooks_of_the_removal() -> Result<()> {
    let world = world().await?;
    let name = "hasp";
    let webhook = dead_webhook(name, ("", "configmaps"), "CREATE");
    let files = [
        config("main", ""),
        config("last", "helm.sh/hook: pre-delete"),
        ("templates/webhook.yaml".to_owned(), format!("{webhook}\n")),
    ];
    let source = push(world, name, "1.0.0", &borrowed(&files)).await?;
    world.apply(name, wished(&source, name, "low")).await?;
    world.ready(name, "True", "Ready").await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, name);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let probe = serde_json::from_value(json!({"metadata": {"name": "probe"}}))?;
    until("the webhook is called", DEADLINE, || async {
        Ok(maps.create(&dry_run, &probe).await.is_err().then_some(()))
    })
    .await?;
    world.delete(name, "Delete").await?;
    world.gone(name).await?;
    assert!(!has_webhook(name).await?);
    assert!(maps.get_opt("last").await?.is_some(), "the hook ran");
    Ok(())
}
