//! Restores a recording, starts the current helm-component, and checks that it continues from each state.

use anyhow::{Context, Result, ensure};
use e2e::landscape::apply_all;
use e2e::net::FileServer;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use kyma_api::{annotations, condition, names, release_store};
use testbed::{AuditMark, until, until_or_why};

use crate::charts;
use crate::clusters::{Clusters, DEADLINE, HUB_NAMESPACE, TARGET_USER};
use crate::recording::Recording;
use crate::states::{
    ADOPTED, DELETE_HOOKS, FAILED_REVISION, HELM_HISTORY, RESOLVED_RANGE, ROLLBACK_TARGET, RUNNING_HOOK,
    RUNNING_TEST, STATES, STORED_RENDER, TEST_REQUEST, UPGRADING, spec,
};

/// Restores the recording, and fails where the current version does not continue from it.
pub(crate) async fn replay(recording: &Recording, file_server: &FileServer) -> Result<()> {
    charts::publish(file_server, &recording.archives, true)?;
    let mut clusters = Clusters::start(Some(recording)).await?;
    clusters.install().await?;
    let jobs = clusters.jobs().await?;
    for job in [format!("{RUNNING_HOOK}/migrate"), format!("{RUNNING_TEST}/probe")] {
        ensure!(jobs.contains_key(&job), "the recording lacks Job {job}");
    }
    let mark = clusters.target.audit()?.mark()?;
    clusters.start_operator(Some(recording.recorded_at)).await?;
    writes_nothing(&clusters, mark).await?;
    for state in &STATES {
        state.check(&clusters.components()?.get(state.name).await?)?;
    }
    ensure!(clusters.jobs().await? == jobs, "a hook ran twice");

    // First, since the deadlines of hooks that ran at the stop go on.
    hook_ends(&clusters, mark).await.context(RUNNING_HOOK)?;
    test_ends(&clusters, mark).await.context(RUNNING_TEST)?;
    upgrade_completes(&clusters).await.context(UPGRADING)?;
    render_is_used_again(&clusters).await.context(STORED_RENDER)?;
    failed_upgrade_is_rolled_back(&clusters).await.context(ROLLBACK_TARGET)?;
    next_revision_is_installed(&clusters).await.context(FAILED_REVISION)?;
    delete_hooks_run_once(&clusters, mark).await.context(DELETE_HOOKS)?;
    adopted_release_is_upgraded(&clusters).await.context(ADOPTED)?;
    records_are_continued(&clusters).await.context(HELM_HISTORY)?;
    range_moves_on_request(&clusters).await.context(RESOLVED_RANGE)
}

/// Waits until the new process has read the target and is at rest, and checks that it wrote nothing there. Only the
/// upgrade that is in progress continues.
async fn writes_nothing(clusters: &Clusters, mark: AuditMark) -> Result<()> {
    until("the operator watches the target", DEADLINE, || async {
        let events = clusters.target.audit()?.since(mark)?;
        let is_watched = |kind: &&str| {
            events.iter().any(|event| {
                let is_watch = event.verb == "watch" && event.code == 200;
                is_watch && event.resource == *kind && event.user == TARGET_USER
            })
        };
        Ok(["configmaps", "secrets", "deployments"].iter().all(is_watched).then_some(()))
    })
    .await?;
    clusters.until_at_rest().await?;
    let mut writes = clusters.writes(mark)?;
    writes.retain(|event| event.namespace != UPGRADING);
    ensure!(writes.is_empty(), "writes on the target: {writes:#?}");
    Ok(())
}

/// The missing kind arrives, and the rest of the upgrade follows.
async fn upgrade_completes(clusters: &Clusters) -> Result<()> {
    apply_all(&clusters.target.client()?, "platform-team", charts::ROUTE_CRD).await?;
    clusters.ready(UPGRADING, "True", "Ready").await?;
    for (name, level) in [("main", Some("high")), ("added", Some("high")), ("leaving", None)] {
        is_at(clusters, UPGRADING, name, level).await?;
    }
    Ok(())
}

/// The Job of the hook that ran at the stop ends, and the upgrade goes on without another one.
async fn hook_ends(clusters: &Clusters, mark: AuditMark) -> Result<()> {
    is_at(clusters, RUNNING_HOOK, "main", Some("low")).await?;
    clusters.succeed(RUNNING_HOOK, "migrate").await?;
    clusters.ready(RUNNING_HOOK, "True", "Ready").await?;
    is_at(clusters, RUNNING_HOOK, "main", Some("high")).await?;
    let created = clusters.created_jobs(mark, RUNNING_HOOK)?;
    ensure!(created.is_empty(), "created again: {created:?}");
    Ok(())
}

/// The Job of the test that ran at the stop ends, and the request is handled without another one.
async fn test_ends(clusters: &Clusters, mark: AuditMark) -> Result<()> {
    clusters.succeed(RUNNING_TEST, "probe").await?;
    let component = clusters
        .until_component(RUNNING_TEST, "the request is handled", |component| {
            let status = component.status.as_ref();
            status.and_then(|status| status.last_handled_test_at.as_deref()) == Some(TEST_REQUEST)
        })
        .await?;
    let conditions = component.status.and_then(|status| status.conditions).unwrap_or_default();
    let succeeded = condition::get(&conditions, condition::types::TEST_SUCCESS);
    ensure!(succeeded.is_some_and(|succeeded| succeeded.status == "True"), "{conditions:#?}");
    let created = clusters.created_jobs(mark, RUNNING_TEST)?;
    ensure!(created.is_empty(), "created again: {created:?}");
    Ok(())
}

/// A deleted Secret is created again from the stored render, with the same password.
async fn render_is_used_again(clusters: &Clusters) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(clusters.target.client()?, STORED_RENDER);
    let before = secrets.get("password").await?;
    secrets.delete("password", &DeleteParams::default()).await?;
    let after = until("the Secret exists again", DEADLINE, || async {
        let found = secrets.get_opt("password").await?;
        Ok(found.filter(|found| found.metadata.uid != before.metadata.uid))
    })
    .await?;
    ensure!(after.data == before.data, "it has another password");
    Ok(())
}

/// A version that does not become healthy is rolled back to the recorded release.
async fn failed_upgrade_is_rolled_back(clusters: &Clusters) -> Result<()> {
    clusters.apply(ROLLBACK_TARGET, &spec(ROLLBACK_TARGET, "1.1.0", "high")?).await?;
    clusters.ready(ROLLBACK_TARGET, "False", "RolledBack").await?;
    is_at(clusters, ROLLBACK_TARGET, "main", Some("low")).await?;
    let deployments: Api<Deployment> = Api::namespaced(clusters.target.client()?, ROLLBACK_TARGET);
    let spec = deployments.get("web").await?.spec.context("a spec")?;
    let labels = spec.template.metadata.and_then(|metadata| metadata.labels).unwrap_or_default();
    let outcome = labels.get("testbed/outcome").map(String::as_str);
    ensure!(outcome == Some("ready"), "the Deployment is not that of the recorded release: {labels:?}");
    Ok(())
}

/// Another version ends the state after a rollback.
async fn next_revision_is_installed(clusters: &Clusters) -> Result<()> {
    is_at(clusters, FAILED_REVISION, "main", Some("low")).await?;
    clusters.apply(FAILED_REVISION, &spec(FAILED_REVISION, "1.2.0", "higher")?).await?;
    clusters.ready(FAILED_REVISION, "True", "Ready").await?;
    is_at(clusters, FAILED_REVISION, "main", Some("higher")).await?;
    former_release_is_replaced(clusters).await
}

/// The release is stored in a Secret of the current type, and the one of an earlier version is emptied.
async fn former_release_is_replaced(clusters: &Clusters) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(clusters.hub.client()?, HUB_NAMESPACE);
    let owner = names::owner_hash(HUB_NAMESPACE, FAILED_REVISION);
    let former = format!("{}{owner}", release_store::RELEASE_PREFIX);
    let current = format!("{}{owner}-1", release_store::PREFIX);
    until_or_why("the release is in the current Secret alone", DEADLINE, || async {
        let (before, now) = (keys(&secrets, &former).await?, keys(&secrets, &current).await?);
        let is_replaced = before.is_empty() && now.iter().any(|key| key == "objects.json.gz");
        Ok(if is_replaced { Ok(()) } else { Err(format!("{former}: {before:?}, {current}: {now:?}")) })
    })
    .await
}

/// Returns the keys of a Secret; none if it does not exist.
async fn keys(secrets: &Api<Secret>, name: &str) -> Result<Vec<String>> {
    let data = secrets.get_opt(name).await?.and_then(|secret| secret.data);
    Ok(data.unwrap_or_default().into_keys().collect())
}

/// The removal runs the delete hooks of the recorded release, each once.
async fn delete_hooks_run_once(clusters: &Clusters, mark: AuditMark) -> Result<()> {
    let components = clusters.components()?;
    components.delete(DELETE_HOOKS, &DeleteParams::default()).await?;
    until_or_why("the component is gone", DEADLINE, || async {
        let found = components.get_opt(DELETE_HOOKS).await?;
        Ok(found.map_or(Ok(()), |found| Err(format!("{:#?}", found.status))))
    })
    .await?;
    is_at(clusters, DELETE_HOOKS, "main", None).await?;
    let created = clusters.created_jobs(mark, DELETE_HOOKS)?;
    ensure!(created == ["before", "after"], "created: {created:?}");
    Ok(())
}

/// An upgrade of the adopted release changes the same object.
async fn adopted_release_is_upgraded(clusters: &Clusters) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(clusters.target.client()?, ADOPTED);
    let before = maps.get("main").await?;
    clusters.apply(ADOPTED, &spec(ADOPTED, "1.0.0", "high")?).await?;
    clusters.until_level(ADOPTED, "high").await?;
    clusters.ready(ADOPTED, "True", "Ready").await?;
    ensure!(maps.get("main").await?.metadata.uid == before.metadata.uid, "it is another object");
    Ok(())
}

/// Helm's records continue with the revision after the recorded ones.
async fn records_are_continued(clusters: &Clusters) -> Result<()> {
    clusters.apply(HELM_HISTORY, &spec(HELM_HISTORY, "1.0.0", "higher")?).await?;
    let secrets: Api<Secret> = Api::namespaced(clusters.target.client()?, HELM_HISTORY);
    let of_helm = ListParams::default().labels("owner=helm");
    until_or_why("the records have revisions 2 and 3", DEADLINE, || async {
        let mut records = Vec::new();
        for secret in secrets.list(&of_helm).await?.items {
            let labels = secret.metadata.labels.unwrap_or_default();
            let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
            records.push((label("version"), label("status")));
        }
        records.sort();
        let expected = [("2", "superseded"), ("3", "deployed")];
        let are_expected = records.iter().map(|(version, status)| (&**version, &**status)).eq(expected);
        Ok(if are_expected { Ok(()) } else { Err(format!("{records:?}")) })
    })
    .await?;
    clusters.ready(HELM_HISTORY, "True", "Ready").await?;
    Ok(())
}

/// The version that was published meanwhile is installed on request, not before.
async fn range_moves_on_request(clusters: &Clusters) -> Result<()> {
    let version = |component: &kyma_api::HelmComponent| component.status.as_ref()?.version.clone();
    let before = version(&clusters.components()?.get(RESOLVED_RANGE).await?);
    ensure!(before.as_deref() == Some("1.0.0"), "{before:?} is installed");
    clusters.annotate(RESOLVED_RANGE, annotations::RECONCILE_REQUESTED_AT, "2026-01-01T00:00:00Z").await?;
    clusters
        .until_component(RESOLVED_RANGE, "1.1.0 is installed", |component| {
            version(component).as_deref() == Some("1.1.0")
        })
        .await?;
    Ok(())
}

/// Checks `level` in a ConfigMap, or that it does not exist.
async fn is_at(clusters: &Clusters, component: &str, name: &str, level: Option<&str>) -> Result<()> {
    let found = clusters.level(component, name).await?;
    ensure!(found.as_deref() == level, "ConfigMap {component}/{name}: {found:?} instead of {level:?}");
    Ok(())
}
