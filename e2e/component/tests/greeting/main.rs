//! The sdk's driver on real control planes, through a component that was written on it.
//!
//! Each test has a hub namespace and a running component of its own, which holds exactly the roles that its table
//! renders: a `ServiceAccount` on the hub, another one on the target.

// Clippy treats only test functions as tests, not the functions that they call.
#![allow(clippy::unwrap_used)]

mod binary;
mod default_resource;
mod depends;
mod fixture;
mod manager_health;
mod nonconforming;

use std::time::{Duration, Instant};

use anyhow::Result;
use fixture::{DEADLINE, Fixture};
use greeting_component::Hello;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use kyma_sdk::api::labels;
use serde_json::json;
use testbed::{Answer, RequestMatcher, ScriptedServer, until};

#[test]
fn its_crd_and_tables_keep_the_contract() {
    assert_eq!(kyma_sdk::testing::check_tables::<Hello>(), [""; 0]);
}

#[tokio::test]
async fn it_behaves_as_a_component_has_to() -> Result<()> {
    let setup = Fixture::conformance_env("conformance").await?.setup;
    let sample = json!({"text": "Hello"});
    let found = Box::pin(kyma_sdk::testing::check_behaviour(Hello, sample, &setup)).await;
    assert_eq!(found.map_err(anyhow::Error::from_boxed)?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn conformance_tests_reject_a_nonconforming_component() -> Result<()> {
    let setup = Fixture::conformance_env("sloppy").await?.setup;
    let sample = json!({"text": "Hello"});
    let found =
        Box::pin(kyma_sdk::testing::check_behaviour(nonconforming::NonconformingComponent, sample, &setup))
            .await;
    let found = found.map_err(anyhow::Error::from_boxed)?;
    for part in ["without a change, it changed ConfigMap", "conformance-deleted: left behind: ConfigMap"] {
        assert!(found.iter().any(|one| one.contains(part)), "{part}: {found:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_access_secret_that_comes_later_starts_the_work_at_once() -> Result<()> {
    let fixture = Fixture::without_access("later").await?;
    fixture.create("later", json!({"text": "Good morning"})).await?;
    let waiting = fixture.until_ready_says("later", "AwaitingAccess").await?;
    assert_eq!(waiting.status.unwrap().state, Some(kyma_sdk::api::State::Processing));
    let mark = fixture.target.audit()?.mark()?;
    let arrived = Instant::now();
    fixture.grant_access().await?;
    fixture.until_state("later", kyma_sdk::api::State::Ready).await?;
    let first = fixture.writes_on_target(mark)?.into_iter().next().unwrap();
    println!("first write: {} {} (ready {:?} after)", first.verb, first.uri, arrived.elapsed());
    assert_eq!(fixture.greeting_on_target("later").await?.as_deref(), Some("Good morning"));
    fixture.stop().await
}

#[tokio::test]
async fn an_unchanged_resource_causes_no_writes_after_a_restart() -> Result<()> {
    let mut fixture = Fixture::new("quiet").await?;
    fixture.create("quiet", json!({"text": "Hello"})).await?;
    let before = fixture.until_state("quiet", kyma_sdk::api::State::Ready).await?;
    fixture.stop_operator().await?;
    let (hub, target) = (fixture.hub.audit()?.mark()?, fixture.target.audit()?.mark()?);
    fixture.start_operator().await?;
    until("the new process has looked at the target", DEADLINE, || async {
        Ok(fixture.reads_on_target(target)?.iter().any(|event| event.verb == "watch").then_some(()))
    })
    .await?;
    // A trigger without a change requeues the component once more.
    fixture.annotate("quiet", "look-again", "1").await?;
    let after = fixture.until_settled("quiet").await?;
    assert_eq!(fixture.writes_on_target(target)?, []);
    assert_eq!(fixture.writes_on_hub(hub)?, []);
    assert_eq!(before.status, after.status);
    fixture.stop().await
}

#[tokio::test]
async fn an_edit_on_the_target_is_put_right() -> Result<()> {
    let fixture = Fixture::new("drift").await?;
    fixture.create("drift", json!({"text": "Hello"})).await?;
    fixture.until_state("drift", kyma_sdk::api::State::Ready).await?;
    fixture.until_settled("drift").await?;
    let mark = fixture.hub.audit()?.mark()?;
    let edit = json!({"data": {"greeting": "Go away"}});
    let maps = fixture.on_target::<ConfigMap>()?;
    maps.patch("drift", &PatchParams::default(), &Patch::Merge(&edit)).await?;
    fixture.until_greeting("drift", Some("Hello")).await?;
    maps.delete("drift", &DeleteParams::default()).await?;
    fixture.until_greeting("drift", Some("Hello")).await?;
    let asked = fixture.reads_on_hub(mark)?;
    assert!(asked.iter().all(|event| event.verb == "watch"), "the way to the target is known: {asked:?}");
    fixture.stop().await
}

#[tokio::test]
async fn objects_of_others_are_neither_overwritten_nor_removed() -> Result<()> {
    let fixture = Fixture::new("foreign").await?;
    fixture.ensure_target_namespace().await?;
    let maps = fixture.on_target::<ConfigMap>()?;
    let theirs = json!({"metadata": {"name": "foreign"}, "data": {"greeting": "Mine"}});
    maps.create(&PostParams::default(), &serde_json::from_value(theirs)?).await?;
    fixture.create("foreign", json!({"text": "Hello"})).await?;
    fixture.until_ready_says("foreign", "OwnedByOther").await?;
    fixture.delete("foreign").await?;
    fixture.until_gone("foreign").await?;
    assert_eq!(fixture.greeting_on_target("foreign").await?.as_deref(), Some("Mine"));
    fixture.stop().await
}

#[tokio::test]
async fn a_changed_spec_is_applied_and_a_suspended_one_is_not() -> Result<()> {
    let fixture = Fixture::new("change").await?;
    fixture.create("change", json!({"text": "Hello"})).await?;
    fixture.until_state("change", kyma_sdk::api::State::Ready).await?;
    fixture.change("change", json!({"text": "Good evening"})).await?;
    fixture.until_greeting("change", Some("Good evening")).await?;
    fixture.change("change", json!({"suspend": true, "text": "Never said"})).await?;
    fixture.until_ready_says("change", "Suspended").await?;
    assert_eq!(fixture.greeting_on_target("change").await?.as_deref(), Some("Good evening"));
    fixture.change("change", json!({"suspend": false})).await?;
    fixture.until_greeting("change", Some("Never said")).await?;
    fixture.label("change", labels::SKIP_RECONCILIATION, Some("true")).await?;
    fixture.until_ready_says("change", "SkipReconciliation").await?;
    fixture.label("change", labels::SKIP_RECONCILIATION, None).await?;
    fixture.until_state("change", kyma_sdk::api::State::Ready).await?;
    fixture.until_ready_says("change", "Ready").await?;
    fixture.stop().await
}

#[tokio::test]
async fn pause_holds_only_for_its_scope_and_only_while_it_exists() -> Result<()> {
    let fixture = Fixture::new("pause").await?;
    let version = |version: &str| {
        let module = json!({"name": "greeting", "version": version});
        json!({"text": "Hello", "module": module, "deletionPolicy": "Delete"})
    };
    fixture.create("pause", version("1.0.0")).await?;
    fixture.until_state("pause", kyma_sdk::api::State::Ready).await?;
    fixture.pause("freeze", "Upgrades").await?;
    fixture.change("pause", json!({"text": "Good evening"})).await?;
    fixture.until_greeting("pause", Some("Good evening")).await?;
    fixture.change("pause", version("1.1.0")).await?;
    fixture.until_ready_says("pause", "Pause freeze is in force").await?;
    assert_eq!(fixture.greeting_on_target("pause").await?.as_deref(), Some("Good evening"));
    fixture.resume("freeze").await?;
    fixture.until_greeting("pause", Some("Hello")).await?;
    fixture.pause("keep", "Deletes").await?;
    fixture.delete("pause").await?;
    fixture.until_ready_says("pause", "Pause keep is in force").await?;
    assert_eq!(fixture.greeting_on_target("pause").await?.as_deref(), Some("Hello"));
    fixture.resume("keep").await?;
    fixture.until_gone("pause").await?;
    fixture.until_greeting("pause", None).await?;
    fixture.stop().await
}

#[tokio::test]
async fn a_reason_of_its_own_is_shown_like_any_other() -> Result<()> {
    let fixture = Fixture::new("loud").await?;
    fixture.create("loud", json!({"text": "HELLO"})).await?;
    let refused = fixture.until_ready_says("loud", "TooLoud").await?;
    let status = refused.status.unwrap();
    assert_eq!(status.state, Some(kyma_sdk::api::State::Error));
    assert_eq!(fixture.greeting_on_target("loud").await?, None);
    fixture.change("loud", json!({"text": "Hello"})).await?;
    fixture.until_greeting("loud", Some("Hello")).await?;
    fixture.stop().await
}

#[tokio::test]
async fn orphan_leaves_everything_and_an_order_removes_it() -> Result<()> {
    let fixture = Fixture::new("end").await?;
    for name in ["orphan", "unproven", "ordered"] {
        fixture.create_managed(name, json!({"text": "Hello"})).await?;
        fixture.until_state(name, kyma_sdk::api::State::Ready).await?;
    }
    fixture.delete("orphan").await?;
    fixture.until_gone("orphan").await?;
    fixture.change("unproven", json!({"deletionPolicy": "Delete"})).await?;
    fixture.order("unproven", "11111111-another-kyma").await?;
    fixture.delete("unproven").await?;
    fixture.until_gone("unproven").await?;
    fixture.change("ordered", json!({"deletionPolicy": "Delete"})).await?;
    fixture.order("ordered", fixture::KYMA_UID).await?;
    fixture.delete("ordered").await?;
    fixture.until_gone("ordered").await?;
    assert_eq!(fixture.greeting_on_target("orphan").await?.as_deref(), Some("Hello"));
    assert_eq!(fixture.greeting_on_target("unproven").await?.as_deref(), Some("Hello"));
    assert_eq!(fixture.greeting_on_target("ordered").await?, None);
    fixture.stop().await
}

#[tokio::test]
async fn standalone_component_is_removed_by_deletion_not_by_namespace() -> Result<()> {
    let fixture = Fixture::new("alone").await?;
    for name in ["deleted", "swept-away"] {
        fixture.create(name, json!({"text": "Hello", "deletionPolicy": "Delete"})).await?;
        fixture.until_state(name, kyma_sdk::api::State::Ready).await?;
    }
    fixture.delete("deleted").await?;
    fixture.until_gone("deleted").await?;
    assert_eq!(fixture.greeting_on_target("deleted").await?, None);
    fixture.delete_hub_namespace().await?;
    fixture.until_gone("swept-away").await?;
    assert_eq!(fixture.greeting_on_target("swept-away").await?.as_deref(), Some("Hello"));
    fixture.stop().await
}

#[tokio::test]
async fn another_cluster_behind_the_secret_is_refused() -> Result<()> {
    let fixture = Fixture::new("swap").await?;
    let greeting = fixture.create("swap", json!({"text": "Hello"})).await?;
    assert!(greeting.annotations().is_empty());
    fixture.until_state("swap", kyma_sdk::api::State::Ready).await?;
    fixture.annotate("swap", kyma_sdk::api::annotations::TARGET_UID, "a-cluster-that-was").await?;
    let refused = fixture.until_ready_says("swap", "TargetChanged").await?;
    assert_eq!(refused.status.unwrap().state, Some(kyma_sdk::api::State::Error));
    fixture.stop().await
}

#[tokio::test]
async fn wrong_access_is_named_and_mended_without_a_restart() -> Result<()> {
    let fixture = Fixture::without_access("mend").await?;
    fixture.create("mend", json!({"text": "Hello"})).await?;
    fixture.put_access("no kubeconfig at all").await?;
    fixture.until_ready_says("mend", "AccessInvalid").await?;
    fixture.grant_access().await?;
    fixture.until_state("mend", kyma_sdk::api::State::Ready).await?;
    tokio::time::timeout(Duration::from_mins(1), fixture.stop()).await?
}

#[tokio::test]
async fn failing_target_is_named_and_work_resumes_once_it_answers() -> Result<()> {
    let fixture = Fixture::without_access("outage").await?;
    let server = ScriptedServer::in_front_of(&fixture.target).await?;
    server.always(
        RequestMatcher::any(),
        Answer::failure(503, "ServiceUnavailable", "secret words of the target"),
    );
    fixture.put_access(&server.access_of(&fixture.user().await?).kubeconfig()).await?;
    let created = fixture.create("outage", json!({"text": "Hello"})).await?;
    let failed = fixture.until_ready_says("outage", "TargetServerError").await?;
    let status = failed.status.unwrap();
    assert_eq!(status.state, Some(kyma_sdk::api::State::Error));
    let reachable = status.conditions.iter().find(|one| one.type_ == "TargetReachable").unwrap();
    assert_eq!((reachable.status.as_str(), reachable.reason.as_str()), ("False", "TargetServerError"));
    assert!(!reachable.message.contains("secret words"), "{}", reachable.message);
    assert_eq!(status.observed_generation, created.metadata.generation);
    server.clear();
    let ready = fixture.until_state("outage", kyma_sdk::api::State::Ready).await?;
    let conditions = ready.status.unwrap().conditions;
    assert!(conditions.iter().all(|one| one.status == "True"), "{conditions:?}");
    fixture.stop().await
}

#[tokio::test]
async fn the_hub_behind_an_access_secret_is_refused() -> Result<()> {
    let fixture = Fixture::without_access("self").await?;
    fixture.put_access(&fixture.hub.kubeconfig()).await?;
    fixture.create("self", json!({"text": "Hello"})).await?;
    let mark = fixture.hub.audit()?.mark()?;
    fixture.until_ready_says("self", "its address is the hub itself").await?;
    // The same apiserver under another name is recognised by its identity.
    let elsewhere = ScriptedServer::in_front_of(&fixture.hub).await?;
    fixture.put_access(&elsewhere.access().kubeconfig()).await?;
    let refused = fixture.until_ready_says("self", "the access Secret leads to the hub itself").await?;
    assert!(refused.status.unwrap().conditions.iter().any(|one| one.reason == "TargetIsHub"));
    let written = fixture.hub.audit()?.since(mark)?;
    assert!(
        !written
            .iter()
            .any(|event| event.is_write() && event.resource == "configmaps" && event.name == "self")
    );
    fixture.stop().await
}

#[tokio::test]
async fn hub_is_target_without_reference_only_in_single_cluster_mode() -> Result<()> {
    let fixture = Fixture::new("nowhere").await?;
    fixture.create_local("nowhere").await?;
    fixture.until_ready_says("nowhere", "AccessInvalid").await?;
    fixture.stop().await?;
    let fixture = Fixture::single_cluster("single").await?;
    fixture.create_local("single").await?;
    until("the greeting is on the hub", DEADLINE, || async {
        let maps: Api<ConfigMap> = Api::namespaced(fixture.hub.client()?, "kyma-system");
        Ok(maps.get_opt("single").await?)
    })
    .await?;
    fixture.stop().await
}
