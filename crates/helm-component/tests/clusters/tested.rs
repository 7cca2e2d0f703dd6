//! Tests of a chart, run on request, compared with `helm test` and through a restart.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::{HelmComponent, annotations};
use serde_json::json;
use testbed::until;

use crate::chart::{packed, push};
use crate::hooks::{Story, USER, borrowed, config, job, pod, story, wished};
use crate::stored_renders::renders;
use crate::world::{DEADLINE, World, condition_of, ready_of, world};

fn test(weight: &str, policy: &str) -> String {
    format!("helm.sh/hook: test, helm.sh/hook-weight: \"{weight}\", helm.sh/hook-delete-policy: \"{policy}\"")
}

/// Requests the chart's tests, and waits until they have ended.
async fn tested(world: &World, name: &str, moment: &str) -> Result<HelmComponent> {
    ask(world, name, moment).await?;
    over(world, name, moment).await
}

async fn ask(world: &World, name: &str, moment: &str) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {annotations::TEST_REQUESTED_AT: moment}}});
    world.components()?.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

async fn over(world: &World, name: &str, moment: &str) -> Result<HelmComponent> {
    let components = world.components()?;
    until("the tests are over", DEADLINE, || async {
        let component = components.get(name).await?;
        let handled = component.status.as_ref().and_then(|status| status.last_handled_test_at.as_deref());
        let tested = condition_of(&component, "TestSuccess");
        let is_over = handled == Some(moment) && tested.is_some_and(|(status, _, _)| status != "Unknown");
        Ok(is_over.then_some(component))
    })
    .await
}

fn says(component: &HelmComponent, type_: &str) -> Option<(String, String)> {
    condition_of(component, type_).map(|(status, reason, _)| (status, reason))
}

#[tokio::test]
async fn tests_run_as_helm_runs_them_and_leave_the_release_as_it_is() -> Result<()> {
    let world = world().await?;
    let files = [
        config("main", ""),
        config("settings", &test("-1", "before-hook-creation")),
        job("later", &test("2", "before-hook-creation"), ""),
        job("probe", &test("1", "before-hook-creation,hook-succeeded"), ""),
        job("seed", "helm.sh/hook: post-install", ""),
    ];
    let chart = world.scratch("tested.tgz");
    std::fs::write(&chart, packed("tested", "1.0.0", &borrowed(&files))?)?;
    let path = chart.to_str().unwrap_or_default();
    world.helm("tested-helm", &["install", "rel", path, "--create-namespace"]).await?;
    let mark = world.target.audit()?.mark()?;
    world.helm("tested-helm", &["test", "rel"]).await?;
    let helms = story(world, mark, "tested-helm", |event| event.user_agent.starts_with("Helm/"))?;
    ensure!(helms.len() > 3, "{helms:?}");

    let source = push(world, "tested", "1.0.0", &borrowed(&files)).await?;
    world.apply("tested", wished(&source, "tested", "low")).await?;
    let ready = world.ready("tested", "True", "Ready").await?;
    assert!(condition_of(&ready, "TestSuccess").is_none(), "nobody asked");
    let mark = world.target.audit()?.mark()?;
    let after = tested(world, "tested", "2026-01-01T00:00:00Z").await?;
    assert_eq!(says(&after, "TestSuccess"), Some(("True".to_owned(), "Succeeded".to_owned())));
    assert_eq!(ready_of(&after), ready_of(&ready));
    assert_eq!(story(world, mark, "tested", |event| event.user == USER)?, helms);
    let status = after.status.unwrap_or_default();
    let succeeded = status.tests.and_then(|tests| tests.succeeded).unwrap_or_default();
    assert_eq!(succeeded, ["ConfigMap tested/settings", "Job.batch tested/probe", "Job.batch tested/later"]);
    assert_eq!(status.hooks, ready.status.and_then(|status| status.hooks), "no step of the release");

    world.apply("tested", wished(&source, "tested", "high")).await?;
    let next = world.ready("tested", "True", "Ready").await?;
    assert_eq!(
        says(&next, "TestSuccess").map(|(status, _)| status).as_deref(),
        Some("Unknown"),
        "of another release"
    );
    Ok(())
}

#[tokio::test]
async fn failed_test_is_reported_beside_ready_and_not_retried() -> Result<()> {
    let world = world().await?;
    let (path, text) = job("check", &test("1", "before-hook-creation"), "activeDeadlineSeconds: 1");
    let pods = "  template:\n    metadata: {labels: {testbed/outcome: unready}}\n";
    let failing = (path, text.replace("  template:\n", pods));
    let files = [config("main", ""), failing, job("never", &test("2", "before-hook-creation"), "")];
    let source = push(world, "untested", "1.0.0", &borrowed(&files)).await?;
    world.apply("untested", wished(&source, "untested", "low")).await?;
    world.ready("untested", "True", "Ready").await?;
    for moment in ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"] {
        let mark = world.target.audit()?.mark()?;
        let after = tested(world, "untested", moment).await?;
        assert_eq!(says(&after, "TestSuccess"), Some(("False".to_owned(), "TestFailed".to_owned())));
        let (_, _, message) = condition_of(&after, "TestSuccess").unwrap_or_default();
        assert!(message.contains("Job.batch untested/check: it failed: DeadlineExceeded"), "{message}");
        assert_eq!(says(&after, "Ready"), Some(("True".to_owned(), "Ready".to_owned())));
        let told = story(world, mark, "untested", |event| event.user == USER)?;
        assert_eq!(told.iter().filter(|line| *line == "+ Job check").count(), 1, "{told:?}");
        assert!(world.on_target("batch/v1", "Job", "untested", "never").await?.is_none());
    }
    Ok(())
}

#[tokio::test]
async fn a_test_whose_job_goes_at_once_is_seen_to_have_succeeded() -> Result<()> {
    let world = world().await?;
    let probe = job("probe", &test("1", "before-hook-creation"), "ttlSecondsAfterFinished: 0");
    let source = push(world, "fleeting", "1.0.0", &borrowed(&[config("main", ""), probe])).await?;
    world.apply("fleeting", wished(&source, "fleeting", "low")).await?;
    world.ready("fleeting", "True", "Ready").await?;
    let mark = world.target.audit()?.mark()?;
    let after = tested(world, "fleeting", "2026-01-01T00:00:00Z").await?;
    assert_eq!(says(&after, "TestSuccess"), Some(("True".to_owned(), "Succeeded".to_owned())));
    assert_eq!(story(world, mark, "fleeting", |event| event.user == USER)?, ["+ Job probe"]);
    Ok(())
}

#[tokio::test]
async fn a_new_process_goes_on_with_a_test_and_runs_none_twice() -> Result<()> {
    let mut world = World::start().await?;
    let files = [
        config("main", ""),
        job("first", &test("1", "before-hook-creation"), ""),
        by_chance(pod("second", &test("2", "before-hook-creation"))),
    ];
    let source = push(&world, "midtest", "1.0.0", &borrowed(&files)).await?;
    world.apply("midtest", wished(&source, "midtest", "low")).await?;
    world.ready("midtest", "True", "Ready").await?;
    ensure!(renders(&world).await? == 0, "nothing of the release goes by chance");
    let mark = world.target.audit()?.mark()?;
    ask(&world, "midtest", "now").await?;
    let components = world.components()?;
    until("the second test runs", DEADLINE, || async {
        let tested = condition_of(&components.get("midtest").await?, "TestSuccess");
        Ok(tested.is_some_and(|(_, _, message)| message.contains("Pod midtest/second-")).then_some(()))
    })
    .await?;
    world.restart_operator().await?;
    let pods: Api<Pod> = Api::namespaced(world.target.client()?, "midtest");
    let found = pods.list_metadata(&ListParams::default()).await?;
    let names: Vec<String> = found.items.iter().map(ResourceExt::name_any).collect();
    let second = names.iter().find(|name| name.starts_with("second-")).context("the second test")?;
    world.end_pod("midtest", second, "Succeeded").await?;
    let after = over(&world, "midtest", "now").await?;
    assert_eq!(says(&after, "TestSuccess"), Some(("True".to_owned(), "Succeeded".to_owned())));
    let told: Story = story(&world, mark, "midtest", |event| event.user == USER)?;
    assert_eq!(told, ["+ Job first".to_owned(), format!("+ Pod {second}")], "with the same name");
    Ok(())
}

/// Returns the file as one of the chart's tests, with another object name at each render.
fn by_chance((path, text): (String, String)) -> (String, String) {
    let named = text.replacen("name: second", "name: second-{{ randAlphaNum 5 | lower }}", 1);
    (path.replace("templates/", "templates/tests/"), named)
}
