//! The status of a component after a reconcile, computed from the report of its result.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as metav1, Time};
use kyma_api::condition::{self, Condition};
use kyma_api::{FreeForm, State};
use serde_json::json;

/// Result of a reconcile to write to the status.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// State of the module; `None` keeps it.
    pub(crate) state: Option<State>,
    /// Version on the target; `None` keeps it.
    pub(crate) version: Option<String>,
    /// Conditions that are known now; others stay.
    pub(crate) conditions: Vec<Condition>,
    /// Further fields by top-level name; `null` removes one, others stay.
    pub(crate) fields: FreeForm,
}

/// Returns the status after `report`, given the previous one. Conditions keep their transition time while their
/// status stays. Pure: the same report twice gives the same status.
pub(crate) fn next_status(
    before: &FreeForm,
    report: &Report,
    generation: Option<i64>,
    now: &Time,
) -> FreeForm {
    let mut status = with_fields(before, &report.fields);
    let held = status.remove("conditions").unwrap_or_default();
    let mut conditions: Vec<metav1::Condition> = serde_json::from_value(held).unwrap_or_default();
    for reported in &report.conditions {
        condition::set(&mut conditions, reported, generation, now);
    }
    status.insert("conditions".to_owned(), json!(conditions));
    if let Some(state) = report.state {
        status.insert("state".to_owned(), json!(state));
    }
    if let Some(version) = &report.version {
        status.insert("version".to_owned(), json!(version));
    }
    if let Some(generation) = generation {
        status.insert("observedGeneration".to_owned(), json!(generation));
    }
    status
}

/// Returns `before` with `fields` replaced; removes nulls, which mean absence.
pub(super) fn with_fields(before: &FreeForm, fields: &FreeForm) -> FreeForm {
    let mut status = before.clone();
    status.extend(fields.clone());
    status.retain(|_, value| !value.is_null());
    status
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use kyma_api::Reason;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn ready(status: condition::Status, message: &str) -> Report {
        let ready =
            Condition::new(condition::types::READY, status, Reason::Progressing).with_message(message);
        Report { state: Some(State::Processing), conditions: vec![ready], ..Report::default() }
    }

    #[test]
    fn the_same_report_twice_changes_nothing() {
        let report = ready(condition::Status::False, "waiting");
        let first = next_status(&FreeForm::new(), &report, Some(1), &at(1));
        assert_eq!(first["observedGeneration"], 1);
        assert_eq!(next_status(&first, &report, Some(1), &at(2)), first);
    }

    #[test]
    fn transition_time_moves_with_the_status_only() {
        let first = next_status(&FreeForm::new(), &ready(condition::Status::False, "a"), Some(1), &at(1));
        let second = next_status(&first, &ready(condition::Status::False, "b"), Some(2), &at(2));
        assert_eq!(
            second["conditions"][0]["lastTransitionTime"],
            first["conditions"][0]["lastTransitionTime"]
        );
        assert_eq!(second["conditions"][0]["observedGeneration"], 2);
        let third = next_status(&second, &ready(condition::Status::True, "b"), Some(2), &at(3));
        assert_ne!(
            third["conditions"][0]["lastTransitionTime"],
            first["conditions"][0]["lastTransitionTime"]
        );
    }

    #[test]
    fn fields_that_are_not_named_stay_and_null_removes_one() {
        let held: FreeForm =
            serde_json::from_value(json!({"inventory": [1], "version": "1.0.0", "digests": {"a": "b"}}))
                .unwrap();
        let fields: FreeForm = serde_json::from_value(json!({"digests": null, "more": 1})).unwrap();
        let next = next_status(&held, &Report { fields, ..Report::default() }, None, &at(1));
        assert_eq!(next["inventory"], json!([1]));
        assert_eq!(next["version"], "1.0.0");
        assert_eq!(next["more"], 1);
        assert!(!next.contains_key("digests"));
    }

    #[test]
    fn a_status_of_another_form_is_replaced_not_fatal() {
        let held: FreeForm = serde_json::from_value(json!({"conditions": "none", "state": 7})).unwrap();
        let next = next_status(&held, &ready(condition::Status::True, ""), Some(1), &at(1));
        assert_eq!(next["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(next["state"], "Processing");
    }
}
