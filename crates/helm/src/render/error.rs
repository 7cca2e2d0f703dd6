//! Errors of renders.

use std::time::Duration;

use kyma_api::{ErrorClass, Reason};
use thiserror::Error;

use crate::chart::ChartFault;

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
    /// [`RenderLimits::deadline`](super::RenderLimits::deadline) passed.
    #[error("the render took longer than {} s and was stopped", .after.as_secs_f32())]
    Timeout {
        /// The deadline.
        after: Duration,
    },
    /// Values or rendered text exceed [`RenderLimits`](super::RenderLimits).
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
