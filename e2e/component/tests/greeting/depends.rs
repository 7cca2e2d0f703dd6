//! A component of another team waits for others as HelmComponents do: the driver does it.

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use kyma_sdk::api::{HelmComponent, State};
use serde_json::{Value, json};
use testbed::until;

use crate::fixture::{DEADLINE, Fixture, test_crd};

fn on(name: &str) -> Value {
    json!({"apiVersion": "demo.kyma-project.io/v1alpha1", "kind": "Greeting", "name": name})
}

/// The base component as its own reconciler would report it.
async fn reported(base: &Api<HelmComponent>, status: &str) -> Result<()> {
    let condition = json!({"type": "Ready", "status": status, "reason": "Tested", "message": "",
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let report = json!({"status": {"observedGeneration": 1, "conditions": [condition]}});
    base.patch_status("base", &PatchParams::default(), &Patch::Merge(&report)).await?;
    Ok(())
}

async fn until_dependencies_say(fixture: &Fixture, name: &str, words: &str) -> Result<()> {
    let greetings: Api<greeting_component::Greeting> =
        Api::namespaced(fixture.hub.client()?, fixture.namespace());
    until(&format!("DependenciesReady of {name} says {words}"), DEADLINE, || async {
        let status = greetings.get(name).await?.status.unwrap_or_default();
        let condition = status.conditions.iter().find(|one| one.type_ == "DependenciesReady");
        Ok(condition.filter(|condition| condition.message.contains(words)).map(|_| ()))
    })
    .await
}

#[tokio::test]
async fn a_greeting_waits_for_another_and_is_removed_before_it() -> Result<()> {
    let fixture = Fixture::new("after").await?;
    let after =
        json!({"text": "Hello", "deletionPolicy": "Delete", "dependsOn": [{"component": on("first")}]});
    fixture.create("second", after).await?;
    fixture.until_ready_says("second", "Greeting first does not exist").await?;
    assert_eq!(fixture.greeting_on_target("second").await?, None);
    fixture.create("first", json!({"text": "Hello", "deletionPolicy": "Delete"})).await?;
    fixture.until_state("second", State::Ready).await?;
    fixture.delete("first").await?;
    fixture.until_ready_says("first", "these depend on it: Greeting second").await?;
    assert_eq!(fixture.greeting_on_target("first").await?.as_deref(), Some("Hello"));
    fixture.delete("second").await?;
    fixture.until_gone("second").await?;
    fixture.until_gone("first").await?;
    fixture.stop().await
}

#[tokio::test]
async fn a_greeting_waits_for_a_helm_component() -> Result<()> {
    let fixture = Fixture::new("based").await?;
    let base: Api<HelmComponent> = Api::namespaced(fixture.hub.client()?, fixture.namespace());
    fixture.create("based", json!({"text": "Hello", "dependsOn": [{"component": {"name": "base"}}]})).await?;
    fixture.until_ready_says("based", "HelmComponent base does not exist").await?;
    let manifests = json!({"url": "https://example.org/a.yaml"});
    let made = json!({"apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
        "metadata": {"name": "base"}, "spec": {"source": {"manifests": manifests}}});
    base.create(&PostParams::default(), &serde_json::from_value(made)?).await?;
    fixture.until_ready_says("based", "HelmComponent base is not Ready").await?;
    assert_eq!(fixture.greeting_on_target("based").await?, None);
    reported(&base, "True").await?;
    fixture.until_state("based", State::Ready).await?;
    reported(&base, "False").await?;
    until_dependencies_say(&fixture, "based", "HelmComponent base is not Ready").await?;
    assert_eq!(fixture.greeting_on_target("based").await?.as_deref(), Some("Hello"));
    reported(&base, "True").await?;
    until_dependencies_say(&fixture, "based", "").await?;
    fixture.stop().await
}

async fn until_dependencies_are(fixture: &Fixture, name: &str, status: &str, message: &str) -> Result<()> {
    let greetings: Api<greeting_component::Greeting> =
        Api::namespaced(fixture.hub.client()?, fixture.namespace());
    until(&format!("DependenciesReady of {name} is {status}: {message}"), DEADLINE, || async {
        let conditions = greetings.get(name).await?.status.unwrap_or_default().conditions;
        let found = conditions.iter().find(|one| one.type_ == "DependenciesReady");
        Ok(found.filter(|found| found.status == status && found.message == message).map(|_| ()))
    })
    .await
}

#[tokio::test]
async fn a_missing_kind_is_reported_until_the_target_serves_it() -> Result<()> {
    let fixture = Fixture::new("lamps").await?;
    let lamp =
        |version: &str| json!({"api": {"group": "lamps.example.org", "version": version, "kind": "Lamp"}});
    let missing =
        |version: &str| format!("the target does not serve Lamp.lamps.example.org in version {version}");
    fixture.create("lamps", json!({"text": "Hello", "dependsOn": [lamp("v1")]})).await?;
    until_dependencies_are(&fixture, "lamps", "False", &missing("v1")).await?;
    // A missing kind does not hold back the component.
    fixture.until_state("lamps", State::Ready).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(fixture.target.client()?);
    crds.create(&PostParams::default(), &test_crd("Lamp")?).await?;
    until_dependencies_are(&fixture, "lamps", "True", "").await?;
    fixture.change("lamps", json!({"dependsOn": [lamp("v2")]})).await?;
    until_dependencies_are(&fixture, "lamps", "False", &missing("v2")).await?;
    fixture.change("lamps", json!({"dependsOn": null})).await?;
    until_dependencies_are(&fixture, "lamps", "True", "").await?;
    crds.delete("lamps.lamps.example.org", &DeleteParams::default()).await?;
    fixture.stop().await
}
