//! Classes of failures, and the tests that show each: how it is recognized, how often it is retried, what ends it,
//! and that it is reported once. The classes are those of API server responses to an apply.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use regex::Regex;

const ERRORS: &str = "crates/object-set/src/error/tests.rs";
const BACKOFF: &str = "crates/controller/src/reconciler/backoff.rs";
const HERE: &str = "crates/helm-component/tests/clusters/failures.rs";
const DAILY: &str = "crates/helm-component/tests/clusters/daily.rs";
const ANSWERS: &str = "crates/targets/tests/faults/answers.rs";
const ACCESS: &str = "crates/targets/tests/faults/access.rs";
const PACE: &str = "crates/targets/tests/faults/pace.rs";
const DRIFT: &str = "crates/helm-component/tests/clusters/drift.rs";
const ACCOUNT: &str = "crates/helm-component/tests/clusters/account.rs";
const DEPENDS: &str = "crates/helm-component/tests/clusters/depends.rs";
const EVERYDAY_ACCESS: &str = "e2e/tests/everyday/access.rs";
const TARGET: &str = "e2e/tests/everyday/target.rs";
const BREAKER: &str = "crates/targets/src/connection/breaker.rs";

/// A class of failures, and its tests by file and name.
struct Class {
    name: &'static str,
    tests: &'static [(&'static str, &'static str)],
    /// The test that counts the events. `None` if the failure passes before it needs to be reported.
    told: Option<(&'static str, &'static str)>,
}

const CLASSES: [Class; 13] = [
    Class {
        name: "422, fields that cannot change: 5 s to 10 min, until a person deletes the object or the content changes",
        tests: &[
            (ERRORS, "only_wholly_immutable_refusals_are_immutable"),
            (ERRORS, "words_of_a_quoted_value_make_nothing_immutable"),
            ("crates/object-set/tests/on_clusters/refusals.rs", "immutable_fields_are_named"),
        ],
        told: Some((HERE, "immutable_field_is_reported_until_user_deletes_the_object")),
    },
    Class {
        name: "422, 400 and other 4xx: 5 s to 10 min, or a change of the content",
        tests: &[
            (ERRORS, "messages_hold_paths_and_never_values"),
            (DAILY, "an_object_that_the_target_refuses_is_named_by_field"),
            (
                "crates/helm-component/src/plan/tests/faults.rs",
                "failure_that_needs_a_user_does_not_delay_retry_of_others",
            ),
        ],
        told: Some((HERE, "a_value_of_a_wrong_type_is_named_by_path_and_never_told")),
    },
    Class {
        name: "409 over fields: ours are forced; other owners are left alone",
        tests: &[
            (DRIFT, "edits_and_deletions_on_the_target_are_put_right"),
            (
                "crates/object-set/tests/on_clusters/adoption.rs",
                "an_object_of_another_live_owner_is_left_alone",
            ),
        ],
        told: Some((DRIFT, "competing_writer_is_reported_and_drift_correction_pauses")),
    },
    Class {
        name: "409 in a race: tried once more at once, then after 0.5 s, doubling to a minute",
        tests: &[
            ("crates/object-set/tests/on_clusters/refusals.rs", "a_conflict_causes_a_read_and_one_retry"),
            (BACKOFF, "what_may_pass_doubles_up_to_its_bound"),
            (
                "crates/object-set/tests/on_clusters/adoption.rs",
                "of_owners_that_come_at_the_same_time_one_has_the_object",
            ),
        ],
        told: None,
    },
    Class {
        name: "403, the namespace is being deleted: its stream tells when it is over; 5 s to 10 min",
        tests: &[
            (ERRORS, "answers_of_real_api_servers_are_distinguished"),
            (BACKOFF, "every_refusal_by_a_target_is_tried_again_after_5_s_to_10_min"),
            (
                "crates/helm-component/src/reconcile/terminating_namespaces.rs",
                "an_hour_of_termination_costs_few_requests",
            ),
        ],
        told: Some((HERE, "terminating_namespace_costs_few_requests_in_every_case")),
    },
    Class {
        name: "403 by roles, and denials by policies and webhooks: 5 s to 10 min, or a change of access or content, or a request",
        tests: &[
            (BACKOFF, "every_refusal_by_a_target_is_tried_again_after_5_s_to_10_min"),
            (BACKOFF, "what_nobody_tells_of_is_looked_at_again"),
            ("crates/sdk/src/driver/account.rs", "what_an_account_may_not_do_names_it"),
            (ACCOUNT, "what_an_account_may_not_do_is_not_done"),
        ],
        told: Some((ACCOUNT, "granted_right_is_noticed_soon_and_at_once_on_request")),
    },
    Class {
        name: "403 by a quota: 5 s to 10 min",
        tests: &[(BACKOFF, "every_refusal_by_a_target_is_tried_again_after_5_s_to_10_min")],
        told: Some((HERE, "a_quota_that_is_used_up_is_tried_again_until_it_has_room")),
    },
    Class {
        name: "404, the kind is missing: the rest is applied, its CRD wakes",
        tests: &[],
        told: Some((DEPENDS, "a_kind_that_is_missing_comes_goes_and_comes_again")),
    },
    Class {
        name: "404, the namespace is missing: its arrival wakes",
        tests: &[(ERRORS, "a_missing_namespace_differs_from_a_missing_object")],
        told: Some((DAILY, "a_missing_namespace_is_named_and_its_arrival_is_noticed")),
    },
    Class {
        name: "429: as long as is asked, and fewer calls at once",
        tests: &[
            (ERRORS, "retry_after_is_kept"),
            (PACE, "a_429_holds_later_calls_back_instead_of_sending_them"),
            (
                "crates/targets/src/connection/throttle.rs",
                "a_429_halves_the_slots_and_pauses_as_long_as_asked",
            ),
            (
                "crates/targets/src/connection/throttle.rs",
                "slots_come_back_one_by_one_and_never_fall_below_one",
            ),
        ],
        told: Some((TARGET, "a_target_that_asks_to_slow_down_is_reported")),
    },
    Class {
        name: "500, a webhook does not answer: 0.5 s to a minute; workloads of the set come all the same",
        tests: &[(ERRORS, "answers_of_real_api_servers_are_distinguished")],
        told: Some((HERE, "dead_webhook_of_component_does_not_block_its_own_workload")),
    },
    Class {
        name: "5xx and no answer: the breaker opens after three, and probes after 15 s to 5 min",
        tests: &[
            (ANSWERS, "every_fault_is_bounded_and_reported_without_foreign_text"),
            (ANSWERS, "a_server_that_only_accepts_connections_is_given_up_in_time"),
            (ACCESS, "a_certificate_of_another_authority_is_refused"),
            (ACCESS, "places_where_nobody_answers_are_told_apart"),
            (PACE, "three_failures_suspend_calls_and_recovery_is_announced"),
            (PACE, "errors_of_one_api_do_not_suspend_target_with_good_readyz"),
            (BREAKER, "opens_after_three_failures_in_a_row"),
            (BREAKER, "probe_delays_double_to_five_minutes_with_downward_jitter"),
            (BREAKER, "a_good_probe_closes_it_and_tells_who_waits_exactly_once"),
            (TARGET, "a_target_that_refuses_connections_is_reported"),
            (TARGET, "a_target_that_is_silent_is_reported"),
        ],
        told: Some((TARGET, "a_target_that_answers_with_server_errors_is_reported")),
    },
    Class {
        name: "401: another Secret is used at once, else the breaker",
        tests: &[
            (PACE, "refused_credentials_suspend_calls_until_they_are_accepted"),
            (PACE, "rotated_secret_is_used_at_once_after_refused_credentials"),
            (BREAKER, "credentials_that_are_refused_three_times_are_not_shown_again"),
        ],
        told: Some((EVERYDAY_ACCESS, "e41_refused_token_is_reported_until_it_is_replaced")),
    },
];

/// Reports whether the code has this test and does not ignore it, as xtask checks for tests that
/// docs/helm-troubles.md names.
fn has_test(code: &str, name: &str) -> Result<bool> {
    let function = Regex::new(&format!(r"((?:#\[[^\]]*\]\s*)+)(?:async )?fn {name}\("))?;
    let test = Regex::new(r"#\[(?:tokio::)?test\b")?;
    let mut attributes = function.captures_iter(code).map(|found| found.extract::<1>().1[0]);
    Ok(attributes.any(|attributes| test.is_match(attributes) && !attributes.contains("ignore")))
}

#[test]
fn every_class_of_failure_has_its_tests() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for Class { name, tests, told } in CLASSES {
        ensure!(!tests.is_empty() || told.is_some(), "{name}: no test");
        for (file, test) in tests.iter().chain(&told) {
            let text = std::fs::read_to_string(root.join(file)).with_context(|| (*file).to_owned())?;
            ensure!(has_test(&text, test)?, "{name}: {file} has no test {test} that runs");
        }
    }
    Ok(())
}

#[test]
fn a_test_that_is_ignored_or_none_at_all_shows_nothing() -> Result<()> {
    let code = "#[test]\nfn plain() {}\n#[tokio::test]\nasync fn on_clusters() {}\nfn helps() {}\n\
                #[test]\n#[ignore = \"long\"]\nfn long() {}\n#[ignore]\n#[tokio::test]\nasync fn slow() {}";
    for (name, expected) in
        [("plain", true), ("on_clusters", true), ("helps", false), ("long", false), ("slow", false)]
    {
        ensure!(has_test(code, name)? == expected, "{name}");
    }
    Ok(())
}
