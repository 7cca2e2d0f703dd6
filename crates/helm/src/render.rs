//! Charts in, Kubernetes objects out, without a cluster and without trust in the chart.
//!
//! [`Renderer`] is the interface: currently the `helm` program in a sandbox ([`HelmProgram`]), later an engine of
//! this project. Only this module knows that a subprocess is involved.

mod cache;
#[cfg(fuzzing)]
pub mod fuzzing;
mod helm;
mod launcher;
mod message;
mod process;
mod tests_folder;

pub use cache::CachingRenderer;
pub use helm::{HelmProgram, HelmProgramError};
pub use launcher::run_if_launcher;
pub use tests_folder::tests_folder_has_only_tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kyma_api::{ErrorClass, Reason};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::chart::{Chart, ChartFault};

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
    /// Timeout instead of [`RenderLimits::deadline`]; does not change the result.
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

/// Inputs that a render read besides its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// The engine does not report it: the result is only valid for exactly the target that the request describes.
    Unknown,
}

/// A rendered chart.
#[derive(Clone)]
pub struct RenderOutput {
    /// YAML documents, hooks among them, in Helm's order: `crds/` first.
    pub manifest: Arc<str>,
    /// Inputs that the engine read besides the request.
    pub reads: Reads,
    /// Warnings for the author of the chart about objects that the engine left out.
    pub warnings: Vec<String>,
}

impl std::fmt::Debug for RenderOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = f.debug_struct("RenderOutput");
        text.field("bytes", &self.manifest.len()).field("reads", &self.reads);
        text.field("warnings", &self.warnings).finish()
    }
}

/// Bounds of one render.
#[derive(Debug, Clone, Copy)]
pub struct RenderLimits {
    /// Timeout, 10 s by default.
    pub deadline: Duration,
    /// Maximum size of the rendered text in bytes, 10 MiB by default.
    pub output: usize,
    /// Maximum address space in bytes, 4 GiB by default (the engine reserves far more than it uses).
    pub memory: u64,
    /// Maximum size of the values in bytes, 4 MiB by default.
    pub values: usize,
}

impl Default for RenderLimits {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10), output: 10 << 20, memory: 4 << 30, values: 4 << 20 }
    }
}

/// Turns a chart and its values into objects.
pub trait Renderer: Send + Sync {
    /// Renders a chart. Equal requests may give different texts if the chart's results vary.
    fn render<'a>(&'a self, request: &'a RenderRequest) -> BoxFuture<'a, Result<RenderOutput, RenderError>>;
}

/// Why a render failed. No variant contains a value, only locations and key paths.
#[derive(Debug, Clone, Error)]
pub enum RenderError {
    /// A template failed, or requires a value that is missing.
    #[error("the chart does not render: {summary}")]
    Template {
        /// File, line and message of the engine, without values.
        summary: String,
    },
    /// The values do not fit the chart's `values.schema.json`.
    #[error("the values do not fit the chart's schema: {}", violations.join("; "))]
    Schema {
        /// `key path: problem`, never the value.
        violations: Vec<String>,
    },
    /// The chart itself is invalid or refused.
    #[error(transparent)]
    Chart(#[from] ChartFault),
    /// [`RenderLimits::deadline`] passed.
    #[error("the render took longer than {} s and was stopped", .after.as_secs_f32())]
    Timeout {
        /// The deadline.
        after: Duration,
    },
    /// Values or rendered text exceed [`RenderLimits`].
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// The item that is too large.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The engine could not be run.
    #[error("helm could not be run: {detail}")]
    Engine {
        /// The operating system's error.
        detail: String,
    },
}

impl RenderError {
    /// Returns the class of the error, which decides on retries.
    pub fn class(&self) -> ErrorClass {
        self.reason().class().unwrap_or(ErrorClass::Invalid)
    }

    /// Returns the stable reason for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Schema { .. } => Reason::ValuesInvalid,
            Self::Template { .. } => Reason::RenderFailed,
            Self::Chart(_) => Reason::SourceInvalid,
            Self::Timeout { .. } => Reason::RenderTimeout,
            Self::TooLarge { .. } => Reason::RenderTooLarge,
            Self::Engine { .. } => Reason::RendererUnavailable,
        }
    }
}
