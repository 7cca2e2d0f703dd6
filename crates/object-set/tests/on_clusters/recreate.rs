//! Objects with a change of an immutable field.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use kyma_api::Reason;
use kyma_object_set::{Identity, NoObservations, Outcome};
use serde_json::json;
use testbed::until;

use super::story::{EVENT_TIMEOUT, Story, outcome};

fn deployment(label: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\nspec:\n  selector: {{matchLabels: {{a: {label}}}}}\n  template: {{metadata: {{labels: {{a: {label}}}}}, spec: {{containers: [{{name: c, image: x}}]}}}}\n"
    )
}

async fn uid(story: &Story, group: &str, kind: &str, name: &str) -> Result<String> {
    let id = Identity::new(group, kind, Some(&story.namespace), name);
    story.live(&id).await?.context("the object")?.metadata.uid.context("uid")
}

#[tokio::test]
async fn an_object_is_recreated_if_allowed() -> Result<()> {
    let mut story = Story::begin("anew").await?;
    story.apply(&deployment("one")).await?;
    let before = uid(&story, "apps", "Deployment", "d").await?;
    story.recreate = serde_json::from_value(json!([{"kind": "StatefulSet"}]))?;
    let applied = story.try_apply(&deployment("two"), &NoObservations).await?;
    let Outcome::Refused(refusal) = outcome(&applied, "d") else { panic!("{applied:?}") };
    assert_eq!(refusal.reason(), Reason::ImmutableField, "another kind is allowed");
    assert!(refusal.to_string().contains("spec.selector"), "{refusal}");

    story.recreate = serde_json::from_value(json!([{"group": "apps", "name": "d"}]))?;
    let applied = story.try_apply(&deployment("two"), &NoObservations).await?;
    assert!(matches!(outcome(&applied, "d"), Outcome::Waiting(_)), "{applied:?}");
    assert!(!applied.is_complete(), "nothing is pruned meanwhile");
    story.apply(&deployment("two")).await?;
    assert_ne!(uid(&story, "apps", "Deployment", "d").await?, before);
    assert_eq!(story.apply(&deployment("two")).await?.changed().count(), 0);
    Ok(())
}

#[tokio::test]
async fn a_storage_class_is_recreated_if_allowed() -> Result<()> {
    let mut story = Story::begin("class").await?;
    let name = format!("{}-class", story.namespace);
    let class = |zone: &str| {
        format!(
            "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: {name}}}\nprovisioner: example.org/{zone}\nreclaimPolicy: {}\nparameters: {{zone: {zone}}}\n",
            if zone == "a" { "Retain" } else { "Delete" }
        )
    };
    story.apply(&class("a")).await?;
    let applied = story.try_apply(&class("b"), &NoObservations).await?;
    let Outcome::Refused(refusal) = outcome(&applied, &name) else { panic!("{applied:?}") };
    assert_eq!(refusal.reason(), Reason::ImmutableField, "{refusal}");
    story.recreate = serde_json::from_value(json!([{"kind": "StorageClass"}]))?;
    story.apply(&class("b")).await?;
    story.uninstall_all().await?;
    Ok(())
}

/// Waits until the garbage collector knows every existing Pod. It observes Pods in the order of their changes, and
/// deletes one whose owner does not exist. When an owner is deleted without its dependents, the collector spares only
/// the Pods that it knows, and deletes others as soon as it observes them.
async fn until_collector_knows_pods(pods: &Api<Pod>) -> Result<()> {
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "none", "uid": "of-none"});
    let dependent = json!({
        "metadata": {"name": "dependent", "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(dependent)?).await?;
    until("a Pod without its owner is deleted", EVENT_TIMEOUT, || async {
        let pod = pods.get_opt("dependent").await?;
        Ok(pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_stateful_set_is_recreated_over_its_pods() -> Result<()> {
    let mut story = Story::begin("pods").await?;
    let stateful = |service: &str| {
        format!(
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: s}}\nspec:\n  serviceName: {service}\n  selector: {{matchLabels: {{a: b}}}}\n  template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: c, image: x}}]}}}}\n"
        )
    };
    story.apply(&stateful("one")).await?;
    let pods: Api<Pod> = Api::namespaced(story.cluster.client.clone(), &story.namespace);
    let pod = until("the Pod is made", EVENT_TIMEOUT, || async { Ok(pods.get_opt("s-0").await?) }).await?;
    until_collector_knows_pods(&pods).await?;
    story.recreate = serde_json::from_value(json!([{"kind": "StatefulSet"}]))?;
    let before = uid(&story, "apps", "StatefulSet", "s").await?;
    story.apply(&stateful("two")).await?;
    let after = uid(&story, "apps", "StatefulSet", "s").await?;
    assert_ne!(after, before);
    let owned = until("the Pod has its new owner", EVENT_TIMEOUT, || async {
        let pod = pods.get("s-0").await?;
        let owners = pod.metadata.owner_references.iter().flatten();
        let owned = owners.into_iter().any(|owner| owner.uid == after);
        Ok(owned.then_some(pod))
    })
    .await?;
    assert_eq!(owned.metadata.uid, pod.metadata.uid);
    assert_eq!(owned.metadata.deletion_timestamp, None);
    Ok(())
}

#[tokio::test]
async fn a_selector_matches_kinds_with_data_only_by_their_kind() -> Result<()> {
    let mut story = Story::begin("claims").await?;
    let claim = |class: &str| {
        format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: c}}\nspec: {{storageClassName: {class}, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}\n"
        )
    };
    story.apply(&claim("one")).await?;
    let before = uid(&story, "", "PersistentVolumeClaim", "c").await?;
    story.recreate = serde_json::from_value(json!([{}, {"name": "c"}]))?;
    let applied = story.try_apply(&claim("two"), &NoObservations).await?;
    let Outcome::Refused(refusal) = outcome(&applied, "c") else { panic!("{applied:?}") };
    assert_eq!(refusal.reason(), Reason::ImmutableField, "{refusal}");
    assert_eq!(uid(&story, "", "PersistentVolumeClaim", "c").await?, before);

    story.recreate = serde_json::from_value(json!([{"kind": "PersistentVolumeClaim"}]))?;
    story.apply(&claim("two")).await?;
    assert_ne!(uid(&story, "", "PersistentVolumeClaim", "c").await?, before);
    Ok(())
}

#[tokio::test]
async fn an_object_with_another_uid_is_not_deleted_for_recreation() -> Result<()> {
    let mut story = Story::begin("notours").await?;
    story.apply(&deployment("one")).await?;
    story.recreate = serde_json::from_value(json!([{}]))?;
    // An object without a record in the inventory was not sent by this owner.
    let held = story.inventory.clone();
    story.inventory = kyma_object_set::Inventory::new();
    let applied = story.try_apply(&deployment("two"), &NoObservations).await?;
    let Outcome::Refused(refusal) = outcome(&applied, "d") else { panic!("{applied:?}") };
    assert_eq!(refusal.reason(), Reason::ImmutableField);
    story.inventory = held;
    // The object has the annotation to be kept.
    let id = Identity::new("apps", "Deployment", Some(&story.namespace), "d");
    let kinds = story.cluster.discovery.kinds(&story.cluster.client).await?;
    let api = kinds.preferred(&id.group_kind()).unwrap().api(&story.cluster.client, Some(&story.namespace));
    let keep = json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}});
    api.patch("d", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(keep)).await?;
    let applied = story.try_apply(&deployment("two"), &NoObservations).await?;
    let Outcome::Refused(refusal) = outcome(&applied, "d") else { panic!("{applied:?}") };
    assert_eq!(refusal.reason(), Reason::ImmutableField);
    assert_eq!(story.live(&id).await?.context("it stays")?.metadata.deletion_timestamp, None);
    Ok(())
}

#[tokio::test]
async fn a_value_that_is_called_immutable_puts_no_object_at_risk() -> Result<()> {
    let mut story = Story::begin("mode").await?;
    let group = format!("{}.io", story.namespace);
    let anything = "{type: object, x-kubernetes-preserve-unknown-fields: true}";
    let modes =
        "{type: object, properties: {spec: {type: object, properties: {mode: {type: string, enum: [a]}}}}}";
    let crd = super::crds::crd(&group, &["v1"]).replace(anything, modes);
    let set = |mode: &str| {
        format!(
            "{crd}---\napiVersion: {group}/v1\nkind: Thing\nmetadata: {{name: t}}\nspec: {{mode: {mode}}}\n"
        )
    };
    story.apply(&set("a")).await?;
    let id = Identity::new(&group, "Thing", Some(&story.namespace), "t");
    let before = story.inventory.get(&id).context("it is on record")?.uid.clone();
    story.recreate = serde_json::from_value(json!([{}]))?;
    let applied = story.try_apply(&set("immutable"), &NoObservations).await?;
    let Outcome::Refused(refusal) = outcome(&applied, "t") else { panic!("{applied:?}") };
    assert_eq!(refusal.reason(), Reason::ApplyRefused, "{refusal}");
    let live = super::drift::things(&story, &group, "v1").get("t").await?.metadata;
    assert_eq!((live.uid, live.deletion_timestamp), (Some(before), None));
    Ok(())
}
