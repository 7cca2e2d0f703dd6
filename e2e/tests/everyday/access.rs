//! The access Secret of a component: missing, late, wrong.

use std::time::Instant;

use anyhow::{Result, ensure};
use kyma_api::Reason;
use serde_json::Value;
use testbed::{ScriptedServer, Validity};

use crate::row::{Row, until_within_a_second};
use crate::world::{row, row_alone};

#[test]
fn a_secret_that_comes_late_starts_work_within_a_second() -> Result<()> {
    row_alone("late-secret", async |row| {
        Box::pin(until_within_a_second(row, async |row| {
            row.apply_source(row.content("1")).await?;
            let missing = format!("no access secret kcp-system/kubeconfig-{}", row.name);
            row.is_stuck("Ready", Reason::AwaitingAccess, &missing).await?;
            let kubeconfig = row.access.kubeconfig();
            let start = Instant::now();
            row.grant(&kubeconfig).await?;
            row.holds("1").await?;
            let took = start.elapsed();
            row.is_ready().await?;
            Ok(took)
        }))
        .await
    })
}

#[test]
fn a_secret_that_vanishes_takes_nothing_with_it() -> Result<()> {
    row("lost-secret", async |row| {
        row.install().await?;
        let before = row.traces().await?;
        row.withdraw().await?;
        row.is_stuck("TargetReachable", Reason::AwaitingAccess, "no access secret").await?;
        ensure!(row.traces().await? == before, "the target must stay as it was");
        row.grant(&row.access.kubeconfig()).await?;
        row.is_ready().await?;
        ensure!(row.traces().await? == before, "coming back must write nothing");
        Ok(())
    })
}

#[test]
fn an_invalid_kubeconfig_is_refused() -> Result<()> {
    row("no-kubeconfig", async |row| {
        broken_access(row, "CANARY: [not, a, kubeconfig", Reason::AccessInvalid, "kubeconfig").await
    })
}

#[test]
fn a_kubeconfig_with_another_authority_is_not_trusted() -> Result<()> {
    row("wrong-ca", async |row| {
        let other = ScriptedServer::start().await?.access().kubeconfig();
        let authority = cluster(&other)?["certificate-authority-data"].clone();
        let mut wrong: Value = serde_saphyr::from_str(&row.access.kubeconfig())?;
        wrong["clusters"][0]["cluster"]["certificate-authority-data"] = authority;
        broken_access(row, &wrong.to_string(), Reason::TargetUntrusted, "certificate").await
    })
}

#[test]
fn an_expired_certificate_is_reported() -> Result<()> {
    row("expired-certificate", async |row| {
        let expired = row.world.quay.certificate_user("hub", Some("system:masters"), Validity::Expired)?;
        broken_access(row, &expired.kubeconfig(), Reason::TargetUnauthorized, "credentials").await
    })
}

#[test]
fn e41_refused_token_is_reported_until_it_is_replaced() -> Result<()> {
    row("expired-token", async |row| {
        let gone = row.world.quay.service_account("leaver", "leaver").await?;
        let accounts: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> =
            kube::Api::namespaced(row.world.quay.client()?, "leaver");
        accounts.delete("leaver", &kube::api::DeleteParams::default()).await?;
        broken_access(row, &gone.kubeconfig(), Reason::TargetUnauthorized, "credentials").await
    })
}

#[test]
fn a_kubeconfig_that_leads_to_the_hub_is_refused() -> Result<()> {
    row("to-the-hub", async |row| {
        let hub = row.world.landscape.hub();
        let way = hub.service_account("way-back", "hub").await?;
        let kubeconfig = way.kubeconfig();
        crate::target::allow_all(hub, "way-back", "hub").await?;
        row.grant(&kubeconfig).await?;
        row.apply_source(row.content("1")).await?;
        row.is_stuck("Ready", Reason::TargetIsHub, "hub").await?;
        let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(hub.client()?);
        ensure!(namespaces.get_opt(&row.name).await?.is_none(), "nothing may be written to the hub");
        row.grant(&row.access.kubeconfig()).await?;
        row.is_ready().await
    })
}

/// Breaks a working access. The target must stay as it was; once the right access is back, the component continues,
/// and the failure was reported once.
async fn broken_access(row: &Row, broken: &str, reason: Reason, words: &str) -> Result<()> {
    row.install().await?;
    let before = row.traces().await?;
    row.grant(broken).await?;
    // The operator watches Secrets and components separately: before it has received the Secret, it may apply the
    // change through the former access.
    row.is_stuck("TargetReachable", reason, words).await?;
    row.apply_source(row.content("2")).await?;
    row.is_stuck("TargetReachable", reason, words).await?;
    ensure!(row.traces().await? == before, "the target must stay as it was");
    row.grant(&row.access.kubeconfig()).await?;
    row.holds("2").await?;
    row.is_ready().await?;
    row.was_reported_once(reason).await?;
    let same = |one: &(String, String, String)| before.iter().any(|was| was.1 == one.1 || one.0 != "content");
    ensure!(row.traces().await?.iter().all(same), "the object must be the same one");
    Ok(())
}

fn cluster(kubeconfig: &str) -> Result<Value> {
    let kubeconfig: Value = serde_saphyr::from_str(kubeconfig)?;
    Ok(kubeconfig["clusters"][0]["cluster"].clone())
}
