use std::sync::mpsc::{self, RecvTimeoutError};

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ApiResource;
use kyma_targets::{AccessPolicy, ComponentTarget, Limits, Targets};
use serde_json::json;
use testbed::{Answer, RequestMatcher, ScriptedServer};

use super::*;

const SOON: Duration = Duration::from_mins(1);
/// Maximum time of an undisturbed change of subscriptions.
const UNDISTURBED: Duration = Duration::from_millis(100);

#[test]
fn discovery_repeats_with_growing_pauses_until_the_lag_ends() {
    assert_eq!(pause_before_discovery(Duration::ZERO), Some(MIN_DISCOVERY_PAUSE));
    let (mut unchanged, mut discoveries) = (Duration::ZERO, 0);
    while let Some(pause) = pause_before_discovery(unchanged) {
        unchanged += pause;
        discoveries += 1;
    }
    assert!(discoveries < 15, "{discoveries}");
    assert!(unchanged < 2 * MAX_DISCOVERY_LAG, "{unchanged:?}");
}

/// Returns a target without objects that answers lists and watches.
async fn empty_target() -> Result<(ScriptedServer, ComponentTarget)> {
    let server = ScriptedServer::start().await?;
    let list = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
        "metadata": { "resourceVersion": "1" }, "items": [],
    });
    server.always(RequestMatcher::any().query("watch=true"), Answer::watch(&[]));
    server.always(RequestMatcher::any(), Answer::json(&list));
    let policy = AccessPolicy { allow_loopback: true, ..AccessPolicy::default() };
    let targets = Targets::new(policy, Limits::default(), "test/0.1.0", "test", 10);
    let mut secret = Secret::default();
    secret.metadata.namespace = Some("hub".into());
    secret.metadata.name = Some("target".into());
    secret.data = Some([("config".to_owned(), ByteString(server.access().kubeconfig().into_bytes()))].into());
    let target = targets.from_secret(&secret, "config").context("the access Secret")?;
    Ok((server, target.acting_for("uid", None)))
}

fn component_key(name: &str) -> ComponentKey {
    ComponentKey { namespace: "hub".into(), name: name.into(), owner: name.into() }
}

/// Between the two halves of an unsubscription, another component could join the stream that it ends, and wait for
/// its list forever.
#[tokio::test(flavor = "multi_thread")]
async fn store_and_streams_change_together() -> Result<()> {
    let (_server, target) = empty_target().await?;
    let target_cache = TargetCache::new("test", &Process::new()?, |_| ());
    let maps = WatchSpec::in_kind(&ApiResource::erase::<ConfigMap>(&())).owned();
    let component = component_key("a");
    let changes: [&(dyn Fn() + Sync); 3] = [
        &|| target_cache.subscribe_to(&target, &component, vec![maps.clone()], &Arc::default()).unwrap(),
        &|| target_cache.access_changed("target"),
        &|| target_cache.forget(&component),
    ];
    for change in changes {
        let (runtime, (done, is_done)) = (tokio::runtime::Handle::current(), mpsc::channel());
        std::thread::scope(|scope| {
            let others = target_cache.subscribing.lock();
            scope.spawn(move || {
                let _within = runtime.enter();
                change();
                done.send(()).unwrap();
            });
            let early = is_done.recv_timeout(UNDISTURBED);
            drop(others);
            assert_eq!(early, Err(RecvTimeoutError::Timeout), "the change did not wait for the lock");
            is_done.recv_timeout(SOON).unwrap();
        });
    }
    Ok(())
}
