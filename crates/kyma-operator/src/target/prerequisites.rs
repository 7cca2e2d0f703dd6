//! Image-pull Secret and admission policies, applied to a target before modules.

use kyma_api::condition::Condition;
use kyma_controller::{Failure, PausedOperations, longest_delay};

use crate::decision::resolve::ResolvedModule;
use crate::observe::Observation;
use crate::report::prerequisites;
use crate::state::State;
use crate::target::admission;
use crate::target::pull_secret;

/// Results of applying the image-pull Secret and the policies; `None` if there is nothing to apply.
#[derive(Debug)]
pub(crate) struct Prerequisites {
    pull_secret: Option<Result<(), Failure>>,
    resource_rules: Option<Result<(), Failure>>,
}

impl Prerequisites {
    /// Applies Secret and policies to the target.
    pub(crate) async fn apply(
        state: &State,
        observed: &Observation,
        decided: &[ResolvedModule],
        paused_operations: &PausedOperations,
    ) -> Self {
        Self {
            pull_secret: pull_secret::sync(state, observed).await,
            resource_rules: admission::sync(state, observed, decided, paused_operations).await,
        }
    }

    /// Returns the condition about the image-pull Secret.
    pub(crate) fn pull_secret(&self) -> Option<Condition> {
        self.pull_secret.as_ref().map(prerequisites::pull_secret)
    }

    /// Returns the condition about the rules of ModuleConfigs on modules' objects.
    pub(crate) fn resource_rules(&self) -> Option<Condition> {
        self.resource_rules.as_ref().map(prerequisites::resource_rules)
    }

    /// Reports whether the target accepted or refused the rules of ModuleConfigs. Without rules no answer is needed.
    pub(crate) fn has_answer_about_rules(&self) -> bool {
        self.resource_rules
            .as_ref()
            .and_then(|result| result.as_ref().err())
            .is_none_or(admission::is_refusal)
    }

    /// Returns a failure that is retried after a delay, if any. Others wait for an event of the hub or the target.
    pub(crate) fn retryable_failure(&self) -> Option<&Failure> {
        let results = [&self.pull_secret, &self.resource_rules].into_iter().flatten();
        let is_retried = |failure: &&Failure| longest_delay(failure).is_some();
        results.filter_map(|result| result.as_ref().err()).find(is_retried)
    }
}

#[cfg(test)]
mod tests {
    use kyma_api::Reason;

    use super::*;

    #[test]
    fn a_target_that_does_not_answer_about_rules_leaves_them_open() {
        let failed = |reason| Some(Err(Failure::new(reason, "")));
        for (resource_rules, expected) in [
            (None, true),
            (Some(Ok(())), true),
            (failed(Reason::ApplyRefused), true),
            (failed(Reason::TargetForbidden), true),
            (failed(Reason::TargetTimeout), false),
            (failed(Reason::StampMismatch), false),
        ] {
            // The image-pull Secret has no effect on rules.
            let prerequisites = Prerequisites { pull_secret: failed(Reason::TargetTimeout), resource_rules };
            assert_eq!(prerequisites.has_answer_about_rules(), expected, "{prerequisites:?}");
        }
    }
}
