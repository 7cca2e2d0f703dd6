//! Proxies between operators and clusters.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use testbed::{Access, Cluster, Interceptor, ScriptedServer};

/// A connection that may have a proxy.
#[derive(Clone, Copy, Debug)]
pub enum ProxiedConnection<'a> {
    /// From the operator of this name to the hub.
    ToHub(&'static str),
    /// From all operators to the target of this name.
    ToTarget(&'a str),
}

/// Returns the interceptor of a connection, or `None` for a direct one.
pub type Interceptors<'a> = &'a (dyn Fn(ProxiedConnection<'_>) -> Option<Arc<dyn Interceptor>> + Sync);

/// The proxies of one landscape.
#[derive(Default)]
pub(super) struct Proxies {
    /// Proxies to the hub, by operator.
    to_hub: BTreeMap<&'static str, ScriptedServer>,
    /// Proxies to targets, by target.
    to_targets: BTreeMap<String, ScriptedServer>,
}

impl Proxies {
    pub(super) async fn start(
        interceptors: Interceptors<'_>,
        operators: impl IntoIterator<Item = &'static str>,
        hub: &Cluster,
        targets: &[Cluster],
    ) -> Result<Self> {
        let mut proxies = Self::default();
        for name in operators {
            if let Some(interceptor) = interceptors(ProxiedConnection::ToHub(name)) {
                proxies.to_hub.insert(name, ScriptedServer::with(interceptor, hub).await?);
            }
        }
        for target in targets {
            if let Some(interceptor) = interceptors(ProxiedConnection::ToTarget(target.name())) {
                let proxy = ScriptedServer::with(interceptor, target).await?;
                proxies.to_targets.insert(target.name().to_owned(), proxy);
            }
        }
        Ok(proxies)
    }

    /// Returns the operator's own access to the hub.
    pub(super) fn to_hub(&self, operator: &str, access: Access) -> Access {
        access_through(self.to_hub.get(operator), access)
    }

    /// Returns the operators' access to a target.
    pub(super) fn to_target(&self, target: &Cluster, access: Access) -> Access {
        access_through(self.to_targets.get(target.name()), access)
    }
}

fn access_through(proxy: Option<&ScriptedServer>, access: Access) -> Access {
    match proxy {
        Some(proxy) => proxy.access_of(&access),
        None => access,
    }
}
