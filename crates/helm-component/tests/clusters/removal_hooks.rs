//! Hooks of a removal are those of the installed release, whatever the spec requests by then.

use anyhow::Result;
use serde_json::json;
use testbed::AuditMark;

use crate::chart::push;
use crate::hooks::{USER, borrowed, config, job, level, story, wished};
use crate::world::{World, notes, world};

const BYE: &str = "helm.sh/hook: pre-delete, helm.sh/hook-delete-policy: hook-succeeded";

/// Removes the component, and returns the Jobs that ran for it.
async fn jobs_of_removal(world: &World, name: &str, mark: AuditMark) -> Result<Vec<String>> {
    world.delete(name, "Delete").await?;
    world.gone(name).await?;
    let told = story(world, mark, name, |event| event.user == USER)?;
    Ok(told.into_iter().filter(|line| line.starts_with("+ Job ")).collect())
}

#[tokio::test]
async fn missing_chart_version_keeps_removal_hooks_of_installed_one() -> Result<()> {
    let world = world().await?;
    // The chart has a pre-install hook and none after the install, in a release without a later one.
    let migrate = job("migrate", "helm.sh/hook: pre-install", "");
    let files = [config("main", ""), migrate, job("farewell", BYE, "")];
    let source = push(world, "parted", "1.0.0", &borrowed(&files)).await?;
    world.apply("parted", wished(&source, "parted", "low")).await?;
    world.ready("parted", "True", "Ready").await?;
    let mut missing = source.clone();
    missing["chart"]["version"] = json!("9.9.9");
    world.apply("parted", wished(&missing, "parted", "low")).await?;
    world.ready("parted", "False", "SourceNotFound").await?;
    let mark = world.target.audit()?.mark()?;
    assert_eq!(jobs_of_removal(world, "parted", mark).await?, ["+ Job farewell"]);
    assert_eq!(level(world, "parted").await?, None);
    Ok(())
}

#[tokio::test]
async fn release_with_failed_pre_upgrade_hook_runs_no_delete_hooks() -> Result<()> {
    let world = world().await?;
    let files = [config("main", ""), job("first-farewell", BYE, "")];
    let source = push(world, "unparted", "1.0.0", &borrowed(&files)).await?;
    world.apply("unparted", wished(&source, "unparted", "low")).await?;
    world.ready("unparted", "True", "Ready").await?;
    let (path, text) = job("check", "helm.sh/hook: pre-upgrade", "activeDeadlineSeconds: 1");
    let text =
        text.replace("  template:\n", "  template:\n    metadata: {labels: {testbed/outcome: unready}}\n");
    // CRDs are applied before pre-install and pre-upgrade hooks.
    let crd = ("crds/notes.yaml".to_owned(), notes("unparted.example.org"));
    let files = [config("main", ""), (path, text), job("second-farewell", BYE, ""), crd];
    let source = push(world, "unparted", "2.0.0", &borrowed(&files)).await?;
    world.apply("unparted", wished(&source, "unparted", "high")).await?;
    world.ready("unparted", "False", "HookFailed").await?;
    assert_eq!(level(world, "unparted").await?, Some(json!("low")), "what runs stays");
    let mark = world.target.audit()?.mark()?;
    assert_eq!(jobs_of_removal(world, "unparted", mark).await?, ["+ Job first-farewell"]);
    Ok(())
}

#[tokio::test]
async fn upgrade_replaces_delete_hooks_and_missing_values_keep_them() -> Result<()> {
    let world = world().await?;
    let files = [config("main", ""), job("old-farewell", BYE, "")];
    let source = push(world, "reparted", "1.0.0", &borrowed(&files)).await?;
    world.apply("reparted", wished(&source, "reparted", "low")).await?;
    world.ready("reparted", "True", "Ready").await?;
    let files = [config("main", ""), job("new-farewell", BYE, "")];
    let source = push(world, "reparted", "2.0.0", &borrowed(&files)).await?;
    world.apply("reparted", wished(&source, "reparted", "high")).await?;
    world.ready("reparted", "True", "Ready").await?;
    assert_eq!(level(world, "reparted").await?, Some(json!("high")));
    let mut spec = wished(&source, "reparted", "high");
    spec["valuesFrom"] = json!([{"kind": "ConfigMap", "name": "reparted-gone"}]);
    world.apply("reparted", spec).await?;
    world.ready("reparted", "False", "ValuesMissing").await?;
    let mark = world.target.audit()?.mark()?;
    assert_eq!(jobs_of_removal(world, "reparted", mark).await?, ["+ Job new-farewell"]);
    Ok(())
}

#[tokio::test]
async fn a_chart_of_hooks_alone_runs_those_of_its_removal() -> Result<()> {
    let world = world().await?;
    let files = [job("hello", "helm.sh/hook: post-install", ""), job("farewell", BYE, "")];
    let source = push(world, "hooks-alone", "1.0.0", &borrowed(&files)).await?;
    world.apply("hooks-alone", wished(&source, "hooks-alone", "low")).await?;
    world.ready("hooks-alone", "True", "Ready").await?;
    let mark = world.target.audit()?.mark()?;
    assert_eq!(jobs_of_removal(world, "hooks-alone", mark).await?, ["+ Job farewell"]);
    Ok(())
}

#[tokio::test]
async fn hook_skipped_at_installation_does_not_run_at_removal() -> Result<()> {
    let world = world().await?;
    let files =
        [config("main", ""), job("hello", "helm.sh/hook: post-install", ""), job("farewell", BYE, "")];
    let source = push(world, "hooks-later", "1.0.0", &borrowed(&files)).await?;
    let mark = world.target.audit()?.mark()?;
    let mut spec = wished(&source, "hooks-later", "low");
    spec["hooks"] = json!("Skip");
    world.apply("hooks-later", spec).await?;
    world.ready("hooks-later", "True", "Ready").await?;
    world.apply("hooks-later", wished(&source, "hooks-later", "low")).await?;
    world.ready("hooks-later", "True", "Ready").await?;
    assert_eq!(jobs_of_removal(world, "hooks-later", mark).await?, ["+ Job farewell"]);
    Ok(())
}

/// A partly refused release does not become the installed one; a return to the former release installs that one
/// again.
#[tokio::test]
async fn release_restored_after_a_refused_one_runs_its_hooks_again() -> Result<()> {
    let world = world().await?;
    let files = [config("main", ""), job("check", "helm.sh/hook: pre-upgrade", ""), job("farewell", BYE, "")];
    let source = push(world, "comes-back", "1.0.0", &borrowed(&files)).await?;
    world.apply("comes-back", wished(&source, "comes-back", "low")).await?;
    world.ready("comes-back", "True", "Ready").await?;
    let odd = "apiVersion: v1\nkind: Service\nmetadata: {name: odd}\nspec: {ports: [{port: 0}]}\n";
    let files = [config("main", ""), ("templates/odd.yaml".to_owned(), odd.to_owned())];
    let refused = push(world, "comes-back", "1.1.0", &borrowed(&files)).await?;
    world.apply("comes-back", wished(&refused, "comes-back", "high")).await?;
    world.ready("comes-back", "False", "ApplyRefused").await?;
    let mark = world.target.audit()?.mark()?;
    world.apply("comes-back", wished(&source, "comes-back", "low")).await?;
    world.ready("comes-back", "True", "Ready").await?;
    assert_eq!(level(world, "comes-back").await?, Some(json!("low")));
    let ran = jobs_of_removal(world, "comes-back", mark).await?;
    assert_eq!(ran, ["+ Job check", "+ Job farewell"]);
    Ok(())
}
