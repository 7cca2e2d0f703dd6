//! Image-pull Secret and admission policies, applied to a target before modules.

use kyma_sdk::{Failure, Halt, longest_delay};

use crate::admission;
use crate::observe::Observed;
use crate::pull_secret;
use crate::report::Told;
use crate::resolve::Resolved;
use crate::state::State;

/// Results of both; `None` if nothing is to be applied.
#[derive(Debug)]
pub(crate) struct Brought {
    pull_secret: Option<Result<(), Failure>>,
    resource_rules: Option<Result<(), Failure>>,
}

impl Brought {
    /// Applies both to the target.
    pub(crate) async fn bring(state: &State, observed: &Observed, decided: &[Resolved], halt: &Halt) -> Self {
        Self {
            pull_secret: pull_secret::sync(state, observed).await,
            resource_rules: admission::sync(state, observed, decided, halt).await,
        }
    }

    /// Returns the condition about the image-pull Secret.
    pub(crate) fn pull_secret(&self) -> Option<Told> {
        self.pull_secret.as_ref().map(Told::of_pull_secret)
    }

    /// Returns the condition about the rules of ModuleConfigs on modules' objects.
    pub(crate) fn resource_rules(&self) -> Option<Told> {
        self.resource_rules.as_ref().map(Told::of_resource_rules)
    }

    /// Returns a failure that is retried after a delay, if any. Others wait for an event of the hub or the target.
    pub(crate) fn may_pass(&self) -> Option<&Failure> {
        let failed = [&self.pull_secret, &self.resource_rules].into_iter().flatten();
        let passes = |failure: &&Failure| longest_delay(failure).is_some();
        failed.filter_map(|done| done.as_ref().err()).find(passes)
    }
}
