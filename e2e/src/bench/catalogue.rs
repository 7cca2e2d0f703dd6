//! How long a new Kyma takes to be Ready: with a module that is one object, with a small catalogue and with a large one
//! that release-meta-syncer copies to the target at the same time; and with a module as they usually are.

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
/// The module that is one object.
const MODULE: &str = "anchor";
/// A module with a workload, a kind of its own and a default custom resource.
const USUAL: &str = "lantern";
/// Writes to the hub at a time.
const PARALLEL: usize = 8;
/// What is within noise: the median with the large catalogue stays below what this share of tries took without.
const NOISE: f64 = 0.9;

/// Measures `tries` Kymas with one module each, one after the other; then again with `objects` more objects in the
/// catalogue.
///
/// # Errors
/// The landscape does not come up, or a Kyma does not become Ready.
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
    let bare = Tried::on(&landscape, KYMA, target, MODULE).await?;
    // The first one finds caches empty.
    bare.measure(1).await?;
    let without = bare.measure(tries).await?;
    let usual = usual(&landscape, tries).await?;
    publish(&hub, objects).await?;
    let with = bare.measure(tries).await?;
    landscape.stop().await?;
    let noise = quantile(&without, NOISE);
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

/// Kymas with a usual module, on a target that runs workloads.
async fn usual(landscape: &Landscape, tries: u32) -> Result<Vec<f64>> {
    catalogue::push(landscape, &catalogue::module_directory("lantern/1.0.0")).await?;
    catalogue::assign(landscape.hub().client()?, USUAL, "1.0.0").await?;
    let target = landscape.fresh_target("usual").await?;
    let bench = Tried::on(landscape, "usual", target, USUAL).await?;
    bench.measure(1).await?;
    bench.measure(tries).await
}

/// A Kyma that comes and goes, one after the other on one target.
struct Tried {
    hub: Client,
    name: &'static str,
    target: Cluster,
    module: &'static str,
}

impl Tried {
    async fn on(
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

    /// From the creation of the Kyma with the module to its being Ready, in milliseconds; it is deleted again.
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

/// Half of them ModuleTemplates, half their ModuleReleaseMetas.
async fn publish(hub: &Client, objects: usize) -> Result<()> {
    let modules = (0..objects / 2).map(|number| format!("module-{}", letters(number)));
    let publishing = modules.map(|module| publish_one(hub.clone(), module));
    stream::iter(publishing).buffer_unordered(PARALLEL).try_collect().await
}

async fn publish_one(hub: Client, module: String) -> Result<()> {
    let template: ModuleTemplate = serde_json::from_value(template(&module))?;
    catalogue::publish(hub.clone(), template).await?;
    catalogue::assign(hub, &module, "1.0.0").await
}

/// As large as those of usual modules, some kilobytes.
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

/// A number in letters, since names of modules have no digits.
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
