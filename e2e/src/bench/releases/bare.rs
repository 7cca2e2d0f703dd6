//! Lower bound: writes the same objects by server-side apply, with one component and one status of equal size for
//! each release.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kyma_api::HelmComponent;
use serde_json::{Value, json};

use super::{Bench, IN_FLIGHT, component};

/// Field manager of the loop.
const MANAGER: &str = "bare-loop";
/// Name of the rendered release; others differ only in the name.
const FIRST: &str = "bare-00000";
/// A component that helm-component made Ready.
const OURS: &str = "ours-00000";

/// Returns the seconds for writing the rendered releases of these numbers.
pub(super) async fn write(bench: &Bench, numbers: Range<usize>) -> Result<f64> {
    let version = bench.target.apiserver_version().await?.git_version;
    let text = bench.helm.template(&bench.chart, FIRST, "bare", &version, &[]).await?;
    let source = bench.source()?;
    let releases: Vec<(HelmComponent, Vec<Value>)> = numbers
        .map(|number| {
            let name = format!("bare-{number:05}");
            let objects: Vec<Value> = serde_saphyr::from_multiple(&text.replace(FIRST, &name))?;
            let mut component = component(&source, &name, bench.values(), "bare")?;
            component.spec.suspend = Some(true);
            anyhow::Ok((component, objects.into_iter().filter(|object| !object.is_null()).collect()))
        })
        .collect::<Result<_>>()?;
    let ours = bench.components().get(OURS).await?.status;
    let status = &json!({
        "apiVersion": "component.kyma-project.io/v1alpha1",
        "kind": "HelmComponent",
        "status": ours.with_context(|| format!("the status of {OURS}"))?,
    });
    let start = Instant::now();
    stream::iter(releases)
        .map(|(component, objects)| one(bench, component, objects, status))
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(start.elapsed().as_secs_f64())
}

async fn one(bench: &Bench, component: HelmComponent, objects: Vec<Value>, status: &Value) -> Result<()> {
    let components = bench.components();
    components.create(&PostParams::default(), &component).await?;
    let apply = PatchParams::apply(MANAGER).force();
    for object in objects {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let name = object["metadata"]["name"].as_str().context("an object has a name")?;
        let api: Api<DynamicObject> = Api::namespaced_with(bench.target.clone(), "bare", &resource);
        api.patch(name, &apply, &Patch::Apply(&object)).await.with_context(|| format!("{kind} {name}"))?;
    }
    let name = component.metadata.name.as_deref().unwrap_or_default();
    components.patch_status(name, &apply, &Patch::Apply(status)).await?;
    Ok(())
}
