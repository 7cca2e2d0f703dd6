//! The end of a component while something else overtakes it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::FutureExt;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use kyma_api::{HelmComponent, crds};
use kyma_controller::{Failure, Mode, Rule};
use kyma_sdk::{Component, Context, Progress, Removal, Waker, drive};
use serde_json::json;
use testbed::{Cluster, EventDelivery, InterceptedRequest, ScriptedServer, disorder_events, until};

use crate::{SOON, cluster, connect, serve};

const NAME: &str = "leaving";
/// Delay that is longer than the test.
const LATE: Duration = Duration::from_mins(5);

/// A component without content, which counts how often its removal begins.
#[derive(Clone, Default)]
struct RemovalCounter {
    removals: Arc<AtomicUsize>,
    waker: Arc<OnceLock<Waker<HelmComponent>>>,
}

impl Component for RemovalCounter {
    type Resource = HelmComponent;

    const NAME: &'static str = "counted";
    const VERSION: &'static str = "0.1.0";
    const TARGET_RULES: &'static [Rule] = &[];

    async fn install(&self, context: &Context<HelmComponent>) -> Result<Progress, Failure> {
        self.waker.get_or_init(|| context.waker());
        Ok(Progress::ready("1.0.0"))
    }

    async fn remove(&self, _: &Context<HelmComponent>) -> Result<Removal, Failure> {
        self.removals.fetch_add(1, Ordering::Relaxed);
        Ok(Removal::Done)
    }
}

/// Starts a proxy to the hub that delays events of deleted components, and counts requests for single components.
async fn late_ends(hub: &Cluster, asked: &Arc<AtomicUsize>) -> Result<ScriptedServer> {
    let asked = Arc::clone(asked);
    let between = move |passing: InterceptedRequest| {
        let seen = passing.received();
        let is_list = seen.path.ends_with("/helmcomponents");
        let is_watch = is_list && seen.query.contains("watch=true");
        asked.fetch_add(usize::from(is_list && seen.query.contains("metadata.name")), Ordering::Relaxed);
        async move {
            let answer = passing.onward().await?;
            let fate = |event: &serde_json::Value| match event["type"].as_str() {
                Some("DELETED") => EventDelivery::Late(LATE),
                _ => EventDelivery::OnTime,
            };
            Ok(if is_watch { disorder_events(answer, fate) } else { answer })
        }
        .boxed()
    };
    ScriptedServer::with(Arc::new(between), hub).await
}

/// Starts a proxy to the hub that orders the removal of the module just before the first release of the component.
async fn late_release(hub: &Cluster, components: &Api<HelmComponent>) -> Result<ScriptedServer> {
    let (components, is_first) = (components.clone(), Arc::new(AtomicBool::new(true)));
    let between = move |passing: InterceptedRequest| {
        let (components, is_first) = (components.clone(), Arc::clone(&is_first));
        async move {
            let releases = passing.received().path.ends_with(NAME)
                && String::from_utf8_lossy(passing.body()).contains(r#""op":"remove""#);
            if releases && is_first.swap(false, Ordering::Relaxed) {
                let order = json!({ "spec": { "deletionPolicy": "Delete" } });
                let given = components.patch(NAME, &PatchParams::default(), &Patch::Merge(&order)).await;
                given.map_err(io::Error::other)?;
            }
            passing.onward().await
        }
        .boxed()
    };
    ScriptedServer::with(Arc::new(between), hub).await
}

/// Creates the component, and waits until it is installed.
async fn install(components: &Api<HelmComponent>, policy: &str, counted: &RemovalCounter) -> Result<()> {
    let component = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent", "metadata": {"name": NAME},
        "spec": {"deletionPolicy": policy, "source": {"manifests": {"url": "https://example.com/a.yaml"}}},
    });
    components.create(&PostParams::default(), &serde_json::from_value(component)?).await?;
    until("it is installed", SOON, || async { Ok(counted.waker.get().map(drop)) }).await
}

async fn delete(components: &Api<HelmComponent>) -> Result<()> {
    components.delete(NAME, &DeleteParams::default()).await?;
    until("it is gone", SOON, || async { Ok(components.get_opt(NAME).await?.is_none().then_some(())) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn component_keeps_finalizer_if_deletion_request_is_concurrent() -> Result<()> {
    let hub = cluster().await?;
    serve(&hub.client()?, &crds::helm_component()).await?;
    let namespace = hub.namespace("overtaken").await?;
    let components: Api<HelmComponent> = Api::namespaced(hub.client()?, &namespace);
    let proxy = late_release(&hub, &components).await?;
    let runtime = connect(proxy.access(), &namespace, Mode::SingleCluster).await?;
    let counted = RemovalCounter::default();
    let operator = tokio::spawn(drive(counted.clone(), runtime));
    install(&components, "Orphan", &counted).await?;
    delete(&components).await?;
    assert_eq!(counted.removals.load(Ordering::Relaxed), 1, "the module is left behind");
    operator.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_was_let_go_is_not_removed_again() -> Result<()> {
    let hub = cluster().await?;
    let client = hub.client()?;
    serve(&client, &crds::helm_component()).await?;
    let namespace = hub.namespace("ended").await?;
    let asked = Arc::default();
    let proxy = late_ends(&hub, &asked).await?;
    let runtime = connect(proxy.access(), &namespace, Mode::SingleCluster).await?;
    let counted = RemovalCounter::default();
    let operator = tokio::spawn(drive(counted.clone(), runtime));

    let components: Api<HelmComponent> = Api::namespaced(client, &namespace);
    install(&components, "Delete", &counted).await?;
    delete(&components).await?;
    assert_eq!(counted.removals.load(Ordering::Relaxed), 1);

    // An event of the target wakes it again.
    counted.waker.get().context("its waker")?.wake();
    until("it is looked at", SOON, || async {
        let is_begun_again = counted.removals.load(Ordering::Relaxed) > 1;
        Ok((is_begun_again || asked.load(Ordering::Relaxed) > 0).then_some(()))
    })
    .await?;
    assert_eq!(counted.removals.load(Ordering::Relaxed), 1, "its removal begins again");
    operator.abort();
    Ok(())
}
