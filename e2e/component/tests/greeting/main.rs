//! The sdk's driver on real control planes, through a component that was written on it.
//!
//! Each test has a hub namespace and a running component of its own, which holds exactly the roles that its table
//! renders: a `ServiceAccount` on the hub, another one on the target.

// Clippy takes only test functions for tests, not what they share.
#![allow(clippy::unwrap_used)]

mod binary;
mod default_resource;
mod depends;
mod manager_health;
mod nonconforming;
mod stage;

use std::time::{Duration, Instant};

use anyhow::Result;
use greeting_component::Hello;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use kyma_sdk::api::labels;
use serde_json::json;
use stage::{DEADLINE, Stage};
use testbed::{Answer, RequestMatcher, ScriptedServer, until};

#[test]
fn its_crd_and_tables_keep_the_contract() {
    assert_eq!(kyma_sdk::testing::check_tables::<Hello>(), [""; 0]);
}

#[tokio::test]
async fn it_behaves_as_a_component_has_to() -> Result<()> {
    let place = Stage::conformance_env("conformance").await?.trial;
    let sample = json!({"text": "Hello"});
    let found = Box::pin(kyma_sdk::testing::check_behaviour(Hello, sample, &place)).await;
    assert_eq!(found.map_err(anyhow::Error::from_boxed)?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn conformance_tests_reject_a_nonconforming_component() -> Result<()> {
    let place = Stage::conformance_env("sloppy").await?.trial;
    let sample = json!({"text": "Hello"});
    let found =
        Box::pin(kyma_sdk::testing::check_behaviour(nonconforming::NonconformingComponent, sample, &place))
            .await;
    let found = found.map_err(anyhow::Error::from_boxed)?;
    for part in ["without a change, it changed ConfigMap", "conformance-deleted: left behind: ConfigMap"] {
        assert!(found.iter().any(|one| one.contains(part)), "{part}: {found:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_access_secret_that_comes_later_starts_the_work_at_once() -> Result<()> {
    let stage = Stage::without_access("later").await?;
    stage.create("later", json!({"text": "Good morning"})).await?;
    let waiting = stage.until_ready_says("later", "AwaitingAccess").await?;
    assert_eq!(waiting.status.unwrap().state, Some(kyma_sdk::api::State::Processing));
    let mark = stage.target.audit()?.mark()?;
    let arrived = Instant::now();
    stage.grant_access().await?;
    stage.until_state("later", kyma_sdk::api::State::Ready).await?;
    let first = stage.writes_on_target(mark)?.into_iter().next().unwrap();
    println!("first write: {} {} (ready {:?} after)", first.verb, first.uri, arrived.elapsed());
    assert_eq!(stage.greeting_on_target("later").await?.as_deref(), Some("Good morning"));
    stage.stop().await
}

#[tokio::test]
async fn an_unchanged_resource_causes_no_writes_after_a_restart() -> Result<()> {
    let mut stage = Stage::new("quiet").await?;
    stage.create("quiet", json!({"text": "Hello"})).await?;
    let before = stage.until_state("quiet", kyma_sdk::api::State::Ready).await?;
    stage.stop_operator().await?;
    let (hub, target) = (stage.hub.audit()?.mark()?, stage.target.audit()?.mark()?);
    stage.start_operator().await?;
    until("the new process has looked at the target", DEADLINE, || async {
        Ok(stage.reads_on_target(target)?.iter().any(|event| event.verb == "watch").then_some(()))
    })
    .await?;
    // A trigger that wants nothing new brings the component back once more.
    stage.annotate("quiet", "look-again", "1").await?;
    let after = stage.until_settled("quiet").await?;
    assert_eq!(stage.writes_on_target(target)?, []);
    assert_eq!(stage.writes_on_hub(hub)?, []);
    assert_eq!(before.status, after.status);
    stage.stop().await
}

#[tokio::test]
async fn an_edit_on_the_target_is_put_right() -> Result<()> {
    let stage = Stage::new("drift").await?;
    stage.create("drift", json!({"text": "Hello"})).await?;
    stage.until_state("drift", kyma_sdk::api::State::Ready).await?;
    stage.until_settled("drift").await?;
    let mark = stage.hub.audit()?.mark()?;
    let edit = json!({"data": {"greeting": "Go away"}});
    let maps = stage.on_target::<ConfigMap>()?;
    maps.patch("drift", &PatchParams::default(), &Patch::Merge(&edit)).await?;
    stage.until_greeting("drift", Some("Hello")).await?;
    maps.delete("drift", &DeleteParams::default()).await?;
    stage.until_greeting("drift", Some("Hello")).await?;
    let asked = stage.reads_on_hub(mark)?;
    assert!(asked.iter().all(|event| event.verb == "watch"), "the way to the target is known: {asked:?}");
    stage.stop().await
}

#[tokio::test]
async fn objects_of_others_are_neither_overwritten_nor_removed() -> Result<()> {
    let stage = Stage::new("foreign").await?;
    stage.ensure_target_namespace().await?;
    let maps = stage.on_target::<ConfigMap>()?;
    let theirs = json!({"metadata": {"name": "foreign"}, "data": {"greeting": "Mine"}});
    maps.create(&PostParams::default(), &serde_json::from_value(theirs)?).await?;
    stage.create("foreign", json!({"text": "Hello"})).await?;
    stage.until_ready_says("foreign", "OwnedByOther").await?;
    stage.delete("foreign").await?;
    stage.until_gone("foreign").await?;
    assert_eq!(stage.greeting_on_target("foreign").await?.as_deref(), Some("Mine"));
    stage.stop().await
}

#[tokio::test]
async fn a_changed_spec_is_applied_and_a_suspended_one_is_not() -> Result<()> {
    let stage = Stage::new("change").await?;
    stage.create("change", json!({"text": "Hello"})).await?;
    stage.until_state("change", kyma_sdk::api::State::Ready).await?;
    stage.change("change", json!({"text": "Good evening"})).await?;
    stage.until_greeting("change", Some("Good evening")).await?;
    stage.change("change", json!({"suspend": true, "text": "Never said"})).await?;
    stage.until_ready_says("change", "Suspended").await?;
    assert_eq!(stage.greeting_on_target("change").await?.as_deref(), Some("Good evening"));
    stage.change("change", json!({"suspend": false})).await?;
    stage.until_greeting("change", Some("Never said")).await?;
    stage.label("change", labels::SKIP_RECONCILIATION, Some("true")).await?;
    stage.until_ready_says("change", "SkipReconciliation").await?;
    stage.label("change", labels::SKIP_RECONCILIATION, None).await?;
    stage.until_state("change", kyma_sdk::api::State::Ready).await?;
    stage.until_ready_says("change", "Ready").await?;
    stage.stop().await
}

#[tokio::test]
async fn a_pause_holds_for_what_it_names_and_no_longer_than_it_is_there() -> Result<()> {
    let stage = Stage::new("pause").await?;
    let version = |version: &str| {
        let module = json!({"name": "greeting", "version": version});
        json!({"text": "Hello", "module": module, "deletionPolicy": "Delete"})
    };
    stage.create("pause", version("1.0.0")).await?;
    stage.until_state("pause", kyma_sdk::api::State::Ready).await?;
    stage.pause("freeze", "Upgrades").await?;
    stage.change("pause", json!({"text": "Good evening"})).await?;
    stage.until_greeting("pause", Some("Good evening")).await?;
    stage.change("pause", version("1.1.0")).await?;
    stage.until_ready_says("pause", "Pause freeze holds").await?;
    assert_eq!(stage.greeting_on_target("pause").await?.as_deref(), Some("Good evening"));
    stage.resume("freeze").await?;
    stage.until_greeting("pause", Some("Hello")).await?;
    stage.pause("keep", "Deletes").await?;
    stage.delete("pause").await?;
    stage.until_ready_says("pause", "Pause keep holds").await?;
    assert_eq!(stage.greeting_on_target("pause").await?.as_deref(), Some("Hello"));
    stage.resume("keep").await?;
    stage.until_gone("pause").await?;
    stage.until_greeting("pause", None).await?;
    stage.stop().await
}

#[tokio::test]
async fn a_reason_of_its_own_is_shown_like_any_other() -> Result<()> {
    let stage = Stage::new("loud").await?;
    stage.create("loud", json!({"text": "HELLO"})).await?;
    let refused = stage.until_ready_says("loud", "TooLoud").await?;
    let status = refused.status.unwrap();
    assert_eq!(status.state, Some(kyma_sdk::api::State::Error));
    assert_eq!(stage.greeting_on_target("loud").await?, None);
    stage.change("loud", json!({"text": "Hello"})).await?;
    stage.until_greeting("loud", Some("Hello")).await?;
    stage.stop().await
}

#[tokio::test]
async fn orphan_leaves_everything_and_an_order_removes_it() -> Result<()> {
    let stage = Stage::new("end").await?;
    for name in ["orphan", "unproven", "ordered"] {
        stage.create_managed(name, json!({"text": "Hello"})).await?;
        stage.until_state(name, kyma_sdk::api::State::Ready).await?;
    }
    stage.delete("orphan").await?;
    stage.until_gone("orphan").await?;
    stage.change("unproven", json!({"deletionPolicy": "Delete"})).await?;
    stage.order("unproven", "11111111-another-kyma").await?;
    stage.delete("unproven").await?;
    stage.until_gone("unproven").await?;
    stage.change("ordered", json!({"deletionPolicy": "Delete"})).await?;
    stage.order("ordered", stage::KYMA_UID).await?;
    stage.delete("ordered").await?;
    stage.until_gone("ordered").await?;
    assert_eq!(stage.greeting_on_target("orphan").await?.as_deref(), Some("Hello"));
    assert_eq!(stage.greeting_on_target("unproven").await?.as_deref(), Some("Hello"));
    assert_eq!(stage.greeting_on_target("ordered").await?, None);
    stage.stop().await
}

#[tokio::test]
async fn a_standalone_component_is_removed_by_its_deletion_but_not_with_its_namespace() -> Result<()> {
    let stage = Stage::new("alone").await?;
    for name in ["deleted", "swept-away"] {
        stage.create(name, json!({"text": "Hello", "deletionPolicy": "Delete"})).await?;
        stage.until_state(name, kyma_sdk::api::State::Ready).await?;
    }
    stage.delete("deleted").await?;
    stage.until_gone("deleted").await?;
    assert_eq!(stage.greeting_on_target("deleted").await?, None);
    stage.delete_hub_namespace().await?;
    stage.until_gone("swept-away").await?;
    assert_eq!(stage.greeting_on_target("swept-away").await?.as_deref(), Some("Hello"));
    stage.stop().await
}

#[tokio::test]
async fn another_cluster_behind_the_secret_is_refused() -> Result<()> {
    let stage = Stage::new("swap").await?;
    let greeting = stage.create("swap", json!({"text": "Hello"})).await?;
    assert!(greeting.annotations().is_empty());
    stage.until_state("swap", kyma_sdk::api::State::Ready).await?;
    stage.annotate("swap", kyma_sdk::api::annotations::TARGET_UID, "a-cluster-that-was").await?;
    let refused = stage.until_ready_says("swap", "TargetChanged").await?;
    assert_eq!(refused.status.unwrap().state, Some(kyma_sdk::api::State::Error));
    stage.stop().await
}

#[tokio::test]
async fn wrong_access_is_named_and_mended_without_a_restart() -> Result<()> {
    let stage = Stage::without_access("mend").await?;
    stage.create("mend", json!({"text": "Hello"})).await?;
    stage.put_access("no kubeconfig at all").await?;
    stage.until_ready_says("mend", "AccessInvalid").await?;
    stage.grant_access().await?;
    stage.until_state("mend", kyma_sdk::api::State::Ready).await?;
    tokio::time::timeout(Duration::from_mins(1), stage.stop()).await?
}

#[tokio::test]
async fn a_target_that_fails_is_named_and_work_goes_on_once_it_answers() -> Result<()> {
    let stage = Stage::without_access("outage").await?;
    let server = ScriptedServer::in_front_of(&stage.target).await?;
    server.always(
        RequestMatcher::any(),
        Answer::failure(503, "ServiceUnavailable", "secret words of the target"),
    );
    stage.put_access(&server.access_of(&stage.user().await?).kubeconfig()).await?;
    let created = stage.create("outage", json!({"text": "Hello"})).await?;
    let failed = stage.until_ready_says("outage", "TargetServerError").await?;
    let status = failed.status.unwrap();
    assert_eq!(status.state, Some(kyma_sdk::api::State::Error));
    let reachable = status.conditions.iter().find(|one| one.type_ == "TargetReachable").unwrap();
    assert_eq!((reachable.status.as_str(), reachable.reason.as_str()), ("False", "TargetServerError"));
    assert!(!reachable.message.contains("secret words"), "{}", reachable.message);
    assert_eq!(status.observed_generation, created.metadata.generation);
    server.clear();
    let ready = stage.until_state("outage", kyma_sdk::api::State::Ready).await?;
    let conditions = ready.status.unwrap().conditions;
    assert!(conditions.iter().all(|one| one.status == "True"), "{conditions:?}");
    stage.stop().await
}

#[tokio::test]
async fn the_hub_behind_an_access_secret_is_refused() -> Result<()> {
    let stage = Stage::without_access("self").await?;
    stage.put_access(&stage.hub.kubeconfig()).await?;
    stage.create("self", json!({"text": "Hello"})).await?;
    let mark = stage.hub.audit()?.mark()?;
    stage.until_ready_says("self", "its address is the hub itself").await?;
    // The same apiserver under a name by which it is not known: told by its identity.
    let elsewhere = ScriptedServer::in_front_of(&stage.hub).await?;
    stage.put_access(&elsewhere.access().kubeconfig()).await?;
    let refused = stage.until_ready_says("self", "the access Secret leads to the hub itself").await?;
    assert!(refused.status.unwrap().conditions.iter().any(|one| one.reason == "TargetIsHub"));
    let written = stage.hub.audit()?.since(mark)?;
    assert!(
        !written
            .iter()
            .any(|event| event.is_write() && event.resource == "configmaps" && event.name == "self")
    );
    stage.stop().await
}

#[tokio::test]
async fn without_a_reference_the_hub_is_the_target_only_where_that_is_meant() -> Result<()> {
    let stage = Stage::new("nowhere").await?;
    stage.create_local("nowhere").await?;
    stage.until_ready_says("nowhere", "AccessInvalid").await?;
    stage.stop().await?;
    let stage = Stage::single_cluster("single").await?;
    stage.create_local("single").await?;
    until("the greeting is on the hub", DEADLINE, || async {
        let maps: Api<ConfigMap> = Api::namespaced(stage.hub.client()?, "kyma-system");
        Ok(maps.get_opt("single").await?)
    })
    .await?;
    stage.stop().await
}
