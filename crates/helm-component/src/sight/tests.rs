use std::sync::Barrier;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ApiResource;
use kyma_targets::{AccessPolicy, Limits, Targets};
use serde_json::json;
use testbed::{Answer, Matching, Scripted, until};

use super::*;

const SOON: Duration = Duration::from_secs(10);
/// How often somebody leaves at the moment at which somebody joins.
const TURNS: usize = 200;

#[test]
fn kinds_that_lag_behind_are_looked_at_soon_and_not_for_ever() {
    assert_eq!(next_look(Duration::ZERO), Some(LOOK));
    let (mut unchanged, mut looks) = (Duration::ZERO, 0);
    while let Some(pause) = next_look(unchanged) {
        unchanged += pause;
        looks += 1;
    }
    assert!(looks < 15, "{looks}");
    assert!(unchanged < 2 * MOTION, "{unchanged:?}");
}

/// A target without objects, which lists and watches.
async fn empty_target() -> Result<(Scripted, Target)> {
    let server = Scripted::start().await?;
    let list = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
        "metadata": { "resourceVersion": "1" }, "items": [],
    });
    server.always(Matching::any().query("watch=true"), Answer::watch(&[]));
    server.always(Matching::any(), Answer::json(&list));
    let policy = AccessPolicy { allow_loopback: true, ..AccessPolicy::default() };
    let targets = Targets::new(policy, Limits::default(), "test/0.1.0", "test", 10);
    let mut secret = Secret::default();
    secret.metadata.namespace = Some("hub".into());
    secret.metadata.name = Some("target".into());
    secret.data = Some([("config".to_owned(), ByteString(server.access().kubeconfig().into_bytes()))].into());
    let target = targets.from_secret(&secret, "config").context("the access Secret")?;
    Ok((server, target))
}

fn dependent(name: &str) -> Dependent {
    Dependent { namespace: "hub".to_owned(), name: name.to_owned(), owner: name.into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_joins_a_stream_that_another_leaves_sees_its_list() -> Result<()> {
    let (_server, target) = empty_target().await?;
    let sights = Sights::new("test", Metrics::new()?, |_| ());
    let maps = Interest::in_kind(&ApiResource::erase::<ConfigMap>(&())).owned();
    let is_complete =
        |dependent: &Dependent| sights.snapshot(&target, dependent, &Inventory::default()).complete;
    let (mut leaves, mut joins) = (dependent("a"), dependent("b"));
    sights.wish(&target, &leaves, vec![maps.clone()])?;
    for turn in 0..TURNS {
        until("the list is there", SOON, || async { Ok(is_complete(&leaves).then_some(())) })
            .await
            .with_context(|| format!("turn {turn}"))?;
        let (runtime, start) = (tokio::runtime::Handle::current(), Barrier::new(2));
        std::thread::scope(|scope| {
            let (sights, target, leaves, joins, maps) = (&sights, &target, &leaves, &joins, &maps);
            let start = &start;
            scope.spawn(move || {
                start.wait();
                sights.forget(leaves);
            });
            scope.spawn(move || {
                let _within = runtime.enter();
                start.wait();
                sights.wish(target, joins, vec![maps.clone()])
            });
        });
        std::mem::swap(&mut leaves, &mut joins);
    }
    Ok(())
}
