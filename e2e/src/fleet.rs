//! A small fleet for demo and benchmarks: two Kymas with three modules each.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use kyma_api::{Kyma, State, condition};
use serde_json::json;
use testbed::Cluster;

use crate::landscape::{HUB_NAMESPACE, Landscape};
use crate::{catalogue, wait};

/// Names of the Kymas, one for each target.
pub const KYMAS: [&str; 2] = ["harbour-town", "lake-village"];
/// Modules with the first version of their channel.
const MODULES: [(&str, &str); 3] = [("greeting", "1.0.0"), ("harbour", "2.0.0"), (LANTERN, "1.0.0")];
/// The module that is upgraded, edited and disabled.
pub const LANTERN: &str = "lantern";

/// The fleet in its landscape.
pub struct Fleet<'a> {
    landscape: &'a Landscape,
    hub: Client,
}

impl<'a> Fleet<'a> {
    /// Creates the fleet of this landscape.
    ///
    /// # Errors
    /// A client for the hub cannot be created.
    pub fn new(landscape: &'a Landscape) -> Result<Self> {
        Ok(Self { landscape, hub: landscape.hub().client()? })
    }

    /// Publishes the modules, creates the Kymas, and waits until all are Ready.
    ///
    /// # Errors
    /// A cluster or the registry refuses something, or the deadline passes.
    pub async fn install(&self) -> Result<()> {
        self.publish().await?;
        self.apply().await?;
        for name in KYMAS {
            self.until_installed(name).await?;
        }
        Ok(())
    }

    /// Pushes two modules, publishes a third one with its own component kind, and assigns versions to the channel
    /// `regular`.
    ///
    /// # Errors
    /// A cluster or the registry refuses something, or the deadline passes.
    pub async fn publish(&self) -> Result<()> {
        for directory in ["lantern/1.0.0", "lantern/1.1.0", "harbour"] {
            catalogue::push(self.landscape, &catalogue::module_directory(directory)).await?;
        }
        catalogue::publish_greeting(self.landscape).await?;
        for (module, version) in MODULES {
            catalogue::assign(self.hub.clone(), module, version).await?;
        }
        Ok(())
    }

    /// Creates access Secrets and Kymas.
    ///
    /// # Errors
    /// A cluster or the registry refuses something, or the deadline passes.
    pub async fn apply(&self) -> Result<()> {
        for (name, target) in KYMAS.iter().zip(self.landscape.targets()) {
            self.join(name, target).await?;
        }
        Ok(())
    }

    /// Creates the access Secret and the Kyma of one target.
    ///
    /// # Errors
    /// The target or the hub refuses it.
    pub async fn join(&self, name: &str, target: &Cluster) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        let secret = self.landscape.access_secret(name, target).await?;
        secrets.create(&PostParams::default(), &secret).await?;
        self.create(name).await
    }

    /// Creates a Kyma whose access Secret exists.
    ///
    /// # Errors
    /// The hub refuses it.
    pub async fn create(&self, name: &str) -> Result<()> {
        self.kymas().create(&PostParams::default(), &kyma(name)?).await?;
        Ok(())
    }

    /// Returns the API for the Kymas on the hub.
    pub fn kymas(&self) -> Api<Kyma> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }

    /// Waits until the Kyma is Ready with each module in the first version of the channel.
    ///
    /// # Errors
    /// The Kyma is not Ready within the deadline.
    pub async fn until_installed(&self, name: &str) -> Result<()> {
        self.until_installed_in(name, MODULES.into()).await
    }

    /// Waits until the Kyma is Ready with all modules, with lantern in this version.
    ///
    /// # Errors
    /// The Kyma is not Ready within the deadline.
    pub async fn until_lantern(&self, name: &str, version: &str) -> Result<()> {
        let mut wanted = BTreeMap::from(MODULES);
        wanted.insert(LANTERN, version);
        self.until_installed_in(name, wanted).await
    }

    async fn until_installed_in(&self, name: &str, wanted: BTreeMap<&str, &str>) -> Result<()> {
        let wanted: BTreeSet<_> =
            wanted.into_iter().map(|(module, version)| (module, version, State::Ready)).collect();
        let what = format!("{name} is Ready with all modules");
        wait::until(&what, self.kymas(), name, |kyma: Option<&Kyma>| {
            kyma.and_then(|kyma| kyma.status.as_ref()).is_some_and(|status| {
                let modules = status.modules.iter().flatten();
                let found = modules.map(|module| {
                    (module.name.as_str(), module.version.as_deref().unwrap_or_default(), module.state)
                });
                status.state == Some(State::Ready) && found.collect::<BTreeSet<_>>() == wanted
            })
        })
        .await?;
        Ok(())
    }

    /// Waits until the Kyma's condition Ready is not True for this reason, and returns the Kyma.
    ///
    /// # Errors
    /// The Kyma does not report it within the deadline.
    pub async fn until_reason(&self, name: &str, reason: &str) -> Result<Kyma> {
        let what = format!("{name} says {reason}");
        let waiting = wait::until(&what, self.kymas(), name, |kyma: Option<&Kyma>| {
            let conditions = kyma.and_then(|kyma| kyma.status.as_ref()?.conditions.as_deref());
            let ready = condition::get(conditions.unwrap_or_default(), condition::types::READY);
            ready.is_some_and(|ready| ready.status != "True" && ready.reason == reason)
        });
        waiting.await?.context("a Kyma with a condition exists")
    }

    /// Waits until the Kyma has this state and at least one module, and returns it.
    ///
    /// # Errors
    /// The Kyma does not have the state within the deadline.
    pub async fn until_state(&self, name: &str, state: State) -> Result<Kyma> {
        let what = format!("{name} is {state}");
        let reached = wait::until(&what, self.kymas(), name, |kyma: Option<&Kyma>| {
            kyma.and_then(|kyma| kyma.status.as_ref()).is_some_and(|status| {
                status.state == Some(state) && !status.modules.as_deref().unwrap_or_default().is_empty()
            })
        });
        reached.await?.context("a Kyma with a state exists")
    }
}

/// Returns a Kyma with all three modules.
///
/// # Errors
/// Never: the object is a valid Kyma.
pub fn kyma(name: &str) -> Result<Kyma> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2",
        "kind": "Kyma",
        "metadata": {"name": name},
        "spec": {
            "channel": "regular",
            "modules": [
                {"name": LANTERN},
                {"name": "harbour", "values": {"replicas": 3, "greeting": format!("Welcome to {name}")}},
                {"name": "greeting"},
            ],
        },
    }))?)
}
