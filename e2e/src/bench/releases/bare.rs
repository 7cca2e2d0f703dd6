//! Lower bound: writes the same objects by server-side apply, with one component and one status of equal size for
//! each release, and deletes them.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
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
    let releases = releases(bench, numbers).await?;
    let ours = bench.components().get(OURS).await?.status;
    let status = &json!({
        "apiVersion": "component.kyma-project.io/v1alpha1",
        "kind": "HelmComponent",
        "status": ours.with_context(|| format!("the status of {OURS}"))?,
    });
    let start = Instant::now();
    stream::iter(releases)
        .map(|(component, objects)| write_one(bench, component, objects, status))
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(start.elapsed().as_secs_f64())
}

/// Returns the seconds for deleting the releases of these numbers: one request for each object and each component.
pub(super) async fn remove(bench: &Bench, numbers: Range<usize>) -> Result<f64> {
    let releases = releases(bench, numbers).await?;
    let start = Instant::now();
    stream::iter(releases)
        .map(|(component, objects)| remove_one(bench, component, objects))
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(start.elapsed().as_secs_f64())
}

/// Returns the suspended components of these numbers, each with the objects of its chart.
async fn releases(bench: &Bench, numbers: Range<usize>) -> Result<Vec<(HelmComponent, Vec<Value>)>> {
    let version = bench.target.apiserver_version().await?.git_version;
    let text = bench.helm.template(&bench.chart, (FIRST, 1), "bare", &version, &[]).await?;
    let source = bench.source()?;
    numbers
        .map(|number| {
            let name = format!("bare-{number:05}");
            let objects: Vec<Value> = serde_saphyr::from_multiple(&text.replace(FIRST, &name))?;
            let mut component = component(&source, &name, bench.values(), "bare")?;
            component.spec.suspend = Some(true);
            anyhow::Ok((component, objects.into_iter().filter(|object| !object.is_null()).collect()))
        })
        .collect()
}

async fn write_one(
    bench: &Bench,
    component: HelmComponent,
    objects: Vec<Value>,
    status: &Value,
) -> Result<()> {
    let components = bench.components();
    components.create(&PostParams::default(), &component).await?;
    let apply = PatchParams::apply(MANAGER).force();
    for object in objects {
        let (api, name) = on_target(bench, &object)?;
        api.patch(name, &apply, &Patch::Apply(&object)).await.with_context(|| name.to_owned())?;
    }
    let name = component.metadata.name.as_deref().unwrap_or_default();
    components.patch_status(name, &apply, &Patch::Apply(status)).await?;
    Ok(())
}

async fn remove_one(bench: &Bench, component: HelmComponent, objects: Vec<Value>) -> Result<()> {
    let background = DeleteParams::background();
    for object in objects {
        let (api, name) = on_target(bench, &object)?;
        api.delete(name, &background).await.with_context(|| name.to_owned())?;
    }
    let name = component.metadata.name.as_deref().unwrap_or_default();
    bench.components().delete(name, &background).await?;
    Ok(())
}

/// Returns access to an object of the chart on the target, and its name.
fn on_target<'object>(bench: &Bench, object: &'object Value) -> Result<(Api<DynamicObject>, &'object str)> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let name = object["metadata"]["name"].as_str().context("an object has a name")?;
    Ok((Api::namespaced_with(bench.target.clone(), "bare", &resource), name))
}
