//! State of objects that were taken over from another system.

use kyma_api::{Adopt, DriftMode, HelmComponentSpec};
use kyma_object_set::ForeignObjectPolicy;

use crate::content::Inputs;
use crate::pass::Pass;
use crate::plan::{Content, Operation};

/// Reports whether Helm's record must still be searched: before any object of a chart is on the target.
pub(super) fn needs_search(pass: &Pass<'_>, content: Content) -> bool {
    let recorded = &pass.state.recorded;
    let is_chart = pass.state.loaded.as_ref().is_some_and(|loaded| !loaded.raw);
    is_chart
        && content == Content::Loaded
        && pass.operation == Operation::Install
        && !pass.done.helm_release_read
        && pass.context.resource.spec.adopt != Adopt::Never
        && recorded.inventory.is_empty()
        && recorded.digests.inputs.is_none()
        && recorded.adopted.is_none()
}

/// Reports whether objects that were taken over stay as they were found, unless the spec says otherwise.
pub(crate) fn is_as_found(pass: &Pass<'_>) -> bool {
    pass.inputs.as_ref().is_ok_and(|inputs| pass.state.recorded.is_as_adopted(&inputs.requested_digest))
}

/// Returns the objects that were taken over unchanged and differ from the content.
pub(super) fn as_found(pass: &Pass<'_>) -> Option<Vec<String>> {
    let differ = || pass.state.recorded.inventory.left_as_is().map(ToString::to_string).collect();
    is_as_found(pass).then(differ)
}

/// Returns the drift mode that the spec sets.
pub(super) fn requested_mode(spec: &HelmComponentSpec) -> Option<DriftMode> {
    spec.drift.as_ref().and_then(|drift| drift.mode)
}

/// Reports whether the user requested to correct objects that were left as they were found.
pub(super) fn needs_correction(pass: &Pass<'_>) -> bool {
    requested_mode(&pass.context.resource.spec) == Some(DriftMode::Correct)
        && is_as_found(pass)
        && pass.state.recorded.digests.inputs.is_some()
}

/// Returns how objects of another system are treated. A module's objects are applied as its author wrote them: its
/// users did not install them, and the previous system corrected them too.
pub(crate) fn foreign(pass: &Pass<'_>) -> ForeignObjectPolicy {
    let is_modules = pass.inputs.as_ref().is_ok_and(Inputs::are_a_kymas);
    if is_modules || requested_mode(&pass.context.resource.spec) == Some(DriftMode::Correct) {
        return ForeignObjectPolicy::Apply;
    }
    let recorded = &pass.state.recorded;
    match &recorded.adopted {
        Some(_) if is_as_found(pass) => ForeignObjectPolicy::KeepContent,
        // No content was ever completely applied.
        None if recorded.digests.source.is_none() => ForeignObjectPolicy::Report,
        Some(_) | None => ForeignObjectPolicy::Apply,
    }
}
