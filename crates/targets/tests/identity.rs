//! Identity and stamp on real control planes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{ListParams, PostParams};
use kyma_api::Reason;
use kyma_targets::{
    AccessPolicy, Claim, Fence, FencingGeneration, KymaId, Ledger, Limits, Mismatch, STAMP_NAMESPACE, Stamp,
    Target, TargetError, TargetRecord, Targets, Verdict, classify, compare, create_namespace,
};
use parking_lot::Mutex;
use testbed::{Access, Credentials, SharedTestEnv};

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

fn targets() -> Targets {
    let policy = AccessPolicy { allow_loopback: true, ..AccessPolicy::default() };
    Targets::new(policy, Limits::default(), "tester/1.0.0", "replica-0", 8)
}

fn secret(access: &Access) -> Secret {
    let data = ByteString(access.kubeconfig().into_bytes());
    let mut secret = Secret { data: Some([("config".to_owned(), data)].into()), ..Secret::default() };
    secret.metadata.namespace = Some("kcp-system".into());
    secret.metadata.name = Some(access.cluster.clone());
    secret
}

async fn claim(hub: &Target, kyma: &str) -> Result<Claim> {
    Ok(Claim {
        hub_uid: hub.identify().await?.target_uid,
        kyma: Some(KymaId {
            namespace: "kcp-system".into(),
            name: kyma.into(),
            uid: format!("uid-of-{kyma}"),
        }),
        operator: "tester".into(),
        version: "1.0.0".into(),
    })
}

#[tokio::test]
async fn first_contact_stamps_and_everybody_else_is_refused() -> Result<()> {
    let (hub, cluster) = (TEST_ENV.cluster("hub", |b| b).await?, TEST_ENV.cluster("stamped", |b| b).await?);
    let targets = targets();
    let hub = targets.local(hub.client()?);
    let target = targets.from_secret(&secret(cluster.admin()), "config")?;
    let ours = claim(&hub, "a").await?;

    let found = target.identify().await?;
    let Verdict::FirstContact { record, write: Some(stamp) } =
        compare(&ours, &TargetRecord::default(), &found)
    else {
        anyhow::bail!("a first contact was expected");
    };
    let missing = target.put_stamp(&stamp, &found).await;
    assert!(matches!(missing, Err(TargetError::Api { code: 404, .. })), "{missing:?}");
    create_namespace(&target.client(), STAMP_NAMESPACE, &[], "tester").await?;
    target.put_stamp(&stamp, &found).await?;

    let found = target.identify().await?;
    assert_eq!(compare(&ours, &record, &found), Verdict::Match { write: None });
    let second = claim(&hub, "b").await?;
    let in_use = Verdict::TargetInUse { kyma: "kcp-system/a".into(), other_hub: false };
    assert_eq!(compare(&second, &TargetRecord::default(), &found), in_use);

    // The other hub overwrites the stamp; the next connection notices it.
    let theirs = Stamp { hub_uid: "other-hub".into(), epoch: 2, ..stamp.clone() };
    target.put_stamp(&theirs, &found).await?;
    let stale = target.put_stamp(&stamp, &found).await;
    assert!(matches!(stale, Err(TargetError::Api { code: 409, .. })), "{stale:?}");
    let verdict = compare(&ours, &record, &target.identify().await?);
    assert_eq!(verdict, Verdict::StampMismatch(Mismatch::TakenOver));
    Ok(())
}

/// The hub's record of a target.
struct OnRecord(Mutex<Option<TargetRecord>>);

impl Ledger for OnRecord {
    fn recorded(&self) -> BoxFuture<'_, Result<Option<TargetRecord>, TargetError>> {
        let recorded = self.0.lock().clone();
        Box::pin(async { Ok(recorded) })
    }
}

async fn write(client: kube::Client) -> Result<(), TargetError> {
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let mut map = ConfigMap::default();
    map.metadata.generate_name = Some("written-".into());
    maps.create(&PostParams::default(), &map).await.map(drop).map_err(|error| classify(&error))
}

#[tokio::test]
async fn hub_that_did_not_order_the_last_change_writes_nothing() -> Result<()> {
    let (hub, cluster) = (TEST_ENV.cluster("hub", |b| b).await?, TEST_ENV.cluster("fenced", |b| b).await?);
    let targets = targets();
    let hub = targets.local(hub.client()?);
    let target = targets.from_secret(&secret(cluster.admin()), "config")?;
    let claim = claim(&hub, "a").await?;
    let found = target.identify().await?;
    let Verdict::FirstContact { record, write: Some(stamp) } =
        compare(&claim, &TargetRecord::default(), &found)
    else {
        anyhow::bail!("a first contact was expected");
    };
    create_namespace(&target.client(), STAMP_NAMESPACE, &[], "tester").await?;
    target.put_stamp(&stamp, &found).await?;
    let generation = |text: &str| Some(text.parse::<FencingGeneration>().unwrap());
    let ledger = Arc::new(OnRecord(Mutex::new(Some(record.clone()))));
    let hub_at = |epoch, at: &str| {
        *ledger.0.lock() = Some(TargetRecord { epoch, fencing_generation: generation(at), ..record.clone() });
    };
    let fence = |recorded: TargetRecord| Fence {
        claim: claim.clone(),
        recorded,
        ledger: Some(Arc::clone(&ledger) as Arc<dyn Ledger>),
    };
    let fenced = target.fenced(fence(record.clone()));
    write(fenced.client()).await?;

    let stamped = async |epoch, at: &str| {
        let found = target.identify_anew().await?;
        target.put_stamp(&Stamp { epoch, fencing_generation: generation(at), ..stamp.clone() }, &found).await
    };
    stamped(1, "1-a").await?;
    let refused = write(fenced.client()).await;
    assert!(matches!(refused, Err(TargetError::Refused(_))), "{refused:?}");
    assert_eq!(refused.unwrap_err().reason(), Reason::StampMismatch);
    assert!(write(fenced.acting_for("component", None).client()).await.is_err(), "whoever it acts for");
    Api::<ConfigMap>::namespaced(fenced.client(), "default").list(&ListParams::default()).await?;

    hub_at(1, "1-a");
    write(fenced.client()).await?;
    stamped(1, "2-b").await?;
    hub_at(1, "2-c");
    assert!(write(fenced.client()).await.is_err(), "another copy was faster");
    hub_at(1, "3-c");
    write(fenced.client()).await?;

    let adopted = target.fenced(fence(TargetRecord { epoch: 2, ..record.clone() }));
    stamped(2, "1-d").await?;
    *ledger.0.lock() = Some(TargetRecord { epoch: 2, ..record.clone() });
    assert!(write(adopted.client()).await.is_err(), "what was counted before the adoption says nothing");
    *ledger.0.lock() = None;
    write(adopted.client()).await.context("nobody is there to take turns")?;
    Ok(())
}

#[tokio::test]
async fn the_hub_behind_a_kubeconfig_is_recognised_as_the_hub() -> Result<()> {
    let cluster = TEST_ENV.cluster("hub", |b| b).await?;
    let targets = targets();
    let hub = targets.local(cluster.client()?);
    let target = targets.from_secret(&secret(cluster.admin()), "config")?;
    let claim = claim(&hub, "a").await?;
    assert_eq!(compare(&claim, &TargetRecord::default(), &target.identify().await?), Verdict::TargetIsHub);
    assert!(hub.is_local() && !target.is_local());
    Ok(())
}

#[tokio::test]
async fn a_token_that_the_cluster_does_not_know_is_unauthorized() -> Result<()> {
    let cluster = TEST_ENV.cluster("hub", |b| b).await?;
    let stranger = Access { credentials: Credentials::Token("stranger".into()), ..cluster.admin().clone() };
    let target = targets().from_secret(&secret(&stranger), "config")?;
    let error = target.identify().await.err().context("an error was expected")?;
    assert_eq!(error, TargetError::Unauthorized);
    Ok(())
}

#[tokio::test]
async fn without_rights_the_stamp_is_an_error_and_not_missing() -> Result<()> {
    let cluster = TEST_ENV.cluster("hub", |b| b).await?;
    let nobody = cluster.service_account("default", "nobody").await?;
    let target = targets().from_secret(&secret(&nobody), "config")?;
    let error = target.identify().await.err().context("an error was expected")?;
    assert_eq!(error.reason(), Reason::TargetForbidden);
    Ok(())
}

#[tokio::test]
async fn stopped_api_server_is_unreachable_and_reidentified_on_return() -> Result<()> {
    let cluster = TEST_ENV.cluster("stopped", |b| b).await?;
    let mut limits = Limits::default();
    limits.breaker.probe_first = Duration::from_millis(200);
    limits.breaker.probe_longest = Duration::from_millis(500);
    let policy = AccessPolicy { allow_loopback: true, ..AccessPolicy::default() };
    let targets = Targets::new(policy, limits, "tester/1.0.0", "replica-0", 8);
    let target = targets.from_secret(&secret(cluster.admin()), "config")?;
    let before = target.identify().await?;

    cluster.stop();
    let maps = Api::<ConfigMap>::namespaced(target.client(), "default");
    for _ in 0..3 {
        let error = maps.get_opt("any").await.err().context("the apiserver is down")?;
        assert_eq!(classify(&error).reason(), Reason::TargetUnreachable);
    }
    assert!(!target.calls_pass());
    cluster.start_again().await?;
    tokio::time::timeout(Duration::from_mins(1), target.healthy_again()).await?;
    assert_eq!(target.identify().await?.target_uid, before.target_uid);
    Ok(())
}
