//! Lower bound: writes the same objects by server-side apply, with one component and one status of equal size for
//! each release, and deletes them: objects in the foreground as an uninstall does, then the component's finalizer.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, PartialObjectMeta, Patch, PatchParams, PostParams,
};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use kyma_api::HelmComponent;
use serde_json::{Value, json};

use super::{Bench, MAX_IN_FLIGHT, component, deadline, until_gone};

/// Field manager of the loop.
const FIELD_MANAGER: &str = "bare-loop";
/// Name of the rendered release; others differ only in the name.
const RENDERED_RELEASE: &str = "bare-00000";
/// Finalizer of the loop's components.
const FINALIZER: &str = "example.org/bare-loop";
/// Namespace of the releases on the target.
const NAMESPACE: &str = "bare";
/// A component that helm-component made Ready.
const READY_COMPONENT: &str = "ours-00000";

/// Returns the seconds for writing the rendered releases of these numbers.
pub(super) async fn write(bench: &Bench, numbers: Range<usize>) -> Result<f64> {
    let releases = releases(bench, numbers).await?;
    let ours = bench.components().get(READY_COMPONENT).await?.status;
    let status = &json!({
        "apiVersion": "component.kyma-project.io/v1alpha1",
        "kind": "HelmComponent",
        "status": ours.with_context(|| format!("the status of {READY_COMPONENT}"))?,
    });
    let start = Instant::now();
    stream::iter(releases)
        .map(|(component, objects)| write_one(bench, component, objects, status))
        .buffer_unordered(MAX_IN_FLIGHT)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(start.elapsed().as_secs_f64())
}

/// Returns the seconds for deleting the releases of these numbers: one request for each object, two for each component.
/// All that helm-component adds to it are reads.
pub(super) async fn remove(bench: &Bench, numbers: Range<usize>) -> Result<f64> {
    let releases = releases(bench, numbers).await?;
    let names: BTreeSet<String> = releases.iter().map(|(component, _)| component.name_any()).collect();
    let start = Instant::now();
    stream::iter(releases)
        .map(|(component, objects)| delete_one(bench, component, objects))
        .buffer_unordered(MAX_IN_FLIGHT)
        .try_collect::<Vec<()>>()
        .await?;
    let deployments = Api::<PartialObjectMeta<Deployment>>::namespaced(bench.target.clone(), NAMESPACE);
    let is_awaited = |name: &str| names.iter().any(|release| name.starts_with(release));
    until_gone(deployments, is_awaited, deadline(names.len())?).await?;
    stream::iter(names)
        .map(|name| release_one(bench, name))
        .buffer_unordered(MAX_IN_FLIGHT)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(start.elapsed().as_secs_f64())
}

/// Returns the suspended components of these numbers, each with the objects of its chart.
async fn releases(bench: &Bench, numbers: Range<usize>) -> Result<Vec<(HelmComponent, Vec<Value>)>> {
    let version = bench.target.apiserver_version().await?.git_version;
    let text = bench.helm.template(&bench.chart, (RENDERED_RELEASE, 1), NAMESPACE, &version, &[]).await?;
    let source = bench.source()?;
    numbers
        .map(|number| {
            let name = format!("bare-{number:05}");
            let objects: Vec<Value> = serde_saphyr::from_multiple(&text.replace(RENDERED_RELEASE, &name))?;
            let mut component = component(&source, &name, bench.values(), NAMESPACE)?;
            component.spec.suspend = Some(true);
            component.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
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
    let apply = PatchParams::apply(FIELD_MANAGER).force();
    for object in objects {
        let (api, name) = on_target(bench, &object)?;
        api.patch(name, &apply, &Patch::Apply(&object)).await.with_context(|| name.to_owned())?;
    }
    let name = component.metadata.name.as_deref().unwrap_or_default();
    components.patch_status(name, &apply, &Patch::Apply(status)).await?;
    Ok(())
}

async fn delete_one(bench: &Bench, component: HelmComponent, objects: Vec<Value>) -> Result<()> {
    let foreground = DeleteParams::foreground();
    bench.components().delete(&component.name_any(), &DeleteParams::default()).await?;
    for object in objects {
        let (api, name) = on_target(bench, &object)?;
        api.delete(name, &foreground).await.with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// Removes the finalizer of a component.
async fn release_one(bench: &Bench, name: String) -> Result<()> {
    let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    bench.components().patch_metadata(&name, &PatchParams::default(), &released).await?;
    Ok(())
}

/// Returns access to an object of the chart on the target, and its name.
fn on_target<'object>(bench: &Bench, object: &'object Value) -> Result<(Api<DynamicObject>, &'object str)> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let name = object["metadata"]["name"].as_str().context("an object has a name")?;
    Ok((Api::namespaced_with(bench.target.clone(), NAMESPACE, &resource), name))
}
