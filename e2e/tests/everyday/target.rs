//! Failures of the target: no response, refused connections, server errors, throttling.

use std::time::Instant;

use anyhow::{Result, ensure};
use kube::Api;
use kube::api::PostParams;
use kyma_api::Reason;
use serde_json::{Value, json};
use testbed::{Answer, Cluster, RequestMatcher, ScriptedServer, free_address};

use crate::row::{DEADLINE, Row};
use crate::world::row;
use e2e::net::TcpProxy;

#[test]
fn a_target_that_refuses_connections_is_reported() -> Result<()> {
    row("refusing-target", async |row| {
        let address = row.world.quay.url().trim_start_matches("https://");
        let proxy = TcpProxy::new(address, free_address()?);
        proxy.open().await?;
        let mut access: Value = serde_saphyr::from_str(&row.access.kubeconfig())?;
        access["clusters"][0]["cluster"]["server"] = format!("https://{}", proxy.address()).into();
        behind(row, &access.to_string()).await?;
        proxy.close();
        during_the_fault(row, Reason::TargetUnreachable, "").await?;
        proxy.open().await?;
        after_the_fault(row, Reason::TargetUnreachable).await
    })
}

#[test]
fn a_target_that_is_silent_is_reported() -> Result<()> {
    row("silent-target", async |row| {
        let scripted = ScriptedServer::in_front_of(&row.world.quay).await?;
        behind(row, &scripted.access_of(&row.access).kubeconfig()).await?;
        scripted.always(RequestMatcher::any(), Answer::silence());
        during_the_fault(row, Reason::TargetTimeout, "no complete answer").await?;
        scripted.clear();
        after_the_fault(row, Reason::TargetTimeout).await
    })
}

#[test]
fn a_target_that_answers_with_server_errors_is_reported() -> Result<()> {
    row("failing-target", async |row| {
        let scripted = ScriptedServer::in_front_of(&row.world.quay).await?;
        behind(row, &scripted.access_of(&row.access).kubeconfig()).await?;
        let answer = Answer::failure(500, "InternalError", "CANARY: text of a hostile target");
        scripted.always(RequestMatcher::any(), answer);
        during_the_fault(row, Reason::TargetServerError, "").await?;
        scripted.clear();
        after_the_fault(row, Reason::TargetServerError).await
    })
}

#[test]
fn a_target_that_asks_to_slow_down_is_reported() -> Result<()> {
    row("busy-target", async |row| {
        let scripted = ScriptedServer::in_front_of(&row.world.quay).await?;
        behind(row, &scripted.access_of(&row.access).kubeconfig()).await?;
        let (begin, before) = (Instant::now(), scripted.requests().len());
        scripted.always(RequestMatcher::any(), Answer::too_many_requests(2));
        row.apply_source(row.content("2")).await?;
        row.is_stuck("Ready", Reason::TargetThrottled, "").await?;
        scripted.wait_for(before + 4, &RequestMatcher::any(), DEADLINE).await?;
        let (asked, pauses) = (scripted.requests().len() - before, begin.elapsed().as_secs() / 2);
        // At most two requests per pause, and those that were already sent before the first one.
        ensure!(u64::try_from(asked)? <= 2 * pauses + 4, "{asked} requests within {pauses} pauses");
        scripted.clear();
        after_the_fault(row, Reason::TargetThrottled).await
    })
}

/// Installs content through an access that can fail.
async fn behind(row: &Row, kubeconfig: &str) -> Result<()> {
    row.grant(kubeconfig).await?;
    row.apply_source(row.content("1")).await?;
    row.is_ready().await
}

/// Changes the content while the target fails. The target must stay as it was, and another component on the same
/// cluster must be installed.
async fn during_the_fault(row: &Row, reason: Reason, words: &str) -> Result<()> {
    let before = row.traces().await?;
    row.apply_source(row.content("2")).await?;
    row.is_stuck("TargetReachable", reason, words).await?;
    ensure!(row.traces().await? == before, "the target must stay as it was");
    let other = Row::new(row.world, &format!("{}-other", row.name)).await?;
    other.install().await
}

async fn after_the_fault(row: &Row, reason: Reason) -> Result<()> {
    row.holds("2").await?;
    row.is_ready().await?;
    row.was_reported_once(reason).await
}

/// Grants an account all rights on a cluster.
pub(crate) async fn allow_all(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    let binding = serde_json::from_value(json!({
        "metadata": {"name": format!("{namespace}-{name}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }))?;
    let bindings: Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> = Api::all(cluster.client()?);
    bindings.create(&PostParams::default(), &binding).await?;
    Ok(())
}
