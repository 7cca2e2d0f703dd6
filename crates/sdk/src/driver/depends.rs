//! Reports dependencies on other components in conditions.

use kube::Resource;
use kyma_api::{
    Reason,
    condition::{self, Condition, Status},
};
use kyma_controller::Failure;

use super::outcome::{Outcome, failure_condition};
use super::state::Driver;
use crate::component::{Component, Progress, Removal};
use crate::contract::Contract;
use crate::dependencies::{DeletionBlockers, DependencyEffect, is_stale};
use crate::status::Report;

const DEPENDENCIES_READY: &str = condition::types::DEPENDENCIES_READY;

/// Effect of dependencies on one reconcile, and the condition that was reported before.
pub(super) struct Dependence {
    effect: DependencyEffect,
    is_stale: bool,
}

impl<C: Component> Driver<C> {
    /// Evaluates the dependencies of a component.
    pub(super) async fn depends(
        &self,
        resource: &C::Resource,
        contract: &Contract,
    ) -> Result<Dependence, Failure> {
        let depends = contract.spec.depends_on.iter().any(|one| one.api.is_none());
        let is_old = contract.status.observed_generation != resource.meta().generation;
        if !depends && !is_old && !is_stale(&contract.status.conditions) {
            return Ok(Dependence { effect: DependencyEffect::None, is_stale: false });
        }
        let mut status = self.status.current(resource)?;
        let conditions = status.remove("conditions").unwrap_or_default();
        let conditions: Vec<_> = serde_json::from_value(conditions).unwrap_or_default();
        let effect = self.dependencies.effect(resource, contract, &conditions).await?;
        Ok(Dependence { effect, is_stale: is_stale(&conditions) })
    }

    /// Returns the reason for a removal to wait for dependents of this component: removals run in reverse order of
    /// installations.
    pub(super) fn wait_for_dependents(&self, resource: &C::Resource) -> Result<Option<Removal>, Failure> {
        match self.dependencies.deletion_blockers(resource) {
            Err(listing) => Ok(Some(Removal::waiting(listing))),
            Ok(Some(DeletionBlockers::Going(names))) => Ok(Some(Removal::waiting(names))),
            Ok(Some(DeletionBlockers::Staying(names))) => Err(Failure::new(Reason::DeletionBlocked, names)),
            Ok(None) => Ok(None),
        }
    }
}

impl Dependence {
    /// Returns the outcome of a reconcile that must not install or change anything.
    pub(super) fn blocked_outcome(&self) -> Option<Outcome> {
        match &self.effect {
            DependencyEffect::Blocked { failure, state } => {
                let conditions = vec![
                    failure_condition(condition::types::READY, failure),
                    failure_condition(DEPENDENCIES_READY, failure),
                ];
                let report = Report { state: Some(*state), conditions, ..Report::default() };
                Some(Outcome { report, result: Err(failure.clone()) })
            }
            DependencyEffect::None
            | DependencyEffect::Ready
            | DependencyEffect::Lost(_)
            | DependencyEffect::Unknown { .. } => None,
        }
    }

    /// Reports whether the lists of dependencies are incomplete and the component's spec was not released before.
    pub(super) fn is_awaited(&self) -> bool {
        self.effect == DependencyEffect::Unknown { passed: false }
    }

    /// Adds the state of dependencies to the conditions of a step; conditions about API kinds stay.
    pub(super) fn add_to(&self, mut progress: Progress) -> Progress {
        let own = progress.conditions.iter().position(|one| one.type_ == DEPENDENCIES_READY);
        match (&self.effect, own) {
            (DependencyEffect::Lost(names), own) => {
                let own = own.map(|own| progress.conditions.remove(own)).map(|own| own.message);
                let messages: Vec<String> =
                    std::iter::once(names.clone()).chain(own.filter(|message| !message.is_empty())).collect();
                let lost = Condition::new(DEPENDENCIES_READY, Status::False, Reason::DependencyLost);
                progress.with_condition(lost.with_message(messages.join("; ")))
            }
            (DependencyEffect::Ready, None) => ready(progress),
            (DependencyEffect::None, None) if self.is_stale => ready(progress),
            // The previous condition stays until the state is known.
            (DependencyEffect::Unknown { .. }, Some(own)) if self.is_stale => {
                progress.conditions.remove(own);
                progress
            }
            _ => progress,
        }
    }
}

fn ready(progress: Progress) -> Progress {
    progress.with_condition(Condition::new(DEPENDENCIES_READY, Status::True, Reason::Succeeded))
}

#[cfg(test)]
mod tests {
    use kyma_api::State;

    use super::*;

    fn conditions_after(
        effect: DependencyEffect,
        is_stale: bool,
        progress: Progress,
    ) -> Vec<(Status, Reason, String)> {
        let told = Dependence { effect, is_stale }.add_to(progress);
        let all = told.conditions.into_iter().filter(|one| one.type_ == DEPENDENCIES_READY);
        all.map(|one| (one.status, one.reason, one.message)).collect()
    }

    #[test]
    fn a_lost_dependency_is_told_beside_missing_kinds_and_heals() {
        let kinds = || {
            let missing = Condition::new(DEPENDENCIES_READY, Status::False, Reason::DependencyMissing);
            Progress::ready("1").with_condition(missing.with_message("kind K"))
        };
        let lost = || DependencyEffect::Lost("a is not Ready".to_owned());
        let expected = (Status::False, Reason::DependencyLost, "a is not Ready; kind K".to_owned());
        assert_eq!(conditions_after(lost(), false, kinds()), [expected]);
        assert_eq!(conditions_after(lost(), false, Progress::ready("1"))[0].2, "a is not Ready");
        assert_eq!(conditions_after(DependencyEffect::Ready, true, kinds())[0].1, Reason::DependencyMissing);
        let ready = (Status::True, Reason::Succeeded, String::new());
        assert_eq!(
            conditions_after(DependencyEffect::Ready, true, Progress::ready("1")),
            std::slice::from_ref(&ready)
        );
        assert_eq!(
            conditions_after(DependencyEffect::None, true, Progress::ready("1")),
            [ready],
            "none is named any more"
        );
        assert_eq!(conditions_after(DependencyEffect::None, false, Progress::ready("1")), []);
    }

    #[test]
    fn what_was_told_stays_until_more_is_known() {
        let unknown = || DependencyEffect::Unknown { passed: true };
        let own = || ready(Progress::ready("1"));
        assert_eq!(conditions_after(unknown(), true, own()), []);
        assert_eq!(conditions_after(unknown(), true, Progress::ready("1")), []);
    }

    #[test]
    fn whoever_is_held_back_reports_it_in_both_conditions() {
        let failure = Failure::new(Reason::DependencyNotReady, "a is not Ready");
        let effect = DependencyEffect::Blocked { failure: failure.clone(), state: State::Processing };
        let outcome = Dependence { effect, is_stale: false }.blocked_outcome().unwrap();
        assert_eq!(outcome.result, Err(failure));
        assert_eq!(outcome.report.state, Some(State::Processing));
        assert!(outcome.report.conditions.iter().all(|one| one.reason == Reason::DependencyNotReady));
        assert_eq!(outcome.report.conditions.len(), 2);
    }
}
