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

use crate::stage::{DEADLINE, Stage, test_crd};

/// Spec of a greeting whose default custom resource is a ConfigMap of this name, in the target namespace.
fn with_default(name: &str, policy: &str) -> Value {
    let resource = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"from": "module"}});
    json!({"text": "Hello", "deletionPolicy": "Delete", "resource": resource, "resourcePolicy": policy})
}

/// Waits until the status of a greeting has a record of the default custom resource that satisfies the predicate.
async fn until_recorded(
    stage: &Stage,
    name: &str,
    what: &str,
    is: impl Fn(&CreatedResource) -> bool,
) -> Result<CreatedResource> {
    let greetings: Api<greeting_component::Greeting> =
        Api::namespaced(stage.hub.client()?, stage.namespace());
    until(&format!("status.resource of {name} is {what}"), DEADLINE, || async {
        let record = greetings.get(name).await?.status.unwrap_or_default().resource;
        Ok(record.filter(&is))
    })
    .await
}

/// Returns the value that tells who wrote the default custom resource; `None` if it does not exist.
async fn written_by(stage: &Stage, name: &str) -> Result<Option<String>> {
    let map = stage.on_target::<ConfigMap>()?.get_opt(name).await?;
    Ok(map.and_then(|map| map.data).and_then(|mut data| data.remove("from")))
}

#[tokio::test]
async fn a_default_resource_is_created_once_and_absent_after_its_deletion() -> Result<()> {
    let mut stage = Stage::new("default-once").await?;
    stage.create("once", with_default("once-default", "CreateAndDelete")).await?;
    stage.until_state("once", State::Ready).await?;
    let record = until_recorded(&stage, "once", "present", |record| record.uid.is_some()).await?;
    assert_eq!((record.kind.as_str(), record.namespace.as_deref()), ("ConfigMap", Some("kyma-system")));
    assert_eq!(record.absent, None);
    let maps = stage.on_target::<ConfigMap>()?;
    let edit = json!({"data": {"from": "user"}});
    maps.patch("once-default", &PatchParams::default(), &Patch::Merge(&edit)).await?;
    stage.until_settled("once").await?;
    assert_eq!(written_by(&stage, "once-default").await?.as_deref(), Some("user"));

    maps.delete("once-default", &DeleteParams::default()).await?;
    let gone = until_recorded(&stage, "once", "absent", |record| record.absent == Some(true)).await?;
    assert_eq!(gone.uid, record.uid);
    stage.until_settled("once").await?;
    stage.stop_operator().await?;
    let (hub, target) = (stage.hub.audit()?.mark()?, stage.target.audit()?.mark()?);
    stage.start_operator().await?;
    until("the new process has read the target", DEADLINE, || async {
        Ok(stage.reads_on_target(target)?.iter().any(|event| event.verb == "watch").then_some(()))
    })
    .await?;
    stage.until_settled("once").await?;
    assert_eq!(stage.writes_on_target(target)?, []);
    assert_eq!(stage.writes_on_hub(hub)?, []);
    assert_eq!(written_by(&stage, "once-default").await?, None);

    let mine = json!({"metadata": {"name": "once-default"}, "data": {"from": "user"}});
    maps.create(&PostParams::default(), &serde_json::from_value(mine)?).await?;
    stage.delete("once").await?;
    stage.until_gone("once").await?;
    assert_eq!(written_by(&stage, "once-default").await?.as_deref(), Some("user"), "recreated by the user");
    maps.delete("once-default", &DeleteParams::default()).await?;
    stage.stop().await
}

#[tokio::test]
async fn a_default_resource_is_removed_with_its_component_unless_a_user_created_it() -> Result<()> {
    let stage = Stage::new("default-end").await?;
    stage.ensure_target_namespace().await?;
    let maps = stage.on_target::<ConfigMap>()?;
    let mine = json!({"metadata": {"name": "end-mine"}, "data": {"from": "user"}});
    maps.create(&PostParams::default(), &serde_json::from_value(mine)?).await?;
    stage.create("mine", with_default("end-mine", "CreateAndDelete")).await?;
    let record = until_recorded(&stage, "mine", "present", |record| record.absent.is_none()).await?;
    assert_eq!(record.uid, None);
    let mut spec = with_default("end-created", "CreateAndDelete");
    spec["resource"]["metadata"]["finalizers"] = json!(["example.org/hold"]);
    stage.create("created", spec).await?;
    stage.until_state("created", State::Ready).await?;
    until_recorded(&stage, "created", "present", |record| record.uid.is_some()).await?;

    stage.delete("created").await?;
    stage.until_ready_says("created", "waiting for the end of ConfigMap end-created").await?;
    assert_eq!(stage.greeting_on_target("created").await?.as_deref(), Some("Hello"), "the step waits");
    let release = json!({"metadata": {"finalizers": null}});
    maps.patch("end-created", &PatchParams::default(), &Patch::Merge(&release)).await?;
    stage.until_gone("created").await?;
    assert_eq!(written_by(&stage, "end-created").await?, None);
    assert_eq!(stage.greeting_on_target("created").await?, None);

    stage.until_state("mine", State::Ready).await?;
    stage.delete("mine").await?;
    stage.until_gone("mine").await?;
    assert_eq!(written_by(&stage, "end-mine").await?.as_deref(), Some("user"));
    maps.delete("end-mine", &DeleteParams::default()).await?;
    stage.stop().await
}

#[tokio::test]
async fn an_ignored_default_resource_is_neither_created_nor_deleted() -> Result<()> {
    let stage = Stage::new("default-ignore").await?;
    stage.create("ignored", with_default("ignored-default", "Ignore")).await?;
    stage.until_state("ignored", State::Ready).await?;
    stage.until_settled("ignored").await?;
    assert_eq!(written_by(&stage, "ignored-default").await?, None);
    stage.change("ignored", json!({"resourcePolicy": "CreateAndDelete"})).await?;
    until_recorded(&stage, "ignored", "present", |record| record.uid.is_some()).await?;
    stage.change("ignored", json!({"resourcePolicy": "Ignore"})).await?;
    stage.delete("ignored").await?;
    stage.until_gone("ignored").await?;
    assert_eq!(written_by(&stage, "ignored-default").await?.as_deref(), Some("module"));
    stage.on_target::<ConfigMap>()?.delete("ignored-default", &DeleteParams::default()).await?;
    stage.stop().await
}

#[tokio::test]
async fn a_component_waits_for_the_kind_of_its_default_resource() -> Result<()> {
    let stage = Stage::new("default-kind").await?;
    let bell = json!({"apiVersion": "bells.example.org/v1", "kind": "Bell", "metadata": {"name": "default"}});
    stage.create("bell", json!({"text": "Hello", "resource": bell})).await?;
    let waiting = stage.until_ready_says("bell", "the kind Bell.bells.example.org").await?;
    assert_eq!(waiting.status.unwrap().state, Some(State::Processing));
    let crds: Api<CustomResourceDefinition> = Api::all(stage.target.client()?);
    crds.create(&PostParams::default(), &test_crd("Bell")?).await?;
    // The role of the component does not cover the kind: the failure is reported, and nothing is recorded.
    let refused = stage.until_ready_says("bell", "TargetForbidden").await?;
    assert_eq!(refused.status.unwrap().resource, None);
    crds.delete("bells.bells.example.org", &DeleteParams::default()).await?;
    stage.stop().await
}
