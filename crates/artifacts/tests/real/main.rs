//! Tests with a real registry and real tools.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod charts;
mod components;
mod provenance;
mod ranges;
#[path = "../../src/trust/sample.rs"]
mod sample;
mod signatures;
mod way;

use kyma_artifacts::{Artifacts, Config, RegistryBase};
use testbed::{Registry, SharedTestEnv};

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

/// A registry of its own, and a client that may use plain HTTP for it.
pub(crate) struct Setup {
    pub(crate) registry: Registry,
    pub(crate) artifacts: Artifacts,
    pub(crate) directory: tempfile::TempDir,
}

impl Setup {
    pub(crate) async fn new() -> Self {
        let registry = TEST_ENV.test_env().await.unwrap().registry().await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let artifacts = client(&registry, &directory);
        Self { registry, artifacts, directory }
    }

    pub(crate) fn base(&self) -> RegistryBase {
        self.registry.address().parse().unwrap()
    }

    /// Returns another client with an empty cache.
    pub(crate) fn fresh(&self) -> (Artifacts, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        (client(&self.registry, &directory), directory)
    }
}

fn client(registry: &Registry, directory: &tempfile::TempDir) -> Artifacts {
    let mut config = Config::new(directory.path().join("cache"));
    config.insecure_hosts = vec![registry.address().to_owned()];
    Artifacts::open(&config).unwrap()
}
