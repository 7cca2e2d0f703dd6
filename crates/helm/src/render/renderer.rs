//! The interface of an engine, its result and its bounds.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::error::RenderError;
use super::request::RenderRequest;

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
