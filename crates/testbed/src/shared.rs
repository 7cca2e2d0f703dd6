//! One bed for all tests of a test binary.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use tokio::sync::{Mutex, OnceCell};

use crate::bed::Bed;
use crate::builder::ClusterBuilder;
use crate::cluster::Cluster;
use crate::registry::Registry;

/// A bed that the first test starts and all others share. It ends with the process through the death signal of its
/// processes, since statics are never dropped.
///
/// ```no_run
/// use testbed::SharedBed;
///
/// static BED: SharedBed = SharedBed::new();
///
/// # async fn test() -> anyhow::Result<()> {
/// let target = BED.cluster("target", |cluster| cluster.with_workloads()).await?;
/// let namespace = target.namespace("story").await?;
/// # Ok(())
/// # }
/// ```
pub struct SharedBed {
    bed: OnceCell<Bed>,
    registry: OnceCell<Registry>,
    clusters: Mutex<BTreeMap<String, Arc<OnceCell<Cluster>>>>,
}

impl SharedBed {
    /// Returns a bed that is not started yet.
    pub const fn new() -> Self {
        Self {
            bed: OnceCell::const_new(),
            registry: OnceCell::const_new(),
            clusters: Mutex::const_new(BTreeMap::new()),
        }
    }

    /// Returns the bed, which the first caller starts.
    ///
    /// # Errors
    /// As [`Bed::start`]; the next caller tries again.
    pub async fn bed(&self) -> Result<&Bed> {
        self.bed.get_or_try_init(Bed::start).await
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
        let builder = configure(self.bed().await?.cluster(name));
        let cell = Arc::clone(self.clusters.lock().await.entry(name.to_owned()).or_default());
        cell.get_or_try_init(|| builder.into_future()).await.cloned()
    }

    /// Returns the registry, which the first caller starts.
    ///
    /// # Errors
    /// The registry does not start; the next caller tries again.
    pub async fn registry(&self) -> Result<&Registry> {
        let bed = self.bed().await?;
        self.registry.get_or_try_init(|| bed.registry()).await
    }
}

impl Default for SharedBed {
    fn default() -> Self {
        Self::new()
    }
}
