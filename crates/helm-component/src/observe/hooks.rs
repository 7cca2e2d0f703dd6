//! Which of the chart's hooks are due.

use kyma_api::HookPolicy;

use crate::content::Loaded;
use crate::hooks::{self, Due};
use crate::pass::Pass;
use crate::plan::{Content, HooksDue};

/// Which of the chart's hooks are due.
pub(super) fn due(pass: &Pass<'_>, content: Content) -> HooksDue {
    if pass.context.resource.spec.hooks == HookPolicy::Skip {
        return HooksDue::default();
    }
    let loaded = pass.session.loaded.as_ref().filter(|_| content == Content::Loaded);
    let released = loaded.and_then(|loaded| released(pass, loaded)).filter(|due| !due.hooks.is_empty());
    HooksDue {
        before: released.and_then(hooks::before),
        release: released.is_some(),
        after: hooks::after(pass.session.recorded.hooks.as_ref()),
        rest: pass.done.hooks.clone(),
        crds_applied: pass.done.crds_applied,
    }
}

/// The content at hand where it is another release than the one that is installed; putting right what somebody changed
/// is none, nor is what only the target's kinds changed.
pub(crate) fn released<'a>(pass: &'a Pass<'_>, loaded: &'a Loaded) -> Option<Due<'a>> {
    let recorded = &pass.session.recorded;
    let inputs = pass.inputs.as_ref().ok()?;
    let due = || Due {
        hooks: &loaded.prepared.hooks,
        content: &loaded.release,
        installed: recorded.digests.source.is_some()
            || recorded.taken_over.as_ref().is_some_and(|taken| taken.revision.is_some()),
        record: recorded.hooks.as_ref(),
    };
    recorded.is_other_release(loaded, &inputs.values_digest).then(due)
}
