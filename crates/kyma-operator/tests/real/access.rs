//! Access to a target: missing, late, wrong, owned by another Kyma.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kyma_api::Kyma;
use kyma_api::State;
use kyma_api::condition::{self, types};
use serde_json::json;
use testbed::{InterceptedRequest, ScriptedServer, rounds};

use crate::landscape::{Landscape, modules, until_remote};

#[tokio::test(flavor = "multi_thread")]
async fn late_access_is_noticed_and_second_kyma_or_hub_is_refused() -> Result<()> {
    let landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("access").await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.kyma("late", "[{name: keda}]").await?;
    landscape
        .until_kyma("no Secret: waiting, no error", "late", |kyma| {
            reachable(kyma) == "False AwaitingAccess" && state(kyma) == Some(State::Processing)
        })
        .await?;
    landscape.secret("late", &kubeconfig).await?;
    landscape.until_kyma("the Secret is noticed", "late", |kyma| reachable(kyma) == "True Ready").await?;
    until_remote(&target, "the target's Kyma is born", |_| true).await?;

    landscape.secret("second", &kubeconfig).await?;
    landscape.kyma("second", "[{name: keda}]").await?;
    landscape
        .until_kyma("the target is taken", "second", |kyma| reachable(kyma) == "False TargetInUse")
        .await?;

    let hub = landscape.hub.service_account(&landscape.namespace, "kyma-operator").await?.kubeconfig();
    landscape.secret("loop", &hub).await?;
    landscape.kyma("loop", "[{name: keda}]").await?;
    let looped = landscape
        .until_kyma("the hub is no target", "loop", |kyma| {
            matches!(reachable(kyma).as_str(), "False TargetIsHub" | "False AccessRefused")
        })
        .await?;
    assert!(modules(&looped).is_empty());

    landscape.secret("garbage", "no kubeconfig").await?;
    landscape.kyma("garbage", "[{name: keda}]").await?;
    landscape
        .until_kyma("no kubeconfig", "garbage", |kyma| {
            reachable(kyma) == "False AccessInvalid" && state(kyma) == Some(State::Error)
        })
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_target_record_of_a_user_is_not_overwritten() -> Result<()> {
    let mut landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("adopted").await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    // The hub's record is written before the target's stamp.
    let is_stamped = |kyma: &Kyma| epoch(kyma) == Some(1) && reachable(kyma) == "True Ready";
    landscape.until_kyma("the target is on record", "sample", is_stamped).await?;
    landscape.stop().await?;
    let stamps: Api<ConfigMap> = Api::namespaced(target.client()?, kyma_targets::STAMP_NAMESPACE);
    let theirs = Patch::Merge(json!({ "data": { "hubUid": "another-hub", "epoch": "7" } }));
    stamps.patch(kyma_targets::STAMP_NAME, &PatchParams::default(), &theirs).await?;

    let kymas = landscape.kymas()?;
    let is_armed = Arc::new(AtomicBool::new(true));
    let armed = Arc::clone(&is_armed);
    let between = move |passing: InterceptedRequest| {
        let (kymas, armed) = (kymas.clone(), Arc::clone(&armed));
        let answer = async move {
            let is_told = passing.received().path.ends_with("/kymas/sample/status")
                && String::from_utf8_lossy(passing.body()).contains("StampMismatch");
            if is_told && armed.swap(false, Ordering::Relaxed) {
                let record = Patch::Merge(json!({ "status": { "target": { "epoch": 8 } } }));
                let person = PatchParams::default();
                kymas.patch_status("sample", &person, &record).await.map_err(io::Error::other)?;
            }
            passing.onward().await
        };
        answer.boxed()
    };
    let proxy = ScriptedServer::with(Arc::new(between), &landscape.hub).await?;
    landscape.run_behind(&proxy).await?;
    let told = landscape
        .until_kyma("whose it is", "sample", |kyma| reachable(kyma) == "False StampMismatch")
        .await?;
    assert!(!is_armed.load(Ordering::Relaxed), "a person wrote before the operator did");
    assert_eq!(epoch(&told), Some(8));
    landscape.stop().await
}

fn epoch(kyma: &Kyma) -> Option<i64> {
    kyma.status.as_ref()?.target.as_ref()?.epoch
}

#[tokio::test(flavor = "multi_thread")]
async fn e41_credentials_and_ca_rotated_in_place_are_used_at_once() -> Result<()> {
    rounds(rotated).await
}

async fn rotated() -> Result<()> {
    let mut landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("rotated").await?;
    let lowered = target.service_account("default", "nobody").await?.kubeconfig();
    let stranger = ScriptedServer::start().await?.access().kubeconfig();
    let revoked = kubeconfig.replace(line(&kubeconfig, "token: "), "token: revoked");
    let authority = "certificate-authority-data: ";
    let misled = kubeconfig.replace(line(&kubeconfig, authority), line(&stranger, authority));
    assert!(revoked != kubeconfig && misled != kubeconfig);

    landscape.secret("sample", &revoked).await?;
    landscape.kyma("sample", "[]").await?;
    // A suspended target is asked again at once after its access changes.
    let rows = [
        (None, "False TargetUnauthorized"),
        (Some(&kubeconfig), "True Ready"),
        (Some(&misled), "False TargetUntrusted"),
        (Some(&kubeconfig), "True Ready"),
        (Some(&lowered), "False TargetForbidden"),
        (Some(&kubeconfig), "True Ready"),
        (Some(&revoked), "False TargetUnauthorized"),
    ];
    for (rotated, expected) in rows {
        if let Some(rotated) = rotated {
            landscape.rotate("sample", rotated).await?;
        }
        let kyma = landscape.until_kyma(expected, "sample", |kyma| reachable(kyma) == expected).await?;
        let healthy = expected == "True Ready";
        assert_eq!(state(&kyma), Some(if healthy { State::Ready } else { State::Error }), "{expected}");
    }
    landscape.stop().await
}

/// Returns the text from `start` to the end of its line.
fn line<'a>(text: &'a str, start: &str) -> &'a str {
    let found = text.find(start).map_or("", |at| &text[at..]);
    found.lines().next().unwrap_or_default()
}

fn state(kyma: &Kyma) -> Option<State> {
    kyma.status.as_ref()?.state
}

/// Returns status and reason of the condition `TargetReachable`.
pub(crate) fn reachable(kyma: &Kyma) -> String {
    let conditions = kyma.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let held = condition::get(&conditions, types::TARGET_REACHABLE);
    held.map(|held| format!("{} {}", held.status, held.reason)).unwrap_or_default()
}
