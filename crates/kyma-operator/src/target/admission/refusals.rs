//! ModuleConfigs whose policies a target refuses. Pure.

use std::collections::BTreeMap;

use kube::api::ObjectMeta;
use kyma_api::{Reason, labels, names};
use kyma_controller::Failure;

use super::policy::{Body, Id};
use crate::hub::config::{self, RuleRefusals};

/// Refused policies of one sync: the first failure of each ModuleConfig.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    by_config: BTreeMap<String, Failure>,
    /// The target does not allow the writes, whatever the policies contain.
    forbidden: Option<Failure>,
}

impl Refusals {
    /// Records the failure of one policy.
    ///
    /// # Errors
    /// The failure itself, if it says nothing about the policy.
    pub(super) fn add(&mut self, config: &str, failure: Failure) -> Result<(), Failure> {
        if !is_refusal(&failure) {
            return Err(failure);
        }
        if failure.reason == Reason::TargetForbidden {
            self.forbidden = Some(failure.clone());
        }
        self.by_config.entry(config.to_owned()).or_insert(failure);
        Ok(())
    }

    /// Records one more policy as refused if the target allows no write. Returns false if the write has to be
    /// tried.
    pub(super) fn refuse_if_forbidden(&mut self, config: &str) -> bool {
        let Some(failure) = &self.forbidden else { return false };
        self.by_config.entry(config.to_owned()).or_insert_with(|| failure.clone());
        true
    }

    /// Reports whether a policy on the target is of a ModuleConfig with a refused policy, by its label or its record.
    pub(super) fn include_config_of(&self, live: &ObjectMeta) -> bool {
        let label = live.labels.as_ref().and_then(|set| set.get(labels::MODULE_CONFIG));
        let recorded = config::read_record(live);
        self.by_config.keys().any(|name| {
            recorded.contains_key(name) || label.is_some_and(|label| names::label_value(name) == *label)
        })
    }

    /// Returns the failure that the Kyma reports.
    pub(super) fn into_first(self) -> Option<Failure> {
        self.by_config.into_values().next()
    }

    fn reasons(&self) -> RuleRefusals {
        self.by_config.iter().map(|(config, failure)| (config.clone(), failure.reason)).collect()
    }
}

/// Returns why a target refuses the rules of ModuleConfigs. A failure before the first write is about all of them.
/// Returns `None` if the failure is no refusal, for example of a target that does not answer.
pub(super) fn reasons(
    desired: &BTreeMap<Id, Body>,
    applied: Result<&Refusals, &Failure>,
) -> Option<RuleRefusals> {
    match applied {
        Ok(refusals) => Some(refusals.reasons()),
        Err(failure) if is_refusal(failure) => {
            Some(desired.values().map(|body| (body.config.clone(), failure.reason)).collect())
        }
        Err(_) => None,
    }
}

/// Reports whether the target answered and refused the request, rather than not answering or being busy.
pub(crate) fn is_refusal(failure: &Failure) -> bool {
    matches!(
        failure.reason,
        Reason::ApplyRefused
            | Reason::TargetForbidden
            | Reason::WebhookDenied
            | Reason::ImmutableField
            | Reason::ObjectTooLarge
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::policy::POLICY;
    use super::*;

    fn failure(reason: Reason) -> Failure {
        Failure::new(reason, reason.as_str())
    }

    fn desired(configs: &[&str]) -> BTreeMap<Id, Body> {
        let of = |config: &&str| {
            let id = Id { kind: POLICY, name: format!("{config}-lanterns") };
            (id, Body { config: (*config).to_owned(), object: json!({}) })
        };
        configs.iter().map(of).collect()
    }

    fn refused(rows: &[(&str, Reason)]) -> RuleRefusals {
        rows.iter().map(|(config, reason)| ((*config).to_owned(), *reason)).collect()
    }

    #[test]
    fn an_invalid_policy_is_refused_alone() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.add("b", failure(Reason::ApplyRefused)), Ok(()));
        assert!(!refusals.refuse_if_forbidden("c"), "the next one is tried");
        assert_eq!(
            reasons(&desired(&["a", "b", "c"]), Ok(&refusals)),
            Some(refused(&[("b", Reason::ApplyRefused)]))
        );
        assert_eq!(refusals.into_first(), Some(failure(Reason::ApplyRefused)));
    }

    #[test]
    fn a_forbidden_write_is_not_tried_for_each_policy() {
        let mut refusals = Refusals::default();
        refusals.add("b", failure(Reason::TargetForbidden)).unwrap();
        assert!(refusals.refuse_if_forbidden("c"));
        let expected = Some(refused(&[("b", Reason::TargetForbidden), ("c", Reason::TargetForbidden)]));
        assert_eq!(reasons(&desired(&["a", "b", "c"]), Ok(&refusals)), expected, "the target has a's");
    }

    #[test]
    fn a_list_that_the_target_refuses_is_about_all_configs() {
        let desired = desired(&["a", "b"]);
        // A target whose Kubernetes does not serve the kind answers 404.
        let failure = failure(Reason::ApplyRefused);
        let expected = Some(refused(&[("a", Reason::ApplyRefused), ("b", Reason::ApplyRefused)]));
        assert_eq!(reasons(&desired, Err(&failure)), expected);
    }

    #[test]
    fn a_target_that_does_not_answer_refuses_nothing() {
        for reason in [Reason::TargetUnreachable, Reason::TargetThrottled, Reason::StampMismatch] {
            let mut refusals = Refusals::default();
            assert_eq!(refusals.add("a", failure(reason)), Err(failure(reason)));
            assert_eq!(reasons(&desired(&["a"]), Err(&failure(reason))), None, "{reason}");
            assert_eq!(refusals.into_first(), None);
        }
    }
}
