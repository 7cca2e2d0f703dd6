//! Progress of the release record in one pass. Pure.

use kyma_controller::Failure;

/// Progress of the release record in one pass.
#[derive(Debug, Default)]
pub(crate) struct HistoryProgress {
    /// Why the release could not be recorded.
    pub(super) failure: Option<Failure>,
    /// Whether the release was to be recorded in this pass.
    pub(super) was_tried: bool,
}
