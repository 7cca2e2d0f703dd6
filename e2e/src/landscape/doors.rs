//! Proxies between operators and clusters.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use testbed::{Access, Cluster, Interceptor, Scripted};

/// A connection that may have a proxy.
#[derive(Clone, Copy, Debug)]
pub enum ProxiedConnection<'a> {
    /// From the operator of this name to the hub.
    ToHub(&'static str),
    /// From all operators to the target of this name.
    ToTarget(&'a str),
}

/// Returns the proxy of a connection, if there is one.
pub type Doors<'a> = &'a (dyn Fn(ProxiedConnection<'_>) -> Option<Arc<dyn Interceptor>> + Sync);

/// The proxies of one landscape.
#[derive(Default)]
pub(super) struct Standing {
    /// Proxies to the hub, by operator.
    to_hub: BTreeMap<&'static str, Scripted>,
    /// Proxies to targets, by target.
    to_targets: BTreeMap<String, Scripted>,
}

impl Standing {
    pub(super) async fn of(
        doors: Doors<'_>,
        operators: impl IntoIterator<Item = &'static str>,
        hub: &Cluster,
        targets: &[Cluster],
    ) -> Result<Self> {
        let mut standing = Self::default();
        for name in operators {
            if let Some(between) = doors(ProxiedConnection::ToHub(name)) {
                standing.to_hub.insert(name, Scripted::with(between, hub).await?);
            }
        }
        for target in targets {
            if let Some(between) = doors(ProxiedConnection::ToTarget(target.name())) {
                let door = Scripted::with(between, target).await?;
                standing.to_targets.insert(target.name().to_owned(), door);
            }
        }
        Ok(standing)
    }

    /// Returns the operator's own access to the hub.
    pub(super) fn to_hub(&self, operator: &str, access: Access) -> Access {
        through(self.to_hub.get(operator), access)
    }

    /// Returns the operators' access to a target.
    pub(super) fn to_target(&self, target: &Cluster, access: Access) -> Access {
        through(self.to_targets.get(target.name()), access)
    }
}

fn through(door: Option<&Scripted>, access: Access) -> Access {
    match door {
        Some(door) => door.access_of(&access),
        None => access,
    }
}
