//! Concurrent and conflicting changes of users and operators to one Kyma, with all operators as they are deployed.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod by_hand;
mod default_resource;
mod deletion;
mod status;

use std::sync::LazyLock;

use anyhow::Result;
use e2e::landscape::{HUB_NAMESPACE, Landscape, Options};
use e2e::wait;
use kube::api::PostParams;
use kube::{Api, Client};
use kyma_api::Kyma;
use serde_json::{Value, json};
use testbed::{Cluster, rounds};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, OnceCell};

/// One runtime for all tests, since the landscape outlives each test.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
static LANDSCAPE: OnceCell<Mutex<Landscape>> = OnceCell::const_new();

#[test]
fn module_installed_by_user_is_adopted_only_while_enabled() -> Result<()> {
    alone(async |landscape| Box::pin(by_hand::run(landscape)).await)
}

#[test]
fn two_operators_writing_one_status_lose_no_condition() -> Result<()> {
    alone(async |landscape| status::run(landscape).await)
}

#[test]
fn e02_foreground_deletion_of_kyma_waits_for_user_objects() -> Result<()> {
    alone(async |landscape| {
        let target = landscape.fresh_target("pier").await?;
        let landscape = &*landscape;
        rounds(async || deletion::run(landscape, &target).await).await
    })
}

#[test]
fn default_cr_of_a_module_of_its_own_kind_belongs_to_the_user() -> Result<()> {
    alone(async |landscape| default_resource::run(landscape).await)
}

/// Starts the landscape, which tests use one after another. Operators resync every five seconds.
async fn landscape() -> Result<Mutex<Landscape>> {
    let flags = vec!["--resync=5s".to_owned()];
    Landscape::start(Options { targets: 1, audit: true, flags, ..Options::default() }).await.map(Mutex::new)
}

fn alone(scenario: impl AsyncFnOnce(&mut Landscape) -> Result<()>) -> Result<()> {
    RUNTIME.block_on(async {
        let mut landscape = LANDSCAPE.get_or_try_init(landscape).await?.lock().await;
        scenario(&mut landscape).await?;
        landscape.check()
    })
}

/// Creates a Kyma without modules, and waits until it is Ready with its catalogue.
async fn create(landscape: &Landscape, name: &str, target: &Cluster) -> Result<()> {
    let hub = landscape.hub().client()?;
    let secret = landscape.access_secret(name, target).await?;
    Api::namespaced(hub.clone(), HUB_NAMESPACE).create(&PostParams::default(), &secret).await?;
    let kyma = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": name},
        "spec": {"channel": "regular"},
    }))?;
    kymas(&hub).create(&PostParams::default(), &kyma).await?;
    let is_ready = |kyma: Option<&Kyma>| {
        is(kyma, |kyma| {
            kyma["status"]["state"] == "Ready" && condition(kyma, "ModuleCatalog")["status"] == "True"
        })
    };
    wait::until("the Kyma is Ready", kymas(&hub), name, is_ready).await?;
    Ok(())
}

fn kymas(hub: &Client) -> Api<Kyma> {
    Api::namespaced(hub.clone(), HUB_NAMESPACE)
}

fn is(kyma: Option<&Kyma>, wanted: impl Fn(&Value) -> bool) -> bool {
    kyma.and_then(|kyma| serde_json::to_value(kyma).ok()).is_some_and(|kyma| wanted(&kyma))
}

/// Returns a condition of the object, or null if there is none of this type.
fn condition(object: &Value, type_: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == type_).cloned().unwrap_or_default()
}
