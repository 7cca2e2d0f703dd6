//! Decides whether the chart's tests are due. Pure.

use kyma_api::{Digests, HelmComponent, annotations};
use kyma_helm::hooks;
use serde_json::json;

use crate::actions::hooks::state::HookRecords;
use crate::content;

/// Returns the unhandled request for the chart's tests. It also counts if hooks are skipped, since it requests
/// exactly these.
pub(super) fn request<'a>(component: &'a HelmComponent, records: &HookRecords) -> Option<&'a str> {
    let annotations = component.metadata.annotations.as_ref();
    let request = annotations.and_then(|all| all.get(annotations::TEST_REQUESTED_AT)).map(String::as_str);
    let handled = records.handled_test_request.as_deref();
    request.filter(|request| !request.is_empty() && handled != Some(*request))
}

/// Reports whether the tests of an unhandled request are due. `has_run`: whether this pass has handled it.
pub(super) fn due(request: Option<&str>, has_run: bool) -> bool {
    request.is_some() && !has_run
}

/// Returns the digest that identifies a run of tests: equal in every process, different for each release and request.
pub(super) fn digest(source: &str, values: &str, request: &str) -> String {
    content::digest(&[json!([source, values, request]).to_string().as_bytes()])
}

/// Reports whether the last tests ran for the installed release.
pub(super) fn are_of_release(records: &HookRecords, digests: &Digests) -> bool {
    let Digests { source, values, .. } = digests;
    let (Some(source), Some(values), Some(request)) = (source, values, &records.handled_test_request) else {
        return false;
    };
    let expected = digest(source, values, request);
    records.tests.as_ref().is_some_and(|record| record.digest == expected)
}

/// Reports whether the run of tests with this digest has ended.
pub(super) fn is_over(records: &HookRecords, digest: &str) -> bool {
    let record = records.tests.as_ref().filter(|record| record.digest == digest);
    record.is_some() && !hooks::is_under_way(record)
}

#[cfg(test)]
mod tests {
    use kyma_api::{HelmComponentSpec, HookPhase, Hooks};

    use super::*;

    fn records(digest: &str, phase: HookPhase, handled: Option<&str>) -> HookRecords {
        let tests = Some(Hooks { digest: digest.to_owned(), phase, ..Hooks::default() });
        HookRecords { tests, handled_test_request: handled.map(str::to_owned), ..HookRecords::default() }
    }

    #[test]
    fn tests_are_due_once_for_each_request() {
        let rows = [
            (None, None, false, false),
            (Some(""), None, false, false),
            (Some("1"), None, false, true),
            (Some("1"), None, true, false),
            (Some("1"), Some("1"), false, false),
            (Some("2"), Some("1"), false, true),
        ];
        for (requested, handled, has_run, expected) in rows {
            let mut component = HelmComponent::new("c", HelmComponentSpec::default());
            component.metadata.annotations = requested.map(|value: &str| {
                [(annotations::TEST_REQUESTED_AT.to_owned(), value.to_owned())].into_iter().collect()
            });
            let records = records("", HookPhase::Succeeded, handled);
            let is_due = due(request(&component, &records), has_run);
            assert_eq!(is_due, expected, "{requested:?} {handled:?} {has_run}");
        }
    }

    #[test]
    fn tests_belong_to_one_release_and_request() {
        let digests = |values: &str| Digests {
            source: Some("s".to_owned()),
            values: Some(values.to_owned()),
            ..Digests::default()
        };
        let of = |handled: Option<&str>| records(&digest("s", "v", "1"), HookPhase::Succeeded, handled);
        assert!(are_of_release(&of(Some("1")), &digests("v")));
        assert!(!are_of_release(&of(Some("2")), &digests("v")));
        assert!(!are_of_release(&of(None), &digests("v")));
        assert!(!are_of_release(&of(Some("1")), &digests("other")));
        assert!(!are_of_release(&of(Some("1")), &Digests::default()));
    }

    #[test]
    fn a_run_of_tests_ends_with_success_or_failure() {
        for (phase, expected) in [
            (HookPhase::Pending, false),
            (HookPhase::Running, false),
            (HookPhase::Cleaning, false),
            (HookPhase::Failed, true),
            (HookPhase::Succeeded, true),
        ] {
            assert_eq!(is_over(&records("d", phase, None), "d"), expected, "{phase:?}");
            assert!(!is_over(&records("other", phase, None), "d"), "{phase:?}");
        }
    }
}
