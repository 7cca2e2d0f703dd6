//! Hostile, broken and absent sources.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod addresses;
mod artifacts;
mod cache;
mod challenges;
mod component;
mod content;
mod credentials;
mod hosts;
mod indexes;
mod realms;
mod recovery;
mod registries;
#[path = "../../src/trust/sample.rs"]
mod sample;
mod server;
mod signatures;
mod tags;
mod tls;

use kyma_artifacts::{ArtifactError, Artifacts, Config, Credentials, ModuleContent, RegistryBase};

use server::Server;

/// A client that may use plain HTTP for these servers, with its cache.
pub(crate) struct Client {
    pub(crate) artifacts: Artifacts,
    /// Directory of its cache.
    pub(crate) cache: tempfile::TempDir,
}

impl Client {
    pub(crate) fn new(servers: &[&Server]) -> Self {
        Self::with(servers, |_| {})
    }

    pub(crate) fn with(servers: &[&Server], adjust: impl FnOnce(&mut Config)) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let mut config = Config::new(cache.path());
        config.insecure_hosts = servers.iter().map(|server| server.address().to_owned()).collect();
        adjust(&mut config);
        Self { artifacts: Artifacts::open(&config).unwrap(), cache }
    }

    pub(crate) async fn component(
        &self,
        server: &Server,
        credentials: &Credentials,
    ) -> Result<ModuleContent, ArtifactError> {
        self.component_at(server.address(), credentials).await
    }

    pub(crate) async fn component_at(
        &self,
        address: &str,
        credentials: &Credentials,
    ) -> Result<ModuleContent, ArtifactError> {
        let base: RegistryBase = address.parse().unwrap();
        self.artifacts.component(&base, component::NAME, component::VERSION, credentials).await
    }
}
