//! Objects that stay after a hook fails, compared with Helm.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::chart::{packed, push};
use crate::hooks::{Story, USER, borrowed, config, job, story};
use crate::world::{World, world};

/// Returns a chart in which the second of three hooks fails, with this delete policy.
fn files(policy: &str) -> Vec<(String, String)> {
    let hook = |weight: &str, policy: &str| {
        format!("helm.sh/hook: pre-install, helm.sh/hook-weight: \"{weight}\"{policy}")
    };
    let (path, text) = job("two", &hook("2", policy), "activeDeadlineSeconds: 1");
    let pods = "  template:\n    metadata: {labels: {testbed/outcome: unready}}\n";
    vec![
        config("main", ""),
        job("one", &hook("1", ", helm.sh/hook-delete-policy: hook-succeeded"), ""),
        (path, text.replace("  template:\n", pods)),
        job("three", &hook("3", ""), ""),
        ("values.yaml".to_owned(), "level: low\n".to_owned()),
    ]
}

/// Returns the names of the remaining objects of the chart, without those that are being deleted.
async fn list_remaining(world: &World, namespace: &str) -> Result<Vec<&'static str>> {
    let mut remaining = vec![];
    for (api_version, kind, name) in
        [("batch/v1", "Job", "two"), ("batch/v1", "Job", "three"), ("v1", "ConfigMap", "main")]
    {
        let found = world.on_target(api_version, kind, namespace, name).await?;
        remaining.extend(found.filter(|found| found.metadata.deletion_timestamp.is_none()).map(|_| name));
    }
    Ok(remaining)
}

/// Installs the chart with Helm, and returns the story and the remaining objects.
async fn by_helm(
    world: &World,
    name: &str,
    files: &[(String, String)],
) -> Result<(Story, Vec<&'static str>)> {
    let archive = world.scratch(&format!("{name}.tgz"));
    std::fs::write(&archive, packed(name, "1.0.0", &borrowed(files))?)?;
    let chart = archive.to_str().context("a path")?;
    let namespace = format!("{name}-helm");
    let mark = world.target.audit()?.mark()?;
    let said = world.helm_fails(&namespace, &["install", "rel", chart, "--create-namespace"]).await?;
    ensure!(said.contains("failed pre-install"), "{said}");
    let told = story(world, mark, &namespace, |event| event.user_agent.starts_with("Helm/"))?;
    Ok((told, list_remaining(world, &namespace).await?))
}

/// Does the same with helm-component, up to the first failure; a pause of 30 s comes before the retry.
async fn by_us(world: &World, name: &str, files: &[(String, String)]) -> Result<(Story, Vec<&'static str>)> {
    let source = push(world, name, "1.0.0", &borrowed(files)).await?;
    let namespace = format!("{name}-ours");
    let mark = world.target.audit()?.mark()?;
    let release = json!({"name": "rel", "namespace": namespace});
    world.apply(name, json!({"source": source, "release": release})).await?;
    world.ready(name, "False", "HookFailed").await?;
    let told = story(world, mark, &namespace, |event| event.user == USER)?;
    Ok((told, list_remaining(world, &namespace).await?))
}

#[tokio::test]
async fn a_failed_hook_leaves_what_helm_leaves() -> Result<()> {
    let world = world().await?;
    let goes = ", helm.sh/hook-delete-policy: hook-failed";
    let rows = [
        ("ousted", goes, vec!["+ Job one", "+ Job two", "- Job two", "- Job one"], vec![]),
        ("loitering", "", vec!["+ Job one", "+ Job two", "- Job one"], vec!["two"]),
    ];
    for (name, policy, expected, stays) in rows {
        let files = files(policy);
        let (helms, ours) = tokio::try_join!(by_helm(world, name, &files), by_us(world, name, &files))?;
        assert_eq!(helms.0, expected, "{name}");
        assert_eq!(helms.1, stays, "{name}");
        assert_eq!(ours, helms, "{name}");
    }
    Ok(())
}
