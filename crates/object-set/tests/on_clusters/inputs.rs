//! Modules of other authors: a second apply writes nothing, and after the removal nothing is left.

use std::fs;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use kyma_api::Reason;
use kyma_object_set::{Identity, KeepReason, NoObservations, Refusal};
use serde_json::json;
use testbed::until_or_why;
use tokio::sync::Mutex;

use super::story::{EVENT_TIMEOUT, Story};

#[tokio::test]
async fn real_modules_settle_upgrade_and_go() -> Result<()> {
    let Some(inputs) = testbed::inputs("the sets of real modules")? else { return Ok(()) };
    let story = Story::begin("modules").await?;
    let namespaces: Api<Namespace> = Api::all(story.cluster.client.clone());
    // Modules may expect this namespace.
    let system = serde_json::from_value(json!({"metadata": {"name": "kyma-system"}}))?;
    namespaces.create(&PostParams::default(), &system).await?;
    let mut seen = 0;
    for module in fs::read_dir(inputs.join("modules"))? {
        let module = module?.path();
        let manifest = module.join("raw-manifest.yaml");
        if !manifest.is_file() {
            continue;
        }
        seen += 1;
        let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let previous = fs::read_to_string(module.join("previous/raw-manifest.yaml")).ok();
        round(&name, previous.as_deref(), &fs::read_to_string(manifest)?).await?;
    }
    ensure!(seen > 0, "no module in the inputs");
    Ok(())
}

async fn round(name: &str, previous: Option<&str>, manifest: &str) -> Result<()> {
    let mut story = Story::begin("module").await?;
    if let Some(previous) = previous {
        settle(&mut story, name, previous).await?;
    }
    let applied = settle(&mut story, name, manifest).await?;
    let blocked = story.prune(&applied).await?;
    if applied.is_complete() {
        ensure!(blocked.is_ok(), "{name}: {blocked:?}");
    }
    let removal = story.uninstall_all().await?;
    let expected = |(id, reason): (&Identity, &KeepReason)| {
        // Authors may request to keep an object, and namespaces of other modules of this test stay.
        let namespace = matches!(reason, KeepReason::NotCreatedByUs | KeepReason::ForeignObjects);
        *reason == KeepReason::ResourcePolicy || id.is_namespace() && namespace
    };
    ensure!(removal.kept.iter().all(expected), "{name}: {:?}", removal.kept);
    ensure!(story.inventory.is_empty(), "{name}");
    Ok(())
}

/// Applies a manifest as callers do, and once more: the second apply changes nothing.
async fn settle(story: &mut Story, name: &str, manifest: &str) -> Result<kyma_object_set::ApplyReport> {
    let shared = Mutex::new(&mut *story);
    // On a busy machine an apply may not wait long enough for its CRDs, and a controller may write to an object during
    // each try of a patch.
    until_or_why(&format!("{name} is accepted"), EVENT_TIMEOUT, || async {
        let first = shared.lock().await.try_apply(manifest, &NoObservations).await?;
        let errors: Vec<_> = first.errors().collect();
        let is_conflict = |(_, refusal): &(&Identity, &Refusal)| refusal.reason() == Reason::ApplyConflict;
        ensure!(errors.iter().all(is_conflict), "{name}: {errors:?}");
        let is_accepted = errors.is_empty() && first.waiting().next().is_none();
        Ok(if is_accepted { Ok(()) } else { Err(format!("{:?}", first.outcomes)) })
    })
    .await?;
    let second = story.try_apply(manifest, &NoObservations).await?;
    let again: Vec<_> = second.changed().collect();
    ensure!(again.is_empty(), "{name} is not settled: {again:?}");
    let errors: Vec<_> = second.errors().collect();
    ensure!(errors.is_empty(), "{name}: {errors:?}");
    story.discover(&second).await?;
    Ok(second)
}
