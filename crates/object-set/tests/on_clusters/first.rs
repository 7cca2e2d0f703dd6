//! Objects that most likely do not exist: they are created with one request, which never overwrites an existing
//! object.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::Api;
use kube::api::PostParams;
use kyma_object_set::{AdoptionPolicy, Cluster, Identity, NoObservations, Outcome, Refusal};
use serde_json::json;
use testbed::{Answer, RequestMatcher, ScriptedServer};

use super::story::{Story, TEST_ENV, config_map, outcome};

/// Starts an owner that expects new objects, behind a proxy that counts its requests.
async fn begin(name: &str) -> Result<(Story, ScriptedServer)> {
    let target = TEST_ENV.cluster("target", testbed::ClusterBuilder::with_controllers).await?;
    let proxy = ScriptedServer::in_front_of(&target).await?;
    let mut story = Story::begin(name).await?;
    story.cluster = Cluster::new(proxy.access().client()?);
    story.are_new = true;
    Ok((story, proxy))
}

/// Returns the numbers of GET and PATCH requests for a ConfigMap.
fn counted(story: &Story, proxy: &ScriptedServer, name: &str) -> (usize, usize) {
    let path = format!("/api/v1/namespaces/{}/configmaps/{name}", story.namespace);
    let count = |method: &str| proxy.count(&RequestMatcher::path(&path).method(method));
    (count("GET"), count("PATCH"))
}

#[tokio::test]
async fn a_new_object_takes_one_request() -> Result<()> {
    let (mut story, proxy) = begin("first-new").await?;
    let applied = story.apply(&config_map("a", "1")).await?;
    assert!(matches!(outcome(&applied, "a"), Outcome::Applied { created: true, .. }), "{applied:?}");
    assert_eq!(counted(&story, &proxy, "a"), (0, 1));
    // From then on it is treated like any other object.
    story.apply(&config_map("a", "2")).await?;
    assert_eq!(counted(&story, &proxy, "a"), (1, 2));
    let live = story.config_maps().get("a").await?;
    assert_eq!(live.data.context("data")?["v"], "2");
    Ok(())
}

#[tokio::test]
async fn an_existing_object_is_read_before_it_changes() -> Result<()> {
    let (mut story, proxy) = begin("first-there").await?;
    let theirs: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "a"}, "data": {"theirs": "1"}}))?;
    let before = story.config_maps().create(&PostParams::default(), &theirs).await?;

    story.adopt = AdoptionPolicy::Never;
    let applied = story.try_apply(&config_map("a", "1"), &NoObservations).await?;
    let refused = outcome(&applied, "a");
    assert!(matches!(refused, Outcome::Refused(Refusal::OwnedByOther { .. })), "{applied:?}");
    assert_eq!(counted(&story, &proxy, "a"), (1, 1));
    assert_eq!(story.config_maps().get("a").await?, before);

    story.adopt = AdoptionPolicy::Unowned;
    let applied = story.apply(&config_map("a", "1")).await?;
    assert!(matches!(outcome(&applied, "a"), Outcome::Applied { created: false, .. }), "{applied:?}");
    let after = story.config_maps().get("a").await?;
    assert_eq!(after.metadata.uid, before.metadata.uid);
    assert_eq!(json!(after.data), json!({"theirs": "1", "v": "1"}));
    Ok(())
}

#[tokio::test]
async fn a_server_that_refuses_the_resource_version_gets_none() -> Result<()> {
    let (mut story, proxy) = begin("first-amiss").await?;
    let patches = RequestMatcher::any().method("PATCH");
    proxy.next(
        1,
        patches,
        Answer::failure(422, "Invalid", "resourceVersion should not be set on objects to be created"),
    );
    let applied = story.apply(&config_map("a", "1")).await?;
    assert!(matches!(outcome(&applied, "a"), Outcome::Applied { created: true, .. }), "{applied:?}");
    assert_eq!(counted(&story, &proxy, "a"), (1, 2));

    // An invalid object is refused again at the second try.
    let broken = config_map("b", "1").replace("v:", "'not a key':");
    let applied = story.try_apply(&broken, &NoObservations).await?;
    assert!(matches!(outcome(&applied, "b"), Outcome::Refused(Refusal::Call(_))), "{applied:?}");
    assert_eq!(counted(&story, &proxy, "b"), (1, 2));
    Ok(())
}

#[tokio::test]
async fn a_terminating_object_is_awaited_in_a_first_apply() -> Result<()> {
    let (mut story, _proxy) = begin("first-going").await?;
    let going = json!({"metadata": {"name": "a", "finalizers": ["example.com/held"]}});
    story.config_maps().create(&PostParams::default(), &serde_json::from_value(going)?).await?;
    story.config_maps().delete("a", &kube::api::DeleteParams::default()).await?;
    let applied = story.try_apply(&config_map("a", "1"), &NoObservations).await?;
    assert!(matches!(outcome(&applied, "a"), Outcome::Waiting(_)), "{applied:?}");
    story.edit("a", json!({"metadata": {"finalizers": null}})).await?;
    let applied = story.apply(&config_map("a", "1")).await?;
    assert!(matches!(outcome(&applied, "a"), Outcome::Applied { created: true, .. }), "{applied:?}");
    Ok(())
}

#[tokio::test]
async fn a_claim_that_a_read_missed_does_not_count_as_created() -> Result<()> {
    let (mut story, proxy) = begin("first-missed").await?;
    story.are_new = false;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {
            "storageClassName": "none", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(story.cluster.client.clone(), &story.namespace);
    claims.create(&PostParams::default(), &serde_json::from_value(claim.clone())?).await?;
    let path = format!("/api/v1/namespaces/{}/persistentvolumeclaims/data", story.namespace);
    proxy.next(1, RequestMatcher::path(&path).method("GET"), Answer::text(404, "404 page not found"));
    story.apply(&claim.to_string()).await?;
    let identity = Identity::new("", "PersistentVolumeClaim", Some(&story.namespace), "data");
    let entry = story.inventory.get(&identity).context("the claim is adopted")?;
    assert!(!entry.created, "its user created it, so no removal deletes it");
    Ok(())
}
