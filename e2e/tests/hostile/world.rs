//! Hub, operators, a healthy target and a hostile one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::catalogue;
use e2e::landscape::{HUB_NAMESPACE, Landscape, Options};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kyma_api::{Kyma, labels};
use serde_json::{Value, json};
use testbed::{Cluster, ScriptedServer, until_or_why};

/// Field manager of the tests' writes.
pub(crate) const FIELD_MANAGER: &str = "person";
/// Name of the module that all Kymas have.
pub(crate) const ANCHOR: &str = "anchor";
pub(crate) const CALM: &str = "calm";
pub(crate) const HOSTILE: &str = "hostile";
const DEADLINE: Duration = Duration::from_mins(2);

pub(crate) struct World {
    pub(crate) landscape: Landscape,
    pub(crate) hub: Client,
    pub(crate) calm: Cluster,
    /// The target of a Kyma that uses a hostile catalogue.
    pub(crate) shop: Cluster,
    /// The cluster behind the proxy of the hostile target.
    pub(crate) behind: Cluster,
    /// The hostile target: a proxy in front of `behind`.
    pub(crate) hostile: ScriptedServer,
    /// Kubeconfig of the hostile target.
    pub(crate) access: String,
    turns: AtomicUsize,
}

impl World {
    pub(crate) async fn start() -> Result<Self> {
        let landscape = Landscape::start(Options::default()).await?;
        let (calm, shop, behind) = tokio::try_join!(
            landscape.bare_target(CALM),
            landscape.bare_target("shop"),
            landscape.bare_target(HOSTILE)
        )?;
        let hostile = ScriptedServer::in_front_of(&behind).await?;
        let access = hostile.access_of(&landscape.access(&behind).await?).kubeconfig();
        let hub = landscape.hub().client()?;
        let world =
            Self { landscape, hub, calm, shop, behind, hostile, access, turns: AtomicUsize::default() };
        world.publish(ANCHOR, "1.0.0").await?;
        let way = world.landscape.access(&world.calm).await?.kubeconfig();
        world.grant(CALM, &way, 0).await?;
        world.grant(HOSTILE, &world.access, 0).await?;
        for name in [CALM, HOSTILE] {
            world.kymas().create(&PostParams::default(), &kyma(name, &json!([{"name": ANCHOR}]))?).await?;
        }
        for name in [CALM, HOSTILE] {
            world.is_ready(name).await?;
        }
        Ok(world)
    }

    /// Publishes a module of one ConfigMap in the channel `regular`.
    pub(crate) async fn publish(&self, module: &str, version: &str) -> Result<()> {
        self.publish_as(module, version, &json!({})).await
    }

    /// Publishes a module as [`Self::publish`], with these labels on its template.
    pub(crate) async fn publish_as(&self, module: &str, version: &str, labels: &Value) -> Result<()> {
        let manifest = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("{module}-content"), "namespace": "kyma-system"},
            "data": {"version": version},
        });
        let config = json!({"version": version, "manifest": "manifest.yaml", "labels": labels});
        let files = [("manifest.yaml", manifest.to_string())];
        catalogue::push_files(&self.landscape, module, &config, &files).await?;
        catalogue::assign(self.hub.clone(), module, version).await
    }

    /// Creates or changes the access Secret of a Kyma. Another `number` changes the Secret, so that everything is
    /// read again.
    pub(crate) async fn grant(&self, kyma: &str, kubeconfig: &str, number: usize) -> Result<()> {
        let name = format!("kubeconfig-{kyma}");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": name,
                "labels": {labels::KYMA_NAME: kyma},
                "annotations": {"example.com/turn": number.to_string()},
            },
            "stringData": {"config": kubeconfig},
        });
        let secrets: Api<Secret> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        secrets.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&secret)).await?;
        Ok(())
    }

    /// Returns a new number each time.
    pub(crate) fn next_number(&self) -> usize {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn kymas(&self) -> Api<Kyma> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }

    /// Waits until a Kyma, its catalogue and its first module are Ready.
    pub(crate) async fn is_ready(&self, name: &str) -> Result<()> {
        until_or_why(&format!("{name} is Ready"), DEADLINE, || async {
            let kyma = serde_json::to_value(self.kymas().get(name).await?)?;
            let conditions = &kyma["status"]["conditions"];
            let holds = |type_: &str| reason_of(conditions, type_).is_some_and(|(is, _)| is == "True");
            let runs = kyma["status"]["modules"][0]["state"] == "Ready";
            Ok(if holds("Ready") && holds("ModuleCatalog") && runs {
                Ok(())
            } else {
                Err(kyma["status"].to_string())
            })
        })
        .await
    }

    /// Waits until a condition of a Kyma is not True for one of these reasons, and returns the reason.
    pub(crate) async fn says(&self, name: &str, type_: &str, reasons: &[&str]) -> Result<String> {
        until_or_why(&format!("{type_} of {name} says {reasons:?}"), DEADLINE, || async {
            let kyma = serde_json::to_value(self.kymas().get(name).await?)?;
            let reason = reason_of(&kyma["status"]["conditions"], type_);
            let reason = reason.filter(|(is, reason)| is != "True" && reasons.contains(&reason.as_str()));
            Ok(reason.map(|(_, reason)| reason).ok_or_else(|| kyma["status"]["conditions"].to_string()))
        })
        .await
    }
}

/// Returns status and reason of a condition.
pub(crate) fn reason_of(conditions: &Value, type_: &str) -> Option<(String, String)> {
    let condition = conditions.as_array()?.iter().find(|condition| condition["type"] == type_)?;
    Some((condition["status"].as_str()?.to_owned(), condition["reason"].as_str()?.to_owned()))
}

/// Returns a Kyma that follows the channel `regular`.
pub(crate) fn kyma(name: &str, modules: &Value) -> Result<Kyma> {
    serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": name},
        "spec": {"channel": "regular", "modules": modules},
    }))
    .context("a Kyma")
}
