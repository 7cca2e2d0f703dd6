//! Inputs of a render.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::chart::Chart;

/// One chart to render, with all inputs that determine the result.
#[derive(Clone)]
pub struct RenderRequest {
    /// The chart, within bounds and free of references to files or the network.
    pub chart: Arc<Chart>,
    /// `.Release.Name`: a DNS label of at most 53 characters (Helm's rule).
    pub release: String,
    /// `.Release.Namespace`.
    pub namespace: String,
    /// The merged values. Never part of a message or of `Debug`.
    pub values: Map<String, Value>,
    /// `.Capabilities.KubeVersion`, for example `v1.34.1`.
    pub kube_version: String,
    /// API versions that the target serves, for `.Capabilities.APIVersions`: `group/version` and
    /// `group/version/Kind`, sorted.
    pub api_versions: Arc<BTreeSet<String>>,
    /// `.Release.Revision`: 1 is an installation, any other number an upgrade. `None` if no text reads it.
    pub revision: Option<u32>,
    /// Whether the result includes the chart's `crds/`.
    pub crds: bool,
    /// Timeout instead of [`RenderLimits::deadline`](super::RenderLimits::deadline); does not change the result.
    pub deadline: Option<Duration>,
}

impl std::fmt::Debug for RenderRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RenderRequest")
            .field("chart", &self.chart)
            .field("release", &self.release)
            .field("namespace", &self.namespace)
            .field("kube_version", &self.kube_version)
            .finish_non_exhaustive()
    }
}

impl RenderRequest {
    /// Returns the hex SHA-256 of all inputs that can change the result, with the chart by its bytes: equal digests
    /// give equal results, except for varying ones. The version of Kubernetes and the kinds count if chart or values
    /// may read them.
    pub fn digest(&self) -> String {
        let (chart, values) = (&self.chart, &self.values);
        self.digest_with(chart.depends_on_kube_version(values), chart.depends_on_api_versions(values))
    }

    /// Returns the digest for a varying render that must stay: the version of Kubernetes and the kinds count only if
    /// chart or values name them. A new version must not cause new passwords only because the chart states the
    /// versions that it supports.
    pub fn lasting_digest(&self) -> String {
        let (chart, values) = (&self.chart, &self.values);
        self.digest_with(chart.names_kube_version(values), chart.names_api_versions(values))
    }

    fn digest_with(&self, version_counts: bool, kinds_count: bool) -> String {
        let version = if version_counts { &*self.kube_version } else { "" };
        let mut hash = Sha256::new();
        for part in [self.chart.digest(), &self.release, &self.namespace, version] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        // `serde_json::Map` is sorted by key, so equal values serialise alike.
        hash.update(serde_json::to_vec(&self.values).unwrap_or_default());
        hash.update([u8::from(self.crds)]);
        if let Some(revision) = self.revision {
            hash.update(revision.to_le_bytes());
        }
        for version in self.api_versions.iter().filter(|_| kinds_count) {
            hash.update(version);
            hash.update([0]);
        }
        hex::encode(hash.finalize())
    }
}
