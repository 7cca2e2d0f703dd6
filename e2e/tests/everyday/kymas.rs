//! A Kyma whose access is missing, late or wrong: it reports the reason, and continues by itself once access works.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::landscape::HUB_NAMESPACE;
use e2e::remains::has_kyma;
use e2e::wait::has_condition;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use kyma_api::Reason;
use serde_json::{Value, json};
use testbed::{Cluster, ScriptedServer, Validity, free_address};

use crate::row::{Row, says, until, until_within_a_second};
use crate::world::{FIELD_MANAGER, kyma, row, row_alone};
use e2e::net::TcpProxy;

/// Name of the first object that a Kyma creates on its target.
const STAMP: &str = "kyma-target-stamp";

#[test]
fn a_kyma_waits_for_its_secret_and_starts_within_a_second() -> Result<()> {
    row_alone("kyma-late-secret", async |row| {
        let moor = row.world.moor.lock().await;
        Box::pin(until_within_a_second(row, async |row| {
            create(row).await?;
            is_stuck(row, Reason::AwaitingAccess, "Secret").await?;
            let secret = row.world.landscape.access_secret(&row.name, &moor).await?;
            let maps: Api<ConfigMap> = Api::namespaced(moor.client()?, "kyma-system");
            ensure!(maps.get_opt(STAMP).await?.is_none(), "an earlier Kyma left its stamp");
            let start = Instant::now();
            secrets(row).create(&PostParams::default(), &secret).await?;
            until("something of ours is on the target", maps, STAMP, |_| true).await?;
            let took = start.elapsed();
            is_ready(row).await?;
            end(row, &moor).await?;
            Ok(took)
        }))
        .await
    })
}

#[test]
fn a_kyma_with_the_wrong_access_recovers_with_the_right_one() -> Result<()> {
    row("kyma-wrong-access", async |row| {
        let moor = row.world.moor.lock().await;
        let right = row.world.landscape.access(&moor).await?;
        create(row).await?;
        grant(row, "CANARY: [no kubeconfig").await?;
        is_stuck(row, Reason::AccessInvalid, "kubeconfig").await?;
        let expired = moor.certificate_user("hub", Some("system:masters"), Validity::Expired)?;
        grant(row, &expired.kubeconfig()).await?;
        is_stuck(row, Reason::TargetUnauthorized, "credentials").await?;
        let other: Value = serde_saphyr::from_str(&ScriptedServer::start().await?.access().kubeconfig())?;
        let mut untrusted: Value = serde_saphyr::from_str(&right.kubeconfig())?;
        let authority = &mut untrusted["clusters"][0]["cluster"]["certificate-authority-data"];
        *authority = other["clusters"][0]["cluster"]["certificate-authority-data"].clone();
        grant(row, &untrusted.to_string()).await?;
        is_stuck(row, Reason::TargetUntrusted, "certificate").await?;
        grant(row, &right.kubeconfig()).await?;
        is_ready(row).await?;
        end(row, &moor).await
    })
}

#[test]
fn a_kyma_never_takes_the_hub_for_its_target() -> Result<()> {
    row("kyma-to-the-hub", async |row| {
        let moor = row.world.moor.lock().await;
        let hub = row.world.landscape.hub();
        let way = hub.service_account("way-back", "kyma").await?;
        crate::target::allow_all(hub, "way-back", "kyma").await?;
        create(row).await?;
        grant(row, &way.kubeconfig()).await?;
        is_stuck(row, Reason::TargetIsHub, "hub").await?;
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(hub.client()?);
        ensure!(namespaces.get_opt("kyma-system").await?.is_none(), "nothing may be written to the hub");
        grant(row, &row.world.landscape.access(&moor).await?.kubeconfig()).await?;
        is_ready(row).await?;
        end(row, &moor).await
    })
}

#[test]
fn a_kyma_whose_target_goes_away_keeps_all_and_recovers() -> Result<()> {
    row("kyma-refusing-target", async |row| {
        let moor = row.world.moor.lock().await;
        let proxy = TcpProxy::new(moor.url().trim_start_matches("https://"), free_address()?);
        proxy.open().await?;
        let mut access: Value =
            serde_saphyr::from_str(&row.world.landscape.access(&moor).await?.kubeconfig())?;
        access["clusters"][0]["cluster"]["server"] = format!("https://{}", proxy.address()).into();
        create(row).await?;
        grant(row, &access.to_string()).await?;
        is_ready(row).await?;
        let maps: Api<ConfigMap> = Api::namespaced(moor.client()?, "kyma-system");
        let before = maps.get("anchor-content").await?.metadata.resource_version;
        proxy.close();
        is_stuck(row, Reason::TargetUnreachable, "").await?;
        proxy.open().await?;
        is_ready(row).await?;
        let after = maps.get("anchor-content").await?.metadata.resource_version;
        ensure!(before == after, "an outage must change nothing on the target");
        end(row, &moor).await
    })
}

#[test]
fn cluster_with_stamp_of_another_hub_is_unchanged_until_adopted() -> Result<()> {
    row("kyma-adopted", async |row| {
        let moor = row.world.moor.lock().await;
        let way = async || anyhow::Ok(row.world.landscape.access(&moor).await?.kubeconfig());
        create(row).await?;
        grant(row, &way().await?).await?;
        is_ready(row).await?;
        let maps: Api<ConfigMap> = Api::namespaced(moor.client()?, "kyma-system");
        let theirs = Patch::Merge(json!({"data": {"hubUid": "another-hub", "epoch": "7"}}));
        maps.patch("kyma-target-stamp", &PatchParams::default(), &theirs).await?;
        // A new token opens a new connection, and the cluster's identity is checked once for each connection.
        grant(row, &way().await?).await?;
        is_stuck(row, Reason::StampMismatch, "another hub").await?;
        let edit = Patch::Merge(json!({"data": {"version": "edited"}}));
        maps.patch("anchor-content", &PatchParams::default(), &edit).await?;
        adopt(row, &moor).await?;
        is_ready(row).await?;
        until("the catalogue follows", row.world.kymas(), &row.name, |kyma| {
            has_condition(kyma, "ModuleCatalog", "True", Reason::CatalogSynced)
        })
        .await?;
        // helm-component corrects it by itself; the Kyma may be Ready before.
        until("the edit is corrected", maps.clone(), "anchor-content", |content| {
            content["data"]["version"] == "1.0.0"
        })
        .await?;
        let stamp = maps.get("kyma-target-stamp").await?.data.unwrap_or_default();
        ensure!(stamp.get("epoch").is_some_and(|epoch| epoch == "8"), "{stamp:?}");
        end(row, &moor).await
    })
}

async fn adopt(row: &Row, cluster: &Cluster) -> Result<()> {
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.client()?);
    let uid = namespaces.get("kube-system").await?.uid().context("a stored Namespace has a uid")?;
    let mut kymactl = row.world.landscape.kymactl();
    kymactl.args(["target", "adopt", &row.name, "--allow-loopback-targets", "--cluster-uid", &uid]);
    let output = kymactl.output().await?;
    ensure!(output.status.success(), "kymactl: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn secrets(row: &Row) -> Api<Secret> {
    Api::namespaced(row.world.hub.clone(), HUB_NAMESPACE)
}

async fn create(row: &Row) -> Result<()> {
    row.world.kymas().create(&PostParams::default(), &kyma(&row.name, &["anchor"])?).await?;
    Ok(())
}

async fn grant(row: &Row, kubeconfig: &str) -> Result<()> {
    let name = format!("kubeconfig-{}", row.name);
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": {kyma_api::labels::KYMA_NAME: row.name}},
        "stringData": {"config": kubeconfig},
    });
    secrets(row).patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&secret)).await?;
    Ok(())
}

async fn is_stuck(row: &Row, reason: Reason, words: &str) -> Result<()> {
    let what = format!("Kyma {} is not Ready for {reason}", row.name);
    until(&what, row.world.kymas(), &row.name, |kyma| {
        has_condition(kyma, "Ready", "False", reason)
            && has_condition(kyma, "TargetReachable", "False", reason)
            && says(kyma, "Ready", words)
    })
    .await?;
    Ok(())
}

async fn is_ready(row: &Row) -> Result<()> {
    until(&format!("Kyma {} is Ready", row.name), row.world.kymas(), &row.name, |kyma| {
        has_condition(kyma, "Ready", "True", Reason::Ready)
            && has_condition(kyma, "TargetReachable", "True", Reason::Ready)
            && kyma["status"]["modules"][0]["state"] == "Ready"
    })
    .await?;
    Ok(())
}

/// Deletes the Kyma, and checks that its cluster is free for the next one.
async fn end(row: &Row, moor: &Cluster) -> Result<()> {
    let kymas = row.world.kymas();
    let uid = kymas.get(&row.name).await?.uid().context("a stored Kyma has a uid")?;
    kymas.delete(&row.name, &DeleteParams::default()).await?;
    let gone = await_condition(kymas, &row.name, is_deleted(&uid));
    tokio::time::timeout(Duration::from_secs(90), gone).await.context("the Kyma stays")??;
    ensure!(!has_kyma(moor.client()?).await?, "the target's Kyma must be gone");
    Ok(())
}
