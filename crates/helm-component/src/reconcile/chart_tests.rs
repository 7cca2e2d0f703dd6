//! The step that runs a chart's tests, as `helm test` does.

use kyma_helm::hooks::{self, Event};
use kyma_sdk::Failure;

use super::Pass;
use crate::observe;

impl Pass<'_> {
    /// Runs the chart's tests that a user requested. Their result does not change the state of the release.
    pub(super) async fn run_tests(&mut self) {
        self.done.tests = Some(self.tests().await);
    }

    async fn tests(&mut self) -> Result<Option<String>, Failure> {
        let Some(request) = observe::hooks::test_request(self).map(str::to_owned) else { return Ok(None) };
        if self.state.loaded.as_ref().is_some_and(|loaded| loaded.tests_vary) {
            // Otherwise a new process would render other tests than these.
            self.state.loaded = None;
        }
        let loaded = self.desired_content().await?;
        let content = observe::hooks::content_of_tests(&loaded.source, &loaded.values, &request);
        let ended = if self.is_over(&content) {
            Ok(None)
        } else {
            self.hooks(Event::Test, &loaded.prepared, &content).await
        };
        if self.is_over(&content) {
            // Reported together with the result; until then, a new process continues the same request.
            self.state.recorded.tested = Some(request);
            return Ok(None);
        }
        ended
    }

    /// Reports whether the tests of this release and request have ended.
    fn is_over(&self, content: &str) -> bool {
        let record = self.state.recorded.tests.as_ref().filter(|record| record.digest == content);
        record.is_some() && !hooks::is_under_way(record)
    }
}
