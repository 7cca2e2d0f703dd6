//! A component that is deleted from the hub during its pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, Patch, PatchParams, PostParams};
use kyma_api::{HelmComponent, crds};
use kyma_controller::{Failure, Mode, Rule, WatchSpec};
use kyma_sdk::{Component, Context, Progress, Removal, drive};
use serde_json::json;
use testbed::until;
use tokio::sync::Notify;

use crate::{SOON, cluster, connect, serve};

const NAME: &str = "vanishing";

/// Registers a watch, and does not end its pass before it is notified.
#[derive(Clone, Default)]
struct Slow {
    begun: Arc<AtomicBool>,
    ends: Arc<Notify>,
    forgotten: Arc<AtomicUsize>,
}

impl Component for Slow {
    type Resource = HelmComponent;

    const NAME: &'static str = "slow";
    const VERSION: &'static str = "0.1.0";
    const TARGET_RULES: &'static [Rule] = &[];

    async fn install(&self, context: &Context<HelmComponent>) -> Result<Progress, Failure> {
        context.watch(WatchSpec::in_kind(&ApiResource::erase::<ConfigMap>(&())).owned());
        self.begun.store(true, Ordering::Release);
        self.ends.notified().await;
        Ok(Progress::ready("1.0.0"))
    }

    async fn remove(&self, _: &Context<HelmComponent>) -> Result<Removal, Failure> {
        Ok(Removal::Done)
    }

    fn forget(&self, _: &str, _: &str) {
        self.forgotten.fetch_add(1, Ordering::Release);
    }
}

impl Slow {
    async fn forgotten(&self, times: usize) -> Result<()> {
        until(&format!("it was forgotten {times} times"), SOON, || async {
            Ok((self.forgotten.load(Ordering::Acquire) >= times).then_some(()))
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pass_opens_after_its_component_vanished_is_closed() -> Result<()> {
    let hub = cluster().await?;
    let client = hub.client()?;
    serve(&client, &crds::helm_component()).await?;
    let namespace = hub.namespace("vanished").await?;
    let runtime = connect(hub.admin(), &namespace, Mode::SingleCluster).await?;
    let (slow, metrics) = (Slow::default(), runtime.process.metrics.clone());
    let operator = tokio::spawn(drive(slow.clone(), runtime));
    let components: Api<HelmComponent> = Api::namespaced(client, &namespace);
    let component = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent", "metadata": {"name": NAME},
        "spec": {"source": {"manifests": {"url": "https://example.com/a.yaml"}}},
    });
    components.create(&PostParams::default(), &serde_json::from_value(component)?).await?;
    until("its pass began", SOON, || async { Ok(slow.begun.load(Ordering::Acquire).then_some(())) }).await?;

    let freed = json!({ "metadata": { "finalizers": null } });
    components.patch(NAME, &PatchParams::default(), &Patch::Merge(&freed)).await?;
    components.delete(NAME, &DeleteParams::default()).await?;
    slow.forgotten(1).await?;
    slow.ends.notify_one();
    slow.forgotten(2).await?;
    let text = metrics.render()?;
    assert!(text.contains(r#"target_watches{operator="slow"} 0"#), "{text}");
    operator.abort();
    Ok(())
}
