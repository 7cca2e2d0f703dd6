//! Which of the chart's hooks are due.

use kyma_api::{Digests, HookPolicy, annotations};
use serde_json::json;

use super::rollback;
use crate::content::{self, Loaded};
use crate::hooks::{self, Change, Due};
use crate::pass::Pass;
use crate::plan::{Content, HooksDue};

/// Which of the chart's hooks are due.
pub(super) fn due(pass: &Pass<'_>, content: Content) -> HooksDue {
    let test = is_test_due(pass);
    if pass.context.resource.spec.hooks == HookPolicy::Skip {
        return HooksDue { test, ..HooksDue::default() };
    }
    let loaded = pass.session.loaded.as_ref().filter(|_| content == Content::Loaded);
    let released = loaded.and_then(|loaded| released(pass, loaded)).filter(|due| !due.hooks.is_empty());
    HooksDue {
        before: released.and_then(hooks::before),
        release: released.is_some(),
        after: hooks::after(pass.session.recorded.hooks.as_ref()),
        rest: pass.done.hooks.clone(),
        crds_applied: pass.done.crds_applied,
        test,
    }
}

/// The request for the chart's tests that is to be followed: with hooks left out too, since it is one for just these.
pub(crate) fn test_request<'a>(pass: &'a Pass<'_>) -> Option<&'a str> {
    let annotations = pass.context.resource.metadata.annotations.as_ref();
    let request = annotations.and_then(|all| all.get(annotations::TEST_REQUESTED_AT)).map(String::as_str);
    let handled = pass.session.recorded.tested.as_deref();
    request.filter(|request| !request.is_empty() && handled != Some(*request))
}

/// Digest of what tests run for: the same in every process, and another for each release and each request.
pub(crate) fn content_of_tests(source: &str, values: &str, request: &str) -> String {
    content::digest(&[json!([source, values, request]).to_string().as_bytes()])
}

/// Whether the tests that ran last were of the release that is installed.
pub(crate) fn tests_are_of_this(pass: &Pass<'_>) -> bool {
    let recorded = &pass.session.recorded;
    let Digests { source, values, .. } = &recorded.digests;
    let (Some(source), Some(values), Some(request)) = (source, values, &recorded.tested) else {
        return false;
    };
    let content = content_of_tests(source, values, request);
    recorded.tests.as_ref().is_some_and(|record| record.content == content)
}

fn is_test_due(pass: &Pass<'_>) -> bool {
    pass.done.tests.is_none() && test_request(pass).is_some()
}

/// The content at hand where it is another release than the one that is installed, or the one that is gone back to; putting
/// right what somebody changed is none, nor is what only the target's kinds changed.
pub(crate) fn released<'a>(pass: &'a Pass<'_>, loaded: &'a Loaded) -> Option<Due<'a>> {
    let recorded = &pass.session.recorded;
    let change = match recorded.digests.source {
        _ if rollback::taken(pass).is_some() => Change::Rollback,
        Some(_) => Change::Upgrade,
        // A release of Helm was installed before.
        None if recorded.taken_over.as_ref().is_some_and(|taken| taken.revision.is_some()) => Change::Upgrade,
        None => Change::Install,
    };
    let is_one = match change {
        Change::Rollback => !recorded.is(loaded),
        Change::Install | Change::Upgrade => recorded.is_other_release(loaded),
    };
    let due = Due {
        hooks: &loaded.prepared.hooks,
        content: &loaded.release,
        change,
        record: recorded.hooks.as_ref(),
    };
    is_one.then_some(due)
}
