//! The record of a component's objects in its status: its size for real charts, and records of earlier versions.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kyma_api::{HelmComponentStatus, InventoryEntry, InventoryGroup};
use kyma_object_set::{Limits, Object, ObjectSet};
use serde_json::{Value, json};
use testbed::Program;
use tokio::process::Command;

use crate::large::{Step, at_rest};
use crate::world::{HUB_NAMESPACE, World};

/// Maximum average number of bytes for each object.
const BOUND: usize = 200;

/// Values that charts require, by the start of their name.
const NEEDS: [(&str, &str); 2] = [
    ("aws-load-balancer-controller", "clusterName=c"),
    (
        "linkerd-control-plane",
        "identityTrustAnchorsPEM=x,identity.issuer.tls.crtPEM=x,identity.issuer.tls.keyPEM=x",
    ),
];

#[tokio::test]
async fn the_record_of_an_object_takes_200_bytes_on_average() -> Result<()> {
    let Some(inputs) = testbed::inputs("the record of real charts")? else { return Ok(()) };
    let (mut objects, mut bytes) = (0, 0);
    for chart in fs::read_dir(inputs.join("charts"))? {
        let chart = chart?.path();
        if !chart.is_dir() {
            continue;
        }
        let set = rendered(&chart).await?;
        ensure!(!set.objects().is_empty(), "{} renders nothing", chart.display());
        objects += set.objects().len();
        bytes += record(set.objects());
    }
    ensure!(objects > 500, "only {objects} objects in the inputs");
    println!("{objects} objects, {} bytes each", bytes / objects);
    ensure!(bytes <= objects * BOUND, "{bytes} bytes for {objects} objects");
    Ok(())
}

async fn rendered(chart: &Path) -> Result<ObjectSet> {
    let name = chart.file_name().context("a name")?.to_string_lossy().into_owned();
    let mut helm = Command::new(Program::Helm.path()?);
    helm.args(["template", "release"]).arg(chart).args(["--include-crds", "--no-hooks"]);
    if let Some((_, values)) = NEEDS.iter().find(|(start, _)| name.starts_with(start)) {
        helm.args(["--set", values]);
    } else if name.starts_with("opentelemetry-collector") || name.starts_with("temporal") {
        let mut values = vec![];
        for file in fs::read_dir(chart.join("ci"))? {
            values.push(file?.path());
        }
        helm.arg("--values").arg(values.iter().min().context("values in ci/")?);
    }
    let output = helm.output().await?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    ObjectSet::parse_bytes(&output.stdout, &Limits::default()).context(name)
}

/// Returns the size of the record in bytes, with a namespace for every object and each hash at its maximum length.
fn record(objects: &[Object]) -> usize {
    let mut sorted: Vec<&Object> = objects.iter().collect();
    sorted.sort_by_key(|object| object.identity());
    let entries = sorted.into_iter().map(|object| InventoryEntry {
        group: object.group().to_owned(),
        version: object.version().to_owned(),
        kind: object.kind().to_owned(),
        namespace: Some(object.namespace().unwrap_or("release-system").to_owned()),
        name: object.name().to_owned(),
        uid: "0b5cf3a0-9c1c-4d1f-8f37-5f7d1f0f2b11".to_owned(),
        hash: "0123456789abcdef".to_owned(),
        fingerprint: "0123456789abcdef".to_owned(),
        created: true,
        finished: false,
    });
    serde_json::to_vec(&InventoryGroup::of(entries)).map_or(usize::MAX, |json| json.len())
}

#[tokio::test]
async fn operator_upgrade_reads_older_inventory_without_rewriting_it() -> Result<()> {
    let mut world = World::start().await?;
    let spec = |world: &World, path: &str, names: &[&str]| {
        let map = |name: &&str| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
        let url = world.file_server.put(path, names.iter().map(map).collect::<String>());
        json!({"source": {"manifests": {"url": url}}, "release": {"namespace": "early"}})
    };
    world.apply("early", spec(&world, "early.yaml", &["a", "b", "c"])).await?;
    world.ready("early", "True", "Ready").await?;
    // Writes of this process after the kill would count as those of the next one.
    at_rest(&world).await?;
    world.operator.kill();
    let status = world.components()?.get("early").await?.status.context("a status")?;
    let earlier = HelmComponentStatus { inventory: Some(status.entries()?), objects: None, ..status };
    write(&world, "early", &json!(earlier)).await?;

    let mut step = Step::begin(&world)?;
    world.restart_operator().await?;
    step.until_watched(&world).await?;
    at_rest(&world).await?;
    ensure!(step.ends(&world, "started with a record of an earlier version")? == [0, 0], "it wrote");
    let status = world.components()?.get("early").await?.status.context("a status")?;
    ensure!(status.inventory.is_some() && status.objects.is_none(), "{status:?}");

    world.apply("early", spec(&world, "earlier.yaml", &["a", "b"])).await?;
    let status = world.ready("early", "True", "Ready").await?.status.context("a status")?;
    let names: Vec<String> = status.entries()?.into_iter().map(|entry| entry.name).collect();
    ensure!(status.inventory.is_none() && names == ["a", "b"], "{status:?}");
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, "early");
    ensure!(maps.get_opt("c").await?.is_none(), "it was forgotten instead of removed");
    Ok(())
}

/// Writes a status as the operator does.
pub(crate) async fn write(world: &World, name: &str, status: &Value) -> Result<()> {
    let object = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
        "metadata": {"name": name, "namespace": HUB_NAMESPACE}, "status": status,
    });
    let params = PatchParams::apply("helm-component").force();
    world.components()?.patch_status(name, &params, &Patch::Apply(object)).await?;
    Ok(())
}
