//! Tests of a chart, which run on request as with `helm test`. Their result does not change the state of the release.

mod conditions;
mod due;
pub(crate) mod renders;

use std::time::Duration;

use kyma_api::condition::Condition;
use kyma_controller::Failure;
use kyma_helm::hooks::Event;

use crate::actions::hooks;
use crate::actions::hooks::state::Outcome;
use crate::pass::Pass;

use conditions::TestState;

/// Time until a retry after the tests could not run.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Reports whether a request for the chart's tests is not handled yet.
pub(crate) fn is_requested(pass: &Pass<'_>) -> bool {
    request(pass).is_some()
}

/// Reports whether the chart's tests are due in this pass.
pub(crate) fn is_due(pass: &Pass<'_>) -> bool {
    due::due(request(pass), pass.done.tests.is_some())
}

/// Returns the time until requested tests that could not run are tried again.
pub(crate) fn retry_pause(pass: &Pass<'_>) -> Option<Duration> {
    let failed = matches!(pass.done.tests, Some(Err(_)));
    (failed && is_requested(pass)).then_some(RETRY_PAUSE)
}

/// Returns the condition of the last requested tests; `None` if none were ever requested.
pub(crate) fn condition(pass: &Pass<'_>) -> Option<Condition> {
    let recorded = &pass.state.recorded;
    conditions::test_success(&TestState {
        is_requested: is_requested(pass),
        outcome: pass.done.tests.as_ref(),
        record: recorded.hooks.tests.as_ref(),
        is_of_release: due::are_of_release(&recorded.hooks, &recorded.digests),
    })
}

/// Runs the chart's tests that a user requested, as far as possible without waiting.
pub(crate) async fn run_requested(pass: &mut Pass<'_>) {
    pass.done.tests = Some(run(pass).await);
}

/// Counts the tests as run, in a dry run.
pub(crate) fn count_as_run(pass: &mut Pass<'_>) {
    pass.done.tests = Some(Ok(Outcome::Completed));
}

async fn run(pass: &mut Pass<'_>) -> Result<Outcome, Failure> {
    let Some(request) = request(pass).map(str::to_owned) else { return Ok(Outcome::Completed) };
    if pass.state.loaded.as_ref().is_some_and(|loaded| loaded.tests_vary) {
        // Otherwise a new process would render other tests than these.
        pass.state.loaded = None;
    }
    let loaded = pass.desired_content().await?;
    let digest = due::digest(&loaded.source, &loaded.values, &request);
    let outcome = if due::is_over(&pass.state.recorded.hooks, &digest) {
        Ok(Outcome::Completed)
    } else {
        hooks::run(pass, Event::Test, &loaded.prepared.hooks, &digest).await
    };
    if due::is_over(&pass.state.recorded.hooks, &digest) {
        // Reported together with the result; until then, a new process continues the same request.
        pass.state.recorded.hooks.handled_test_request = Some(request);
        return Ok(Outcome::Completed);
    }
    outcome
}

fn request<'a>(pass: &'a Pass<'_>) -> Option<&'a str> {
    due::request(&pass.context.resource, &pass.state.recorded.hooks)
}
