//! Time until a new Kyma is Ready: with a module of one object and a small catalogue; with a large one that
//! release-meta-syncer copies to the target at the same time; and with a typical module.

use std::time::Instant;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::conditions::is_deleted;
use kube::{Api, Client};
use kyma_api::{Kyma, ModuleTemplate, State};
use serde_json::{Value, json};
use testbed::Cluster;

use super::quantile::quantile;
use super::{Outcome, Row};
use crate::landscape::{HUB_NAMESPACE, Landscape, Options};
use crate::{catalogue, wait};

const KYMA: &str = "measured";
/// The module with one object.
const MODULE: &str = "anchor";
/// A typical module with a workload, a CRD and a default custom resource.
const TYPICAL_MODULE: &str = "lantern";
/// Maximum number of concurrent writes to the hub.
const MAX_PARALLEL_WRITES: usize = 8;
/// Noise limit: the median with the large catalogue stays below this share of the tries without it.
const NOISE_QUANTILE: f64 = 0.9;

/// Measures `tries` Kymas with one module each, one after the other; then again with `objects` more objects in the
/// catalogue.
///
/// # Errors
/// The landscape does not start, or a Kyma does not become Ready.
pub async fn catalogue_size(objects: usize, tries: u32) -> Result<Outcome> {
    let landscape = Landscape::start(Options::default()).await?;
    let target = landscape.bare_target("target").await?;
    let hub = landscape.hub().client()?;
    let manifest = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MODULE, "namespace": "kyma-system"},
    });
    let config = json!({"manifest": "manifest.yaml"});
    catalogue::push_files(&landscape, MODULE, &config, &[("manifest.yaml", manifest.to_string())]).await?;
    catalogue::assign(hub.clone(), MODULE, "1.0.0").await?;
    let bare = KymaBench::new(&landscape, KYMA, target, MODULE).await?;
    // The first try is not measured: caches are empty.
    bare.measure(1).await?;
    let without = bare.measure(tries).await?;
    let usual = measure_typical_module(&landscape, tries).await?;
    publish(&hub, objects).await?;
    let with = bare.measure(tries).await?;
    landscape.stop().await?;
    let noise = quantile(&without, NOISE_QUANTILE);
    let rows = vec![
        Row::plain("1 module in the catalogue: p50", quantile(&without, 0.5), "ms"),
        Row::plain("1 module in the catalogue: p90", noise, "ms"),
        Row::at_most(format!("{objects} objects more: p50"), quantile(&with, 0.5), "ms", noise),
        Row::plain(format!("{objects} objects more: p90"), quantile(&with, 0.9), "ms"),
        Row::plain("a module with a kind of its own: p50", quantile(&usual, 0.5), "ms"),
        Row::plain("a module with a kind of its own: p90", quantile(&usual, 0.9), "ms"),
    ];
    Ok(Outcome::new("catalogue", &json!({"tries": tries, "objects": objects}), rows))
}

/// Measures Kymas with a typical module, on a target that runs workloads.
async fn measure_typical_module(landscape: &Landscape, tries: u32) -> Result<Vec<f64>> {
    catalogue::push(landscape, &catalogue::module_directory("lantern/1.0.0")).await?;
    catalogue::assign(landscape.hub().client()?, TYPICAL_MODULE, "1.0.0").await?;
    let target = landscape.fresh_target("usual").await?;
    let bench = KymaBench::new(landscape, "usual", target, TYPICAL_MODULE).await?;
    bench.measure(1).await?;
    bench.measure(tries).await
}

/// A target on which Kymas are created and deleted one by one.
struct KymaBench {
    hub: Client,
    name: &'static str,
    target: Cluster,
    module: &'static str,
}

impl KymaBench {
    async fn new(
        landscape: &Landscape,
        name: &'static str,
        target: Cluster,
        module: &'static str,
    ) -> Result<Self> {
        let hub = landscape.hub().client()?;
        let secret = landscape.access_secret(name, &target).await?;
        Api::namespaced(hub.clone(), HUB_NAMESPACE).create(&PostParams::default(), &secret).await?;
        Ok(Self { hub, name, target, module })
    }

    /// Returns the milliseconds from creating the Kyma with the module to Ready; deletes the Kyma afterwards.
    async fn measure(&self, tries: u32) -> Result<Vec<f64>> {
        let kymas: Api<Kyma> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        let kyma = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": self.name},
            "spec": {"channel": "regular", "modules": [{"name": self.module}]},
        }))?;
        let mut times = Vec::new();
        for _ in 0..tries {
            let start = Instant::now();
            let created = kymas.create(&PostParams::default(), &kyma).await?;
            wait::until("the Kyma is Ready", kymas.clone(), self.name, is_ready).await?;
            times.push(start.elapsed().as_secs_f64() * 1000.0);
            self.target.check()?;
            let uid = created.metadata.uid.context("a stored Kyma has a uid")?;
            kymas.delete(self.name, &DeleteParams::default()).await?;
            wait::until("the Kyma is gone", kymas.clone(), self.name, is_deleted(&uid)).await?;
        }
        Ok(times)
    }
}

fn is_ready(kyma: Option<&Kyma>) -> bool {
    let status = kyma.and_then(|kyma| kyma.status.as_ref());
    let modules = status.and_then(|status| status.modules.as_deref()).unwrap_or_default();
    status.is_some_and(|status| status.state == Some(State::Ready)) && !modules.is_empty()
}

/// Publishes ModuleTemplates and their ModuleReleaseMetas, each half of the objects.
async fn publish(hub: &Client, objects: usize) -> Result<()> {
    let modules = (0..objects / 2).map(|number| format!("module-{}", letters(number)));
    let publishing = modules.map(|module| publish_one(hub.clone(), module));
    stream::iter(publishing).buffer_unordered(MAX_PARALLEL_WRITES).try_collect().await
}

async fn publish_one(hub: Client, module: String) -> Result<()> {
    let template: ModuleTemplate = serde_json::from_value(template(&module))?;
    catalogue::publish(hub.clone(), template).await?;
    catalogue::assign(hub, &module, "1.0.0").await
}

/// Returns a template of typical size, some kilobytes.
fn template(module: &str) -> Value {
    let icons: Vec<Value> = (0..10)
        .map(|number| {
            let link = format!("https://example.com/{module}/{}.svg", "i".repeat(200));
            json!({"name": format!("icon-{number}"), "link": link})
        })
        .collect();
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {"name": format!("{module}-1.0.0")},
        "spec": {
            "moduleName": module, "version": "1.0.0", "descriptor": {},
            "info": {
                "repository": "https://example.com", "documentation": "https://example.com/docs", "icons": icons,
            },
        },
    })
}

/// Returns a number in letters: module names contain no digits.
fn letters(number: usize) -> String {
    let digit = |place: usize| char::from(b'a' + u8::try_from(number / place % 26).unwrap_or_default());
    [26 * 26, 26, 1].map(digit).iter().collect()
}

#[cfg(test)]
mod tests {
    use super::letters;

    #[test]
    fn numbers_have_names_of_their_own() {
        let names: std::collections::BTreeSet<String> = (0..1000).map(letters).collect();
        assert_eq!(names.len(), 1000);
        assert!(
            names
                .iter()
                .all(|name| name.chars().all(|letter| letter.is_ascii_lowercase()) && name.len() == 3)
        );
    }
}
