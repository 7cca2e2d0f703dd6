//! The end of a component, as a watch shows it that is late.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::FutureExt;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use kyma_sdk::api::{HelmComponent, crds};
use kyma_sdk::{Component, Context, Failure, Mode, Progress, Removal, Rule, Waker, drive};
use serde_json::json;
use testbed::{Cluster, Fate, Passing, Scripted, disordered, until};

use crate::{SOON, cluster, connect, serve};

const NAME: &str = "leaving";
/// Longer than anything here takes.
const LATE: Duration = Duration::from_mins(5);

/// Has nothing to install, and counts how often its removal is begun.
#[derive(Clone, Default)]
struct Counted {
    removals: Arc<AtomicUsize>,
    waker: Arc<OnceLock<Waker<HelmComponent>>>,
}

impl Component for Counted {
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

/// A way to the hub on which nobody hears in time of components that are gone. Counts who asks for one of them.
async fn late_ends(hub: &Cluster, asked: &Arc<AtomicUsize>) -> Result<Scripted> {
    let asked = Arc::clone(asked);
    let between = move |passing: Passing| {
        let seen = passing.seen();
        let is_list = seen.path.ends_with("/helmcomponents");
        let is_watch = is_list && seen.query.contains("watch=true");
        asked.fetch_add(usize::from(is_list && seen.query.contains("metadata.name")), Ordering::Relaxed);
        async move {
            let answer = passing.onward().await?;
            let fate = |event: &serde_json::Value| match event["type"].as_str() {
                Some("DELETED") => Fate::Late(LATE),
                _ => Fate::Comes,
            };
            Ok(if is_watch { disordered(answer, fate) } else { answer })
        }
        .boxed()
    };
    Scripted::with(Arc::new(between), hub).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_was_let_go_is_not_removed_again() -> Result<()> {
    let hub = cluster().await?;
    let client = hub.client()?;
    serve(&client, &crds::helm_component()).await?;
    let namespace = hub.namespace("ended").await?;
    let asked = Arc::default();
    let door = late_ends(&hub, &asked).await?;
    let runtime = connect(door.access(), &namespace, Mode::SingleCluster).await?;
    let counted = Counted::default();
    let operator = tokio::spawn(drive(counted.clone(), runtime));

    let components: Api<HelmComponent> = Api::namespaced(client, &namespace);
    let component = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent", "metadata": {"name": NAME},
        "spec": {"deletionPolicy": "Delete", "source": {"manifests": {"url": "https://example.com/a.yaml"}}},
    });
    components.create(&PostParams::default(), &serde_json::from_value(component)?).await?;
    until("it is installed", SOON, || async { Ok(counted.waker.get().map(drop)) }).await?;
    components.delete(NAME, &DeleteParams::default()).await?;
    until("it is gone", SOON, || async { Ok(components.get_opt(NAME).await?.is_none().then_some(())) })
        .await?;
    assert_eq!(counted.removals.load(Ordering::Relaxed), 1);

    // Something on the target still brings it back, as the operator knows it.
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
