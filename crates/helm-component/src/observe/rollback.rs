//! Whether what is wished is what the spec says, or what was Ready before it.

use jiff::Timestamp;
use kyma_api::{Digests, KeptRelease};

use crate::pass::Pass;
use crate::plan::{Content, Order, WayBack};
use crate::rollback::{self, is_wanted};

/// The release that is gone back to, while what the spec says is what failed.
pub(crate) fn taken<'a>(pass: &'a Pass<'_>) -> Option<&'a KeptRelease> {
    let failed = pass.session.recorded.rollback.as_ref().filter(|failed| !failed.retrying)?;
    let inputs = pass.inputs.as_ref().ok()?;
    let holds = is_wanted(&pass.context.resource.spec) && failed.inputs == inputs.digest;
    kept(pass).filter(|_| holds)
}

/// Digest of what the objects that are wished are made from.
pub(crate) fn wished<'a>(pass: &'a Pass<'_>) -> Option<&'a str> {
    let inputs = pass.inputs.as_ref().ok()?;
    Some(taken(pass).map_or(&*inputs.digest, |kept| &*kept.inputs))
}

/// Version of the module that is wished; of what is gone back to, its own.
pub(crate) fn module_version(pass: &Pass<'_>) -> Option<String> {
    let module = pass.context.resource.spec.module.as_ref()?;
    Some(taken(pass).map_or_else(|| module.version.clone(), |kept| kept.version.clone()))
}

/// Where to go where the release at hand fails.
pub(super) fn way_back(pass: &Pass<'_>, content: Content) -> WayBack {
    if pass.order == Order::Remove {
        return WayBack::None;
    }
    let recorded = &pass.session.recorded;
    if taken(pass).is_some() {
        let failed = recorded.rollback.as_ref();
        let is_due = failed.is_some_and(|failed| rollback::pause(failed, Timestamp::now()).is_none());
        let again = (is_due || pass.context.is_requested()) && !pass.retried;
        return if again { WayBack::Left } else { WayBack::Taken };
    }
    let loaded = pass.session.loaded.as_ref();
    let at_hand = match content {
        Content::Loaded => loaded.map(|loaded| (&*loaded.source, &*loaded.values)),
        Content::Recorded => recorded.digests.source.as_deref().zip(recorded.digests.values.as_deref()),
        Content::Stale => None,
    };
    let is_other =
        |kept: &KeptRelease| at_hand.is_some_and(|at_hand| at_hand != (&*kept.source, &*kept.values));
    let is_open = is_wanted(&pass.context.resource.spec) && kept(pass).is_some_and(is_other);
    if is_open { WayBack::Open } else { WayBack::None }
}

/// Whether what is installed is yet to be kept, or what is kept to be let go. Says nothing of whether it works.
pub(super) fn keep_due(pass: &Pass<'_>) -> bool {
    if pass.order == Order::Remove || pass.done.keep.is_some() || taken(pass).is_some() {
        return false;
    }
    let recorded = &pass.session.recorded;
    match &recorded.kept {
        kept if is_wanted(&pass.context.resource.spec) => {
            // What was taken over as it is never was as it is rendered.
            recorded.inventory.left_as_is().next().is_none()
                && !kept.as_ref().is_some_and(|kept| is_of(kept, &recorded.digests))
        }
        kept => kept.is_some(),
    }
}

/// Whether the kept release, or the one that could not be kept, is the one that is installed.
fn is_of(kept: &KeptRelease, digests: &Digests) -> bool {
    digests.inputs.as_ref() == Some(&kept.inputs) && digests.rendered.as_ref() == Some(&kept.rendered)
}

fn kept<'a>(pass: &'a Pass<'_>) -> Option<&'a KeptRelease> {
    pass.session.recorded.kept.as_ref().filter(|kept| kept.failure.is_none())
}
