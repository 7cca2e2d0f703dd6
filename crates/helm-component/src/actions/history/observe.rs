//! Determines whether Helm's record of the release must be written.

use kyma_api::{HelmComponentSpec, ReleaseRecord};

use super::due::HistoryDue;
use crate::content::Inputs;
use crate::pass::Pass;
use crate::plan::{Content, Operation};

/// Returns which records are missing for the loaded or the installed content.
pub(crate) fn observed(pass: &Pass<'_>, content: Content) -> HistoryDue {
    let spec = &pass.context.resource.spec;
    let (Ok(inputs), Operation::Install, Some(_), true) =
        (&pass.inputs, pass.operation, &spec.source.chart, is_enabled(spec))
    else {
        return HistoryDue::default();
    };
    let recorded = &pass.state.recorded;
    let Some(digest) = release(pass, inputs, content) else { return HistoryDue::default() };
    let same = recorded.release_record.as_ref().filter(|record| record.digest == digest);
    let is_applied = recorded.digests.inputs.as_ref() == Some(&inputs.digest);
    HistoryDue {
        deployed: is_applied && same.is_none_or(ReleaseRecord::has_failed),
        failed: !is_applied && same.is_none() && content == Content::Loaded && !pass.done.history.was_tried,
        failure: pass.done.history.failure.clone(),
    }
}

/// Returns the state of the record for the status; `None` if the spec requests no records.
pub(crate) fn reported_record<'a>(pass: &'a Pass<'_>) -> Option<&'a ReleaseRecord> {
    pass.state.recorded.release_record.as_ref().filter(|_| is_enabled(&pass.context.resource.spec))
}

/// Returns why the release could not be recorded as Helm does.
pub(crate) fn unrecorded(pass: &Pass<'_>) -> Option<String> {
    pass.state.recorded.release_record.as_ref().and_then(|record| record.message.clone())
}

/// Reports whether the spec requests Helm release records.
pub(super) fn is_enabled(spec: &HelmComponentSpec) -> bool {
    spec.release.as_ref().is_some_and(|release| release.history.is_some())
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
