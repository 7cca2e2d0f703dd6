//! Determines which hooks of the chart are due.

use kyma_api::{Digests, HookPolicy, annotations};
use kyma_helm::hooks::{self, ReleaseChange, ReleaseHooks};
use serde_json::json;

use super::rollback;
use crate::content::{self, LoadedContent};
use crate::pass::Pass;
use crate::plan::{Content, HooksDue};

/// Returns the hooks of the chart that are due.
pub(super) fn due(pass: &Pass<'_>, content: Content) -> HooksDue {
    let test = is_test_due(pass);
    if pass.context.resource.spec.hooks == HookPolicy::Skip {
        return HooksDue { test, ..HooksDue::default() };
    }
    let loaded = pass.state.loaded.as_ref().filter(|_| content == Content::Loaded);
    let released =
        loaded.and_then(|loaded| released(pass, loaded)).filter(|release| !release.hooks.is_empty());
    HooksDue {
        before: released.and_then(hooks::before),
        release: released.is_some(),
        after: hooks::after(pass.state.recorded.hooks.as_ref()),
        stop_reason: pass.done.hooks.clone(),
        crds_applied: pass.done.crds_applied,
        test,
    }
}

/// Returns the unhandled request for the chart's tests. It also counts if hooks are skipped, since it requests
/// exactly these.
pub(crate) fn test_request<'a>(pass: &'a Pass<'_>) -> Option<&'a str> {
    let annotations = pass.context.resource.metadata.annotations.as_ref();
    let request = annotations.and_then(|all| all.get(annotations::TEST_REQUESTED_AT)).map(String::as_str);
    let handled = pass.state.recorded.tested.as_deref();
    request.filter(|request| !request.is_empty() && handled != Some(*request))
}

/// Returns the digest that identifies a run of tests: equal in every process, different for each release and request.
pub(crate) fn content_of_tests(source: &str, values: &str, request: &str) -> String {
    content::digest(&[json!([source, values, request]).to_string().as_bytes()])
}

/// Reports whether the last tests ran for the installed release.
pub(crate) fn tests_are_of_this(pass: &Pass<'_>) -> bool {
    let recorded = &pass.state.recorded;
    let Digests { source, values, .. } = &recorded.digests;
    let (Some(source), Some(values), Some(request)) = (source, values, &recorded.tested) else {
        return false;
    };
    let content = content_of_tests(source, values, request);
    recorded.tests.as_ref().is_some_and(|record| record.digest == content)
}

fn is_test_due(pass: &Pass<'_>) -> bool {
    pass.done.tests.is_none() && test_request(pass).is_some()
}

/// Returns the hooks of loaded content if it is another release than the installed one, or a rollback target. A
/// correction of drift is no release, and neither is a change of the target's kinds alone.
pub(crate) fn released<'a>(pass: &'a Pass<'_>, loaded: &'a LoadedContent) -> Option<ReleaseHooks<'a>> {
    let recorded = &pass.state.recorded;
    let change = match recorded.digests.source {
        _ if rollback::active_target(pass).is_some() => ReleaseChange::Rollback,
        Some(_) => ReleaseChange::Upgrade,
        // Helm had installed a release before.
        None if recorded.adopted.as_ref().is_some_and(|adopted| adopted.revision.is_some()) => {
            ReleaseChange::Upgrade
        }
        None => ReleaseChange::Install,
    };
    let is_one = match change {
        ReleaseChange::Rollback => !recorded.is(loaded),
        ReleaseChange::Install | ReleaseChange::Upgrade => recorded.is_other_release(loaded),
    };
    let release = ReleaseHooks {
        hooks: &loaded.prepared.hooks,
        content: &loaded.release,
        change,
        record: recorded.hooks.as_ref(),
    };
    is_one.then_some(release)
}
