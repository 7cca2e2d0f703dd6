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

async fn by_helm(world: &World, name: &str, files: &[(String, String)]) -> Result<Story> {
    let archive = world.scratch(&format!("{name}.tgz"));
    std::fs::write(&archive, packed(name, "1.0.0", &borrowed(files))?)?;
    let chart = archive.to_str().context("a path")?;
    let namespace = format!("{name}-helm");
    let mark = world.target.audit()?.mark()?;
    let said = world.helm_fails(&namespace, &["install", "rel", chart, "--create-namespace"]).await?;
    ensure!(said.contains("failed pre-install"), "{said}");
    story(world, mark, &namespace, |event| event.user_agent.starts_with("Helm/"))
}

/// Installs the chart with helm-component, and returns the story up to the first failure; a pause comes before the
/// retry.
async fn by_us(world: &World, name: &str, files: &[(String, String)]) -> Result<Story> {
    let source = push(world, name, "1.0.0", &borrowed(files)).await?;
    let namespace = format!("{name}-ours");
    let mark = world.target.audit()?.mark()?;
    let release = json!({"name": "rel", "namespace": namespace});
    world.apply(name, json!({"source": source, "release": release})).await?;
    world.ready(name, "False", "HookFailed").await?;
    story(world, mark, &namespace, |event| event.user == USER)
}

#[tokio::test]
async fn a_failed_hook_leaves_what_helm_leaves() -> Result<()> {
    let world = world().await?;
    let goes = ", helm.sh/hook-delete-policy: hook-failed";
    let rows = [
        ("ousted", goes, vec!["+ Job one", "+ Job two", "- Job two", "- Job one"]),
        ("loitering", "", vec!["+ Job one", "+ Job two", "- Job one"]),
    ];
    for (name, policy, expected) in rows {
        let files = files(policy);
        let (helms, ours) = tokio::try_join!(by_helm(world, name, &files), by_us(world, name, &files))?;
        assert_eq!(helms, expected, "{name}");
        assert_eq!(ours, helms, "{name}");
        for namespace in [format!("{name}-helm"), format!("{name}-ours")] {
            let failed = world.on_target("batch/v1", "Job", &namespace, "two").await?;
            assert_eq!(
                failed.is_none_or(|job| job.metadata.deletion_timestamp.is_some()),
                policy == goes,
                "{namespace}"
            );
            assert!(world.on_target("batch/v1", "Job", &namespace, "three").await?.is_none(), "{namespace}");
            assert!(world.on_target("v1", "ConfigMap", &namespace, "main").await?.is_none(), "{namespace}");
        }
    }
    Ok(())
}
