//! Assembles the facts that decide on hooks.

use kyma_api::HookPolicy;
use kyma_helm::hooks::{self, ReleaseHooks};

use super::due::HooksDue;
use super::release::release_hooks;
use crate::actions::rollback;
use crate::content::LoadedContent;
use crate::pass::Pass;
use crate::plan::Content;

/// Returns the hooks of the chart that are due.
pub(crate) fn observe(pass: &Pass<'_>, content: Content) -> HooksDue {
    if pass.context.resource.spec.hooks == HookPolicy::Skip {
        return HooksDue::default();
    }
    let loaded = pass.state.loaded.as_ref().filter(|_| content == Content::Loaded);
    let released =
        loaded.and_then(|loaded| loaded_release(pass, loaded)).filter(|release| !release.hooks.is_empty());
    HooksDue {
        before: released.and_then(hooks::before),
        release: released.is_some(),
        after: hooks::after(pass.state.recorded.hooks.release.as_ref()),
        stop_reason: pass.done.hooks.stop_reason.clone(),
        crds_applied: pass.done.hooks.crds_applied,
    }
}

/// Returns the hooks of loaded content, if it is a release that differs from the installed one.
pub(super) fn loaded_release<'a>(pass: &'a Pass<'_>, loaded: &'a LoadedContent) -> Option<ReleaseHooks<'a>> {
    release_hooks(&pass.state.recorded, loaded, rollback::active_target(pass).is_some())
}
