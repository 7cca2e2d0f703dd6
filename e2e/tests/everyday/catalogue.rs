//! Modules that the user chooses and the catalogue does not offer, on the Kyma `lake`, beside a module that runs.

use anyhow::{Context, Result, ensure};
use e2e::wait::has_condition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kyma_api::{Kyma, Reason, State};
use serde_json::{Value, json};

use crate::row::until;
use crate::world::{World, row};

#[test]
fn a_module_without_release_meta_is_waited_for() -> Result<()> {
    row("meta-missing", async |row| {
        let _in_use = row.world.lake.in_use.lock().await;
        row.world.push("ferry", "1.0.0").await?;
        chosen(row.world, &json!([{"name": "ferry"}])).await?;
        is_refused(row.world, "ferry", Reason::ModuleReleaseMetaMissing, "ferry").await?;
        row.world.offer("ferry", regular("1.0.0")).await?;
        runs(row.world, "ferry", "1.0.0").await?;
        chosen(row.world, &json!([])).await
    })
}

#[test]
fn e25_channel_without_template_is_reported_and_keeps_version() -> Result<()> {
    row("template-missing", async |row| {
        let _in_use = row.world.lake.in_use.lock().await;
        row.world.push("canoe", "1.0.0").await?;
        row.world.offer("canoe", regular("1.0.0")).await?;
        chosen(row.world, &json!([{"name": "canoe"}])).await?;
        runs(row.world, "canoe", "1.0.0").await?;
        row.world.offer("canoe", regular("1.1.0")).await?;
        is_refused(row.world, "canoe", Reason::ModuleTemplateMissing, "1.1.0").await?;
        let status = row.world.kymas().get(row.world.lake.kyma).await?.status.unwrap_or_default();
        ensure!(status.state == Some(State::Error), "the Kyma must say so: {status:?}");
        ensure!(content(row.world, "canoe").await? == Some("1.0.0".to_owned()), "the old version must stay");
        row.world.push("canoe", "1.1.0").await?;
        runs(row.world, "canoe", "1.1.0").await?;
        chosen(row.world, &json!([])).await
    })
}

#[test]
fn an_unknown_channel_names_those_that_there_are() -> Result<()> {
    row("channel-unknown", async |row| {
        let _in_use = row.world.lake.in_use.lock().await;
        row.world.push("dinghy", "1.0.0").await?;
        row.world.offer("dinghy", regular("1.0.0")).await?;
        chosen(row.world, &json!([{"name": "dinghy", "channel": "nightly"}])).await?;
        is_refused(row.world, "dinghy", Reason::ChannelUnknown, "its channels are: regular").await?;
        chosen(row.world, &json!([{"name": "dinghy", "channel": "regular"}])).await?;
        runs(row.world, "dinghy", "1.0.0").await?;
        chosen(row.world, &json!([])).await
    })
}

#[test]
fn channel_and_version_exclude_each_other() -> Result<()> {
    row("channel-and-version", async |row| {
        let _in_use = row.world.lake.in_use.lock().await;
        row.world.push("kayak", "1.0.0").await?;
        row.world.offer("kayak", regular("1.0.0")).await?;
        chosen(row.world, &json!([{"name": "kayak", "channel": "regular", "version": "1.0.0"}])).await?;
        is_refused(row.world, "kayak", Reason::ChannelAndVersion, "remove one").await?;
        chosen(row.world, &json!([{"name": "kayak", "version": "1.0.0"}])).await?;
        runs(row.world, "kayak", "1.0.0").await?;
        chosen(row.world, &json!([])).await
    })
}

#[test]
fn a_pin_that_is_not_listed_leaves_what_runs() -> Result<()> {
    row("pin-unlisted", async |row| {
        let _in_use = row.world.lake.in_use.lock().await;
        for version in ["1.0.0", "1.1.0"] {
            row.world.push("yawl", version).await?;
        }
        row.world.offer("yawl", json!({"versions": [{"version": "1.0.0"}]})).await?;
        chosen(row.world, &json!([{"name": "yawl", "version": "1.0.0"}])).await?;
        runs(row.world, "yawl", "1.0.0").await?;
        chosen(row.world, &json!([{"name": "yawl", "version": "1.1.0"}])).await?;
        is_refused(row.world, "yawl", Reason::VersionNotListed, "1.1.0").await?;
        ensure!(content(row.world, "yawl").await? == Some("1.0.0".to_owned()), "the old version must stay");
        row.world.offer("yawl", json!({"versions": [{"version": "1.0.0"}, {"version": "1.1.0"}]})).await?;
        runs(row.world, "yawl", "1.1.0").await?;
        chosen(row.world, &json!([])).await
    })
}

fn regular(version: &str) -> Value {
    json!({"channels": [{"channel": "regular", "version": version}]})
}

/// Enables these modules beside `anchor` in the target's Kyma. Without any, waits until the former ones are gone.
pub(crate) async fn chosen(world: &World, modules: &Value) -> Result<()> {
    let mut all = vec![json!({"name": "anchor"})];
    all.extend(modules.as_array().context("a list")?.iter().cloned());
    let kymas: Api<Kyma> = Api::namespaced(world.lake.target.client()?, "kyma-system");
    let choice = Patch::Merge(json!({"spec": {"modules": all}}));
    kymas.patch("default", &PatchParams::default(), &choice).await?;
    if all.len() == 1 {
        until("only the neighbour is left, Ready", world.kymas(), world.lake.kyma, |kyma| {
            kyma["status"]["state"] == "Ready"
                && kyma["status"]["modules"].as_array().is_some_and(|all| all.len() == 1)
        })
        .await?;
    }
    Ok(())
}

/// Waits until the Kyma is not Ready because of this module, for this reason, on hub and target. Checks that the
/// neighbour is still Ready.
pub(crate) async fn is_refused(world: &World, module: &str, reason: Reason, words: &str) -> Result<()> {
    let what = format!("{module} is refused for {reason}");
    let kyma = until(&what, world.kymas(), world.lake.kyma, |kyma| {
        has_condition(kyma, "Ready", "False", reason)
            && line(kyma, module)["message"].as_str().is_some_and(|it| it.contains(words))
    })
    .await?;
    ensure!(line(&kyma, "anchor")["state"] == "Ready", "the neighbour must not care: {}", kyma["status"]);
    let shown: Api<Kyma> = Api::namespaced(world.lake.target.client()?, "kyma-system");
    until(&format!("{what}, as the user sees it"), shown, "default", |kyma| {
        has_condition(kyma, "Ready", "False", reason)
    })
    .await?;
    Ok(())
}

/// Waits until the module is Ready in this version, and so is its Kyma.
pub(crate) async fn runs(world: &World, module: &str, version: &str) -> Result<()> {
    until(&format!("{module} {version} runs"), world.kymas(), world.lake.kyma, |kyma| {
        let line = line(kyma, module);
        line["state"] == "Ready" && line["version"] == version && kyma["status"]["state"] == "Ready"
    })
    .await?;
    ensure!(content(world, module).await?.as_deref() == Some(version), "the target must hold it");
    Ok(())
}

/// Waits until the module is in this state.
pub(crate) async fn is_in(world: &World, module: &str, state: &str) -> Result<()> {
    let what = format!("{module} is {state}");
    until(&what, world.kymas(), world.lake.kyma, |kyma| line(kyma, module)["state"] == state).await?;
    Ok(())
}

fn line(kyma: &Value, module: &str) -> Value {
    let mut lines = kyma["status"]["modules"].as_array().into_iter().flatten();
    lines.find(|line| line["name"] == module).cloned().unwrap_or_default()
}

/// Returns the version of the module's content on the target.
async fn content(world: &World, module: &str) -> Result<Option<String>> {
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> =
        Api::namespaced(world.lake.target.client()?, "kyma-system");
    let found = maps.get_opt(&format!("{module}-content")).await?;
    Ok(found.and_then(|found| found.data?.get("version").cloned()))
}
