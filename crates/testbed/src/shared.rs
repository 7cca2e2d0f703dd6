//! One test environment for all tests of a test binary.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use tokio::sync::{Mutex, OnceCell};

use crate::builder::ClusterBuilder;
use crate::cluster::Cluster;
use crate::server::registry::Registry;
use crate::test_env::TestEnv;

/// A test environment that the first test starts and all others share. It ends with the process through the death
/// signal of its processes, since statics are never dropped.
///
/// ```no_run
/// use testbed::SharedTestEnv;
///
/// static TEST_ENV: SharedTestEnv = SharedTestEnv::new();
///
/// # async fn test() -> anyhow::Result<()> {
/// let target = TEST_ENV.cluster("target", |cluster| cluster.with_workloads()).await?;
/// let namespace = target.namespace("example").await?;
/// # Ok(())
/// # }
/// ```
pub struct SharedTestEnv {
    test_env: OnceCell<TestEnv>,
    registry: OnceCell<Registry>,
    clusters: Mutex<BTreeMap<String, Arc<OnceCell<Cluster>>>>,
}

impl SharedTestEnv {
    /// Returns a test environment that is not started yet.
    pub const fn new() -> Self {
        Self {
            test_env: OnceCell::const_new(),
            registry: OnceCell::const_new(),
            clusters: Mutex::const_new(BTreeMap::new()),
        }
    }

    /// Returns the test environment, which the first caller starts.
    ///
    /// # Errors
    /// As [`TestEnv::start`]; the next caller tries again.
    pub async fn test_env(&self) -> Result<&TestEnv> {
        self.test_env.get_or_try_init(TestEnv::start).await
    }

    /// Returns the cluster of this name, which the first caller starts with the options that `configure` adds.
    ///
    /// # Errors
    /// The cluster does not start; the next caller tries again.
    pub async fn cluster(
        &self,
        name: &str,
        configure: impl FnOnce(ClusterBuilder) -> ClusterBuilder,
    ) -> Result<Cluster> {
        let builder = configure(self.test_env().await?.cluster(name));
        let cell = Arc::clone(self.clusters.lock().await.entry(name.to_owned()).or_default());
        cell.get_or_try_init(|| builder.into_future()).await.cloned()
    }

    /// Returns the registry, which the first caller starts.
    ///
    /// # Errors
    /// The registry does not start; the next caller tries again.
    pub async fn registry(&self) -> Result<&Registry> {
        let test_env = self.test_env().await?;
        self.registry.get_or_try_init(|| test_env.registry()).await
    }
}

impl Default for SharedTestEnv {
    fn default() -> Self {
        Self::new()
    }
}
