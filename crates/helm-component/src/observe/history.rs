//! Determines whether Helm's record of the release must be written.

use kyma_api::ReleaseRecord;

use crate::content::Inputs;
use crate::pass::Pass;
use crate::plan::{Content, HistoryDue, Operation};

/// Returns which records are missing for the loaded or the installed content.
pub(super) fn due(pass: &Pass<'_>, content: Content) -> HistoryDue {
    let spec = &pass.context.resource.spec;
    let is_recorded = spec.release.as_ref().is_some_and(|release| release.history.is_some());
    let (Ok(inputs), Operation::Install, Some(_), true) =
        (&pass.inputs, pass.operation, &spec.source.chart, is_recorded)
    else {
        return HistoryDue::default();
    };
    let recorded = &pass.state.recorded;
    let Some(digest) = release(pass, inputs, content) else { return HistoryDue::default() };
    let same = recorded.release_record.as_ref().filter(|record| record.digest == digest);
    let is_applied = recorded.digests.inputs.as_ref() == Some(&inputs.digest);
    HistoryDue {
        deployed: is_applied && same.is_none_or(ReleaseRecord::has_failed),
        failed: !is_applied && same.is_none() && content == Content::Loaded && !pass.done.history_tried,
        failure: pass.done.history.clone(),
    }
}

/// Returns the digest of the release of this content.
fn release(pass: &Pass<'_>, inputs: &Inputs, content: Content) -> Option<String> {
    match content {
        Content::Loaded => pass.state.loaded.as_ref().map(|loaded| inputs.release_digest(&loaded.source)),
        Content::Recorded => {
            pass.state.recorded.digests.source.as_ref().map(|source| inputs.release_digest(source))
        }
        Content::Stale => None,
    }
}
