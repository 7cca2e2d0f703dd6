//! Hooks whose Jobs Kubernetes deletes as soon as they have finished.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use kyma_api::{HookPhase, Hooks};
use testbed::until;

use crate::chart::push;
use crate::hooks::{USER, borrowed, config, job, story, until_waiting, wished};
use crate::world::{DEADLINE, World, ready_of, world};

const AT_ONCE: &str = "ttlSecondsAfterFinished: 0";

/// Waits until the hooks of an event have succeeded.
async fn succeeded(world: &World, name: &str, event: &str) -> Result<Hooks> {
    let components = world.components()?;
    let waited = until(&format!("{event} of {name} is over"), DEADLINE, || async {
        let hooks = components.get(name).await?.status.and_then(|status| status.hooks);
        Ok(hooks.filter(|hooks| hooks.event == event && hooks.phase == HookPhase::Succeeded))
    })
    .await;
    match waited {
        Ok(hooks) => Ok(hooks),
        Err(error) => {
            let ready = ready_of(&components.get(name).await?);
            Err(error.context(format!("{ready:?}\n{}", world.operator.log_end(30))))
        }
    }
}

async fn until_gone(world: &World, namespace: &str, job: &str) -> Result<()> {
    until(&format!("{job} is gone"), DEADLINE, || async {
        Ok(world.on_target("batch/v1", "Job", namespace, job).await?.is_none().then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_hook_whose_job_goes_at_once_is_seen_to_have_succeeded() -> Result<()> {
    let world = world().await?;
    let files = [
        config("main", ""),
        job("prepare", "helm.sh/hook: \"pre-install,pre-upgrade\"", AT_ONCE),
        job("publish", "helm.sh/hook: \"post-install,post-upgrade\"", AT_ONCE),
        job("part", "helm.sh/hook: pre-delete", AT_ONCE),
    ];
    let source = push(world, "vanishing", "1.0.0", &borrowed(&files)).await?;
    for (level, event) in [("low", "post-install"), ("high", "post-upgrade")] {
        let mark = world.target.audit()?.mark()?;
        world.apply("vanishing", wished(&source, "vanishing", level)).await?;
        let hooks = succeeded(world, "vanishing", event).await?;
        assert_eq!(hooks.attempts, Some(1), "{event}");
        world.ready("vanishing", "True", "Ready").await?;
        let told = story(world, mark, "vanishing", |event| event.user == USER)?;
        assert_eq!(told, ["+ Job prepare", "+ ConfigMap main", "+ Job publish"], "{event}");
        for job in ["prepare", "publish"] {
            until_gone(world, "vanishing", job).await?;
        }
    }
    let mark = world.target.audit()?.mark()?;
    world.delete("vanishing", "Delete").await?;
    world.gone("vanishing").await?;
    let told = story(world, mark, "vanishing", |event| event.user == USER)?;
    assert_eq!(told.iter().filter(|line| *line == "+ Job part").count(), 1, "{told:?}");
    Ok(())
}

#[tokio::test]
async fn a_hook_whose_job_goes_at_once_is_seen_to_have_failed() -> Result<()> {
    let world = world().await?;
    let limits = format!("activeDeadlineSeconds: 1\n  {AT_ONCE}");
    let (path, text) = job("check", "helm.sh/hook: pre-install", &limits);
    let pods = "  template:\n    metadata: {labels: {testbed/outcome: unready}}\n";
    let files = [config("main", ""), (path, text.replace("  template:\n", pods))];
    let source = push(world, "vanished", "1.0.0", &borrowed(&files)).await?;
    world.apply("vanished", wished(&source, "vanished", "low")).await?;
    let failed = world.ready("vanished", "False", "HookFailed").await?;
    let (_, _, message) = ready_of(&failed).context("Ready")?;
    let expected = "pre-install hook Job.batch vanished/check: it failed: DeadlineExceeded";
    assert!(message.contains(expected), "{message}");
    until_gone(world, "vanished", "check").await
}

/// Waits until an event of this reason reports how a Job ended. Its controller sends events apart from the status, so
/// the Job may be gone before.
async fn until_reported(world: &World, namespace: &str, job: &str, reason: &str) -> Result<()> {
    let events: Api<Event> = Api::namespaced(world.target.client()?, namespace);
    let fields = format!("involvedObject.kind=Job,involvedObject.name={job},reason={reason}");
    let of_job = ListParams::default().fields(&fields);
    until(&format!("{reason} of {job} is reported"), DEADLINE, || async {
        Ok((!events.list(&of_job).await?.items.is_empty()).then_some(()))
    })
    .await
}

/// Waits until the Pod of a Job runs, and sets its final phase.
async fn end(world: &World, namespace: &str, job: &str, phase: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(world.target.client()?, namespace);
    let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    let pod = until("the Job has a Pod", DEADLINE, || async {
        Ok(pods.list(&of_job).await?.items.into_iter().next())
    })
    .await?;
    world.end_pod(namespace, &pod.name_any(), phase).await
}

#[tokio::test]
async fn end_of_hook_job_deleted_during_downtime_is_read_from_events() -> Result<()> {
    let mut world = World::start().await?;
    let (path, text) = job("prepare", "helm.sh/hook: pre-install", AT_ONCE);
    let pods = "  template:\n    metadata: {labels: {testbed/outcome: unready}}\n";
    let files = [config("main", ""), (path, text.replace("  template:\n", pods))];
    let mark = world.target.audit()?.mark()?;
    let rows = [("missed", "Succeeded", "Completed"), ("missed-failed", "Failed", "BackoffLimitExceeded")];
    for (name, ..) in rows {
        let source = push(&world, name, "1.0.0", &borrowed(&files)).await?;
        world.apply(name, wished(&source, name, "low")).await?;
        until_waiting(&world, name, &format!("waiting for the pre-install hook Job.batch {name}/prepare"))
            .await?;
    }
    world.operator.kill();
    for (name, phase, reason) in rows {
        end(&world, name, "prepare", phase).await?;
        until_gone(&world, name, "prepare").await?;
        until_reported(&world, name, "prepare", reason).await?;
    }
    world.restart_operator().await?;
    let hooks = succeeded(&world, "missed", "pre-install").await?;
    assert_eq!((hooks.attempts, hooks.running_uid), (Some(1), None));
    world.ready("missed", "True", "Ready").await?;
    let told = story(&world, mark, "missed", |event| event.user == USER)?;
    assert_eq!(told, ["+ Job prepare", "+ ConfigMap main"]);

    let failed = world.ready("missed-failed", "False", "HookFailed").await?;
    let (_, _, message) = ready_of(&failed).context("Ready")?;
    let expected = "pre-install hook Job.batch missed-failed/prepare: it failed: BackoffLimitExceeded";
    assert!(message.contains(expected), "{message}");
    Ok(())
}
