//! Determines the desired release: that of the spec, or the one that was Ready before.

use jiff::Timestamp;
use kyma_api::{Digests, RollbackTarget};

use super::failed_revision::{time_until_retry, version};
use super::record::is_enabled;
use super::state::{ObservedRollback, RollbackState};
use crate::pass::Pass;
use crate::plan::{Content, Operation};

/// Returns the rollback target, while the spec still has the release that failed.
pub(crate) fn active_target<'a>(pass: &'a Pass<'_>) -> Option<&'a RollbackTarget> {
    let inputs = pass.inputs.as_ref().ok()?;
    pass.state.recorded.rollback.active_target(&pass.context.resource.spec, &inputs.digest)
}

/// Returns the digest of the inputs of the desired objects.
pub(crate) fn desired_inputs<'a>(pass: &'a Pass<'_>) -> Option<&'a str> {
    let inputs = pass.inputs.as_ref().ok()?;
    active_target(pass).map_or(Some(&*inputs.digest), |target| target.digests.inputs.as_deref())
}

/// Returns the desired version of the module; for a rollback, that of its target.
pub(crate) fn module_version(pass: &Pass<'_>) -> Option<String> {
    let module = pass.context.resource.spec.module.as_ref()?;
    Some(active_target(pass).map_or_else(|| module.version.clone(), |target| target.version.clone()))
}

/// Forgets the revision that failed, if the component no longer requests it.
pub(crate) fn drop_obsolete_failure(pass: &mut Pass<'_>) {
    let Ok(inputs) = &pass.inputs else { return };
    if pass.state.recorded.rollback.is_obsolete(&pass.context.resource.spec, &inputs.digest) {
        pass.state.recorded.rollback.failed = None;
        pass.state.loaded = None;
    }
}

/// Returns the observed state of a rollback.
pub(crate) fn observed(pass: &Pass<'_>, content: Content) -> ObservedRollback {
    ObservedRollback { state: state(pass, content), is_store_due: is_store_due(pass) }
}

fn state(pass: &Pass<'_>, content: Content) -> RollbackState {
    if pass.operation == Operation::Remove {
        return RollbackState::None;
    }
    let recorded = &pass.state.recorded;
    if active_target(pass).is_some() {
        let failed = recorded.rollback.failed.as_ref();
        let is_due = failed.is_some_and(|failed| time_until_retry(failed, Timestamp::now()).is_none());
        let again = (is_due || pass.context.is_requested()) && !pass.rollback.is_retried;
        return if again { RollbackState::RetryDue } else { RollbackState::Active };
    }
    let loaded = pass.state.loaded.as_ref();
    let current = match content {
        Content::Loaded => loaded.map(|loaded| (&*loaded.source, &*loaded.values)),
        Content::Recorded => recorded.digests.source.as_deref().zip(recorded.digests.values.as_deref()),
        Content::Stale => None,
    };
    let is_other = |target: &RollbackTarget| {
        let Digests { source, values, .. } = &target.digests;
        current.is_some() && current != source.as_deref().zip(values.as_deref())
    };
    let is_available =
        is_enabled(&pass.context.resource.spec) && recorded.rollback.stored_target().is_some_and(is_other);
    if is_available { RollbackState::Available } else { RollbackState::None }
}

/// Reports whether the installed release must be stored, or the stored one discarded. Independent of its health.
fn is_store_due(pass: &Pass<'_>) -> bool {
    if pass.operation == Operation::Remove || pass.rollback.stored.is_some() || active_target(pass).is_some()
    {
        return false;
    }
    let recorded = &pass.state.recorded;
    match &recorded.rollback.target {
        target if is_enabled(&pass.context.resource.spec) => {
            // Objects that were taken over unchanged differ from the render.
            recorded.inventory.left_as_is().next().is_none()
                && !target.as_ref().is_some_and(|target| is_of(target, &recorded.digests))
        }
        target => target.is_some(),
    }
}

/// Reports whether the rollback target, or the release that could not be stored, is the installed one.
fn is_of(target: &RollbackTarget, digests: &Digests) -> bool {
    let is_known = digests.inputs.is_some() && digests.objects.is_some();
    is_known && target.digests.inputs == digests.inputs && target.digests.objects == digests.objects
}

/// Returns the version of the content with this digest, for messages.
pub(super) fn version_of(pass: &Pass<'_>, digest: &str) -> String {
    let spec = &pass.context.resource.spec;
    let source = pass.inputs.as_ref().map_or(&spec.source, |inputs| &inputs.source);
    version(spec, source, digest)
}
