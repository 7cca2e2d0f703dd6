//! The driver creates the default custom resource of a component once, and leaves it to the user from then on.

use anyhow::Result;
use k8s_openapi::{
    api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use kyma_sdk::api::{CreatedResource, State};
use serde_json::{Value, json};
use testbed::until;

use crate::fixture::{DEADLINE, Fixture, test_crd};

/// Spec of a greeting whose default custom resource is a ConfigMap of this name, in the target namespace.
fn with_default(name: &str, policy: &str) -> Value {
    let resource = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"from": "module"}});
    json!({"text": "Hello", "deletionPolicy": "Delete", "resource": resource, "resourcePolicy": policy})
}

/// Waits until the status of a greeting has a record of the default custom resource that satisfies the predicate.
async fn until_recorded(
    fixture: &Fixture,
    name: &str,
    what: &str,
    is: impl Fn(&CreatedResource) -> bool,
) -> Result<CreatedResource> {
    let greetings: Api<greeting_component::Greeting> =
        Api::namespaced(fixture.hub.client()?, fixture.namespace());
    until(&format!("status.resource of {name} is {what}"), DEADLINE, || async {
        let record = greetings.get(name).await?.status.unwrap_or_default().resource;
        Ok(record.filter(&is))
    })
    .await
}

/// Returns the value that identifies the writer of the default custom resource, or `None` if it does not exist.
async fn written_by(fixture: &Fixture, name: &str) -> Result<Option<String>> {
    let map = fixture.on_target::<ConfigMap>()?.get_opt(name).await?;
    Ok(map.and_then(|map| map.data).and_then(|mut data| data.remove("from")))
}

#[tokio::test]
async fn default_resource_is_created_once_and_absent_after_deletion() -> Result<()> {
    let mut fixture = Fixture::new("default-once").await?;
    fixture.create("once", with_default("once-default", "CreateAndDelete")).await?;
    fixture.until_state("once", State::Ready).await?;
    let record = until_recorded(&fixture, "once", "present", |record| record.uid.is_some()).await?;
    assert_eq!((record.kind.as_str(), record.namespace.as_deref()), ("ConfigMap", Some("kyma-system")));
    assert_eq!(record.absent, None);
    let maps = fixture.on_target::<ConfigMap>()?;
    let edit = json!({"data": {"from": "user"}});
    maps.patch("once-default", &PatchParams::default(), &Patch::Merge(&edit)).await?;
    fixture.until_settled("once").await?;
    assert_eq!(written_by(&fixture, "once-default").await?.as_deref(), Some("user"));

    maps.delete("once-default", &DeleteParams::default()).await?;
    let gone = until_recorded(&fixture, "once", "absent", |record| record.absent == Some(true)).await?;
    assert_eq!(gone.uid, record.uid);
    fixture.until_settled("once").await?;
    fixture.stop_operator().await?;
    let (hub, target) = (fixture.hub.audit()?.mark()?, fixture.target.audit()?.mark()?);
    fixture.start_operator().await?;
    until("the new process has read the target", DEADLINE, || async {
        Ok(fixture.reads_on_target(target)?.iter().any(|event| event.verb == "watch").then_some(()))
    })
    .await?;
    fixture.until_settled("once").await?;
    assert_eq!(fixture.writes_on_target(target)?, []);
    assert_eq!(fixture.writes_on_hub(hub)?, []);
    assert_eq!(written_by(&fixture, "once-default").await?, None);

    let mine = json!({"metadata": {"name": "once-default"}, "data": {"from": "user"}});
    maps.create(&PostParams::default(), &serde_json::from_value(mine)?).await?;
    fixture.delete("once").await?;
    fixture.until_gone("once").await?;
    assert_eq!(written_by(&fixture, "once-default").await?.as_deref(), Some("user"), "recreated by the user");
    maps.delete("once-default", &DeleteParams::default()).await?;
    fixture.stop().await
}

#[tokio::test]
async fn component_removal_deletes_default_resource_unless_of_a_user() -> Result<()> {
    let fixture = Fixture::new("default-end").await?;
    fixture.ensure_target_namespace().await?;
    let maps = fixture.on_target::<ConfigMap>()?;
    let mine = json!({"metadata": {"name": "end-mine"}, "data": {"from": "user"}});
    maps.create(&PostParams::default(), &serde_json::from_value(mine)?).await?;
    fixture.create("mine", with_default("end-mine", "CreateAndDelete")).await?;
    let record = until_recorded(&fixture, "mine", "present", |record| record.absent.is_none()).await?;
    assert_eq!(record.uid, None);
    let mut spec = with_default("end-created", "CreateAndDelete");
    spec["resource"]["metadata"]["finalizers"] = json!(["example.org/hold"]);
    fixture.create("created", spec).await?;
    fixture.until_state("created", State::Ready).await?;
    until_recorded(&fixture, "created", "present", |record| record.uid.is_some()).await?;

    fixture.delete("created").await?;
    fixture.until_ready_says("created", "waiting for the deletion of ConfigMap end-created").await?;
    assert_eq!(fixture.greeting_on_target("created").await?.as_deref(), Some("Hello"), "the step waits");
    let release = json!({"metadata": {"finalizers": null}});
    maps.patch("end-created", &PatchParams::default(), &Patch::Merge(&release)).await?;
    fixture.until_gone("created").await?;
    assert_eq!(written_by(&fixture, "end-created").await?, None);
    assert_eq!(fixture.greeting_on_target("created").await?, None);

    fixture.until_state("mine", State::Ready).await?;
    fixture.delete("mine").await?;
    fixture.until_gone("mine").await?;
    assert_eq!(written_by(&fixture, "end-mine").await?.as_deref(), Some("user"));
    maps.delete("end-mine", &DeleteParams::default()).await?;
    fixture.stop().await
}

#[tokio::test]
async fn an_ignored_default_resource_is_neither_created_nor_deleted() -> Result<()> {
    let fixture = Fixture::new("default-ignore").await?;
    fixture.create("ignored", with_default("ignored-default", "Ignore")).await?;
    fixture.until_state("ignored", State::Ready).await?;
    fixture.until_settled("ignored").await?;
    assert_eq!(written_by(&fixture, "ignored-default").await?, None);
    fixture.change("ignored", json!({"resourcePolicy": "CreateAndDelete"})).await?;
    until_recorded(&fixture, "ignored", "present", |record| record.uid.is_some()).await?;
    fixture.change("ignored", json!({"resourcePolicy": "Ignore"})).await?;
    fixture.delete("ignored").await?;
    fixture.until_gone("ignored").await?;
    assert_eq!(written_by(&fixture, "ignored-default").await?.as_deref(), Some("module"));
    fixture.on_target::<ConfigMap>()?.delete("ignored-default", &DeleteParams::default()).await?;
    fixture.stop().await
}

#[tokio::test]
async fn a_component_waits_for_the_kind_of_its_default_resource() -> Result<()> {
    let fixture = Fixture::new("default-kind").await?;
    let bell = json!({"apiVersion": "bells.example.org/v1", "kind": "Bell", "metadata": {"name": "default"}});
    fixture.create("bell", json!({"text": "Hello", "resource": bell})).await?;
    let waiting = fixture.until_ready_says("bell", "the kind Bell.bells.example.org").await?;
    assert_eq!(waiting.status.unwrap().state, Some(State::Processing));
    let crds: Api<CustomResourceDefinition> = Api::all(fixture.target.client()?);
    crds.create(&PostParams::default(), &test_crd("Bell")?).await?;
    // The role of the component does not cover the kind: the failure is reported, and nothing is recorded.
    let refused = fixture.until_ready_says("bell", "TargetForbidden").await?;
    assert_eq!(refused.status.unwrap().resource, None);
    crds.delete("bells.bells.example.org", &DeleteParams::default()).await?;
    fixture.stop().await
}
