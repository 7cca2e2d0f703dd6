//! Faults of charts.

use kyma_artifacts::ArtifactError;
use thiserror::Error;

/// Why a chart is refused.
#[derive(Debug, Clone, Error)]
pub enum ChartFault {
    /// The archive is unreadable or exceeds a limit.
    #[error("the chart cannot be read: {0}")]
    Unreadable(ArtifactError),
    /// The chart could not be packed again.
    #[error("the chart cannot be packed: {detail}")]
    Unpackable {
        /// Error of the packer.
        detail: String,
    },
    /// Charts are nested too deeply.
    #[error("the chart is refused: charts are nested too deeply")]
    TooDeep,
    /// There is no usable `Chart.yaml`.
    #[error("the archive is not a chart: {what}")]
    NotAChart {
        /// Description of the problem.
        what: &'static str,
    },
    /// A library chart, or one for a newer Helm.
    #[error("the chart cannot be installed: {what}")]
    NotInstallable {
        /// The reason.
        what: &'static str,
    },
    /// A `values.schema.json` cannot be read here: the engine might read it, and follow its references.
    #[error("{file} is not JSON")]
    SchemaUnreadable {
        /// The schema's path in the chart.
        file: String,
    },
    /// A `values.schema.json` refers to another document.
    #[error("{file} refers to `{target}`; only references within the document are followed")]
    RemoteReference {
        /// The schema's path in the chart.
        file: String,
        /// The reference, cut to 200 characters.
        target: String,
    },
}
