//! Objects that left the set and that a prune does not delete.

use std::io;
use std::sync::Arc;

use anyhow::Result;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kyma_object_set::{Cluster, Identity, KeepReason, Limits, OWNER_LABEL, ObjectSet};
use serde_json::json;
use testbed::{ClusterBuilder, InterceptedRequest, ScriptedServer};

use super::crds::{crd, crd_id, of_crds, thing};
use super::removal::is_left;
use super::story::{Story, TEST_ENV, config_map};

fn config_maps(names: &[&str]) -> String {
    names.iter().map(|name| config_map(name, "1")).collect()
}

/// Replaces an object by another one of the same name.
async fn make_anew(maps: &Api<ConfigMap>, name: &str) -> Result<(), kube::Error> {
    maps.delete(name, &DeleteParams::default()).await?;
    let mut again = ConfigMap::default();
    again.metadata.name = Some(name.to_owned());
    maps.create(&PostParams::default(), &again).await.map(drop)
}

#[tokio::test]
async fn a_prune_takes_a_crd_of_ours_only_without_objects() -> Result<()> {
    let mut story = Story::begin("prunecrds").await?;
    let [free, used, theirs] =
        ["free", "used", "theirs"].map(|name| format!("{name}.{}.io", story.namespace));
    let by_hand = ObjectSet::parse(&crd(&theirs, &["v1"]), &Limits::default())?;
    let by_hand: DynamicObject = serde_json::from_value(by_hand.into_objects().remove(0).into_value())?;
    of_crds(&story).await?.create(&PostParams::default(), &by_hand).await?;
    let rest = config_maps(&["a", "b", "c", "d"]);
    let crds: String = [&free, &used, &theirs].map(|group| crd(group, &["v1"])).concat();
    story.apply(&format!("{rest}{crds}")).await?;
    let mut neighbour = story.neighbour("1.0.0");
    neighbour.apply(&thing(&used, "v1", "theirs")).await?;

    let applied = story.apply(&rest).await?;
    let removal = story.prune(&applied).await?.unwrap();
    let expected = [(crd_id(&used), KeepReason::InUse), (crd_id(&theirs), KeepReason::NotCreatedByUs)];
    assert_eq!(removal.kept, expected.into(), "{removal:?}");
    assert!(!is_left(&story, &crd_id(&free)).await?, "{removal:?}");
    assert!(is_left(&story, &crd_id(&used)).await? && is_left(&story, &crd_id(&theirs)).await?);
    Ok(())
}

#[tokio::test]
async fn a_prune_leaves_volumes() -> Result<()> {
    let mut story = Story::begin("prunevolumes").await?;
    let name = format!("{}-volume", story.namespace);
    // Uses a storage class of its own, so that no claim of other tests binds the volume.
    let volume = format!(
        "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}}}\nspec:\n  storageClassName: {name}\n  capacity: {{storage: 1Mi}}\n  accessModes: [ReadWriteOnce]\n  hostPath: {{path: /nowhere}}\n"
    );
    let rest = config_maps(&["a", "b"]);
    story.apply(&format!("{rest}{volume}")).await?;
    let applied = story.apply(&rest).await?;
    let removal = story.prune(&applied).await?.unwrap();
    let volume = Identity::new("", "PersistentVolume", None, &name);
    assert_eq!(removal.kept, [(volume.clone(), KeepReason::HoldsData)].into());
    assert!(is_left(&story, &volume).await? && !story.inventory.contains(&volume));
    let labels = story.live(&volume).await?.unwrap().metadata.labels.unwrap_or_default();
    assert!(!labels.contains_key(OWNER_LABEL), "{labels:?}");
    Ok(())
}

#[tokio::test]
async fn a_prune_keeps_objects_without_proof_of_ownership() -> Result<()> {
    let mut story = Story::begin("prunenotours").await?;
    let rest = config_maps(&["a", "b", "c", "d", "e"]);
    let leaving = config_maps(&["keep", "relabelled", "recreated", "stripped", "plain"]);
    story.apply(&format!("{rest}{leaving}")).await?;
    story.edit("keep", json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}})).await?;
    story.edit("relabelled", json!({"metadata": {"labels": {OWNER_LABEL: "them"}}})).await?;
    story.edit("stripped", json!({"metadata": {"labels": {OWNER_LABEL: null}}})).await?;
    make_anew(&story.config_maps(), "recreated").await?;

    let applied = story.apply(&rest).await?;
    let removal = story.prune(&applied).await?.unwrap();
    let expected = [
        (story.config_map("keep"), KeepReason::ResourcePolicy),
        (story.config_map("relabelled"), KeepReason::OtherOwner),
        (story.config_map("recreated"), KeepReason::NotTheSame),
        (story.config_map("stripped"), KeepReason::MarkLost),
    ];
    assert_eq!(removal.kept, expected.into());
    assert_eq!(removal.gone, [story.config_map("plain")]);
    for identity in removal.kept.keys() {
        assert!(is_left(&story, identity).await?, "{identity}");
    }
    Ok(())
}

#[tokio::test]
async fn an_object_recreated_between_read_and_delete_stays() -> Result<()> {
    let mut story = Story::begin("lastmoment").await?;
    story.apply(&config_maps(&["a", "b"])).await?;
    let applied = story.apply(&config_maps(&["a"])).await?;
    let maps = story.config_maps();
    let somebody = maps.clone();
    let between = move |passing: InterceptedRequest| {
        let somebody = somebody.clone();
        async move {
            if passing.received().method == "DELETE" {
                make_anew(&somebody, "b").await.map_err(io::Error::other)?;
            }
            passing.onward().await
        }
        .boxed()
    };
    let target = TEST_ENV.cluster("target", ClusterBuilder::with_controllers).await?;
    let server = ScriptedServer::with(Arc::new(between), &target).await?;
    story.cluster = Cluster::new(server.access().client()?);

    let removal = story.prune(&applied).await?.unwrap();
    assert_eq!(removal.kept, [(story.config_map("b"), KeepReason::NotTheSame)].into(), "{removal:?}");
    assert!(maps.get_opt("b").await?.is_some(), "it is somebody else's");
    Ok(())
}

/// Creates a user's object of a kind, at the moment of a request.
async fn create_thing(story_client: &kube::Client, namespace: &str, group: &str) -> Result<(), kube::Error> {
    let kind = kube::core::GroupVersionKind::gvk(group, "v1", "Thing");
    let resource = kube::api::ApiResource::from_gvk(&kind);
    let things: Api<DynamicObject> = Api::namespaced_with(story_client.clone(), namespace, &resource);
    things.create(&PostParams::default(), &DynamicObject::new("users", &resource)).await.map(drop)
}

#[tokio::test]
async fn no_object_that_is_created_before_its_crd_is_deleted_is_lost() -> Result<()> {
    for (moment, survives) in [("PATCH", true), ("DELETE", false)] {
        let mut story = Story::begin(&format!("between{}", moment.to_lowercase())).await?;
        let group = format!("late.{}.io", story.namespace);
        let rest = config_maps(&["a", "b", "c"]);
        story.apply(&format!("{rest}{}", crd(&group, &["v1"]))).await?;
        let applied = story.apply(&rest).await?;
        let (user, namespace, of) = (story.cluster.client.clone(), story.namespace.clone(), group.clone());
        let created = Arc::new(parking_lot::Mutex::new(None));
        let outcome = Arc::clone(&created);
        let between = move |passing: InterceptedRequest| {
            let (user, namespace, of) = (user.clone(), namespace.clone(), of.clone());
            let outcome = Arc::clone(&outcome);
            async move {
                let seen = passing.received();
                let is_of_crd = seen.path.contains("/customresourcedefinitions/") && seen.method == moment;
                if is_of_crd && outcome.lock().is_none() {
                    let made = create_thing(&user, &namespace, &of).await.is_ok();
                    *outcome.lock() = Some(made);
                }
                passing.onward().await
            }
            .boxed()
        };
        let target = TEST_ENV.cluster("target", ClusterBuilder::with_controllers).await?;
        let server = ScriptedServer::with(Arc::new(between), &target).await?;
        let direct = std::mem::replace(&mut story.cluster, Cluster::new(server.access().client()?));
        let removal = story.prune(&applied).await?.unwrap();
        assert_eq!(*created.lock(), Some(survives), "{moment}: {removal:?}");
        story.cluster = direct;
        if survives {
            assert_eq!(removal.kept, [(crd_id(&group), KeepReason::InUse)].into(), "{removal:?}");
            assert!(is_left(&story, &crd_id(&group)).await?);
            // Creation is allowed again.
            testbed::until("another object", super::story::EVENT_TIMEOUT, || async {
                let other = story.live(&crd_id(&group)).await?.unwrap();
                let text = serde_json::to_string(&other.data)?;
                Ok((!text.contains("thisKindIsBeingRemoved")).then_some(()))
            })
            .await?;
        } else {
            assert!(!is_left(&story, &crd_id(&group)).await?, "{removal:?}");
        }
    }
    Ok(())
}
