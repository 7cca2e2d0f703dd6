use kyma_api::ModuleStatus;
use kyma_controller::Failure;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn line_in(state: State, reason: Reason) -> Line {
    let message = Some(format!("about {reason}"));
    Line { status: ModuleStatus { name: "keda".into(), state, message, ..ModuleStatus::default() }, reason }
}

fn inputs<'a>(before: &'a KymaStatus, lines: &[Line], now: Timestamp) -> StatusInputs<'a> {
    StatusInputs {
        channel: Some("regular".into()),
        lines: lines.to_vec(),
        is_remote: true,
        ..StatusInputs::unchanged(before, Some(1), BTreeSet::from(["keda"]), now)
    }
}

fn of<'a>(status: &'a KymaStatus, type_: &str) -> &'a metav1::Condition {
    condition::get(status.conditions.as_deref().unwrap(), type_).unwrap()
}

#[test]
fn the_worst_module_is_the_state_of_the_kyma() {
    let before = KymaStatus::default();
    let state = |states: &[State]| {
        let lines: Vec<Line> = states.iter().map(|state| line_in(*state, Reason::Progressing)).collect();
        status(&inputs(&before, &lines, at(0))).state.unwrap()
    };
    assert_eq!(state(&[]), State::Ready);
    assert_eq!(state(&[State::Ready, State::Unmanaged]), State::Ready);
    assert_eq!(state(&[State::Ready, State::Deleting]), State::Processing);
    assert_eq!(state(&[State::Processing, State::Warning]), State::Warning);
    assert_eq!(state(&[State::Warning, State::Error, State::Processing]), State::Error);
}

#[test]
fn a_kyma_that_only_removes_a_module_says_which() {
    let before = KymaStatus::default();
    let lines = [line_in(State::Ready, Reason::Ready), line_in(State::Deleting, Reason::Deleting)];
    let status = status(&inputs(&before, &lines, at(0)));
    let ready = of(&status, types::READY);
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "Deleting"));
    assert_eq!(ready.message, "module keda: about Deleting");
}

#[test]
fn the_same_facts_later_give_the_same_status() {
    let lines = [line_in(State::Warning, Reason::DowngradeRefused)];
    let before = KymaStatus::default();
    let first = status(&inputs(&before, &lines, at(0)));
    assert_eq!(status(&inputs(&first, &lines, at(500))), first);
    assert_eq!(of(&first, types::READY).reason, "DowngradeRefused");
    assert_eq!(of(&first, types::MODULES).status, "False");
    let ready = status(&inputs(&first, &[line_in(State::Ready, Reason::Ready)], at(900)));
    assert_eq!(of(&ready, types::READY).last_transition_time.0, at(900));
    assert_eq!(of(&ready, types::TARGET_REACHABLE).last_transition_time.0, at(0));
}

#[test]
fn conditions_of_others_are_not_ours_to_write() {
    let mut before = KymaStatus::default();
    let catalogue = Condition::new(types::MODULE_CATALOG, Status::True, Reason::CatalogSynced);
    condition::set(before.conditions.get_or_insert_default(), &catalogue, None, &time(at(0)));
    let after = status(&inputs(&before, &[], at(0)));
    assert!(condition::get(after.conditions.as_deref().unwrap(), types::MODULE_CATALOG).is_none());
}

#[test]
fn a_catalogue_that_is_not_on_the_target_is_work_under_way() {
    let mut before = KymaStatus::default();
    let catalogue = Condition::new(types::MODULE_CATALOG, Status::False, Reason::TargetForbidden)
        .with_message("not allowed");
    condition::set(before.conditions.get_or_insert_default(), &catalogue, None, &time(at(0)));
    let lines = [line_in(State::Ready, Reason::Ready)];
    let of_state = |is_remote: bool| {
        let mut inputs = inputs(&before, &lines, at(0));
        inputs.is_remote = is_remote;
        status(&inputs)
    };
    let after = of_state(true);
    assert_eq!(after.state, Some(State::Processing));
    let ready = of(&after, types::READY);
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "Progressing"));
    assert!(ready.message.contains("not allowed"), "{}", ready.message);
    assert_eq!(of_state(false).state, Some(State::Ready), "the hub itself gets no copy");
    assert_eq!(after.modules_ready.as_deref(), Some("1/1"));
}

#[test]
fn trouble_with_the_target_leaves_what_is_known_of_modules() {
    let before = status(&inputs(&KymaStatus::default(), &[line_in(State::Ready, Reason::Ready)], at(0)));
    let problem = KymaProblem {
        reason: Reason::TargetUnreachable,
        message: "the target cannot be reached".into(),
        state: State::Error,
        about_target: true,
    };
    let lines = [line_in(State::Ready, Reason::Ready)];
    let after = status(&StatusInputs { problem: Some(problem), ..inputs(&before, &lines, at(9)) });
    assert_eq!(after.state, Some(State::Error));
    assert_eq!(after.modules, before.modules);
    assert_eq!(of(&after, types::TARGET_REACHABLE).reason, "TargetUnreachable");
    assert_eq!(of(&after, types::CRDS_SYNC), of(&before, types::CRDS_SYNC));
    assert_eq!(after.last_operation.unwrap().operation, "the target cannot be reached");
}

#[test]
fn a_stored_condition_of_the_former_type_is_renamed() {
    let lines = [line_in(State::Ready, Reason::Ready)];
    let nothing = KymaStatus::default();
    let resource_rules = Some(prerequisites::resource_rules(&Ok(())));
    let before = status(&StatusInputs { resource_rules, ..inputs(&nothing, &lines, at(0)) });
    let mut stored = before.clone();
    let conditions = stored.conditions.iter_mut().flatten();
    for held in conditions.filter(|held| held.type_ == types::RESOURCE_RULES_APPLIED) {
        held.type_ = "ResourceRules".to_owned();
    }
    let problem = KymaProblem {
        reason: Reason::TargetUnreachable,
        message: "the target cannot be reached".into(),
        state: State::Error,
        about_target: true,
    };
    let unreachable = status(&StatusInputs { problem: Some(problem), ..inputs(&stored, &lines, at(9)) });
    let left =
        skipped_status(&stored, Some(1), (Reason::TargetUnreachable, "the operators are paused"), at(9));
    for after in [&unreachable, &left] {
        let applied = of(after, types::RESOURCE_RULES_APPLIED);
        assert_eq!(applied, of(&before, types::RESOURCE_RULES_APPLIED), "the target was not asked");
    }
    let without_rules = status(&inputs(&stored, &lines, at(0)));
    for after in [&unreachable, &left, &without_rules] {
        assert!(own_conditions(after).iter().all(|held| held.type_ != "ResourceRules"));
    }
    let unchanged = status(&inputs(&before, &lines, at(0)));
    assert_eq!(without_rules, unchanged);
    assert_ne!(
        own_conditions(&stored),
        own_conditions(&without_rules),
        "the former type is removed by a write"
    );
}

#[test]
fn fields_without_effect_are_named_even_where_all_is_well() {
    let before = KymaStatus::default();
    let after =
        status(&StatusInputs { unsupported: vec!["spec.rollout".into()], ..inputs(&before, &[], at(0)) });
    assert_eq!(after.state, Some(State::Ready));
    assert_eq!(of(&after, types::READY).reason, "NotYetSupported");
    assert!(of(&after, types::READY).message.contains("spec.rollout"));
}

#[test]
fn missing_access_is_reported_with_its_time_until_it_returns() {
    let before = KymaStatus::default();
    let missing =
        status(&StatusInputs { access_missing: true, deleting: true, ..inputs(&before, &[], at(0)) });
    let still =
        status(&StatusInputs { access_missing: true, deleting: true, ..inputs(&missing, &[], at(60)) });
    assert_eq!(of(&still, ACCESS_MISSING).last_transition_time.0, at(0));
    let back = status(&StatusInputs { deleting: true, ..inputs(&still, &[], at(90)) });
    assert!(condition::get(back.conditions.as_deref().unwrap(), ACCESS_MISSING).is_none());
}

#[test]
fn a_kyma_that_is_left_alone_says_so_and_keeps_the_rest() {
    let before = status(&inputs(&KymaStatus::default(), &[line_in(State::Ready, Reason::Ready)], at(0)));
    let after = skipped_status(&before, Some(2), (Reason::Paused, "Pause p is in force"), at(9));
    let ready = of(&after, types::READY);
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("Unknown", "Paused"));
    assert_eq!((after.state, &after.modules), (before.state, &before.modules));
    assert_eq!(of(&after, types::MODULES), of(&before, types::MODULES));
    assert_eq!(
        skipped_status(&after, Some(2), (Reason::Paused, "Pause p is in force"), at(99)),
        after,
        "said once"
    );
}

#[test]
fn uncopied_pull_secret_is_a_warning_and_unset_one_is_silent() {
    let failure = Failure::new(Reason::CopyNotAllowed, "Secret pull may not be copied");
    let with = |before, copied: Result<(), Failure>| StatusInputs {
        pull_secret: Some(prerequisites::pull_secret(&copied)),
        ..inputs(before, &[line_in(State::Ready, Reason::Ready)], at(0))
    };
    let nothing = KymaStatus::default();
    let refused = status(&with(&nothing, Err(failure)));
    let told = of(&refused, types::SKR_IMAGE_PULL_SECRET_SYNC);
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", "CopyNotAllowed"));
    assert_eq!(refused.state, Some(State::Warning));
    assert_eq!(of(&refused, types::READY).message, "Secret pull may not be copied");
    assert_eq!(refused.last_operation.as_ref().unwrap().operation, "Secret pull may not be copied");
    let copied = status(&with(&refused, Ok(())));
    assert_eq!(of(&copied, types::SKR_IMAGE_PULL_SECRET_SYNC).status, "True");
    assert_eq!(copied.state, Some(State::Ready));
    let without = status(&inputs(&copied, &[], at(1)));
    let conditions = without.conditions.as_deref().unwrap();
    assert_eq!(condition::get(conditions, types::SKR_IMAGE_PULL_SECRET_SYNC), None);
}

#[test]
fn a_wait_for_a_window_is_reported_until_the_next_decision() {
    let awaited = Reason::AwaitingMaintenanceWindow;
    let told =
        Condition::new(types::MAINTENANCE_WINDOW, Status::False, awaited).with_message("keda: it waits");
    let has = |status: &KymaStatus| {
        condition::get(status.conditions.as_deref().unwrap(), types::MAINTENANCE_WINDOW).is_some()
    };
    let nothing = KymaStatus::default();
    let first = status(&StatusInputs { windows: Some(told), ..inputs(&nothing, &[], at(0)) });
    assert_eq!(of(&first, types::MAINTENANCE_WINDOW).message, "keda: it waits");
    let problem = |about_target| {
        let (reason, state) = (Reason::TargetUnreachable, State::Error);
        Some(KymaProblem { reason, message: String::new(), state, about_target })
    };
    assert!(
        has(&status(&StatusInputs { problem: problem(true), ..inputs(&first, &[], at(1)) })),
        "nothing was decided"
    );
    assert!(!has(&status(&StatusInputs { problem: problem(false), ..inputs(&first, &[], at(1)) })));
    assert!(!has(&status(&inputs(&first, &[], at(1)))));
}

#[test]
fn a_module_says_why_it_is_so_and_since_when() {
    let before = KymaStatus::default();
    let line = |state, reason| status(&inputs(&before, &[line_in(state, reason)], at(0)));
    let first = line(State::Warning, Reason::DowngradeRefused);
    let module = |status: &KymaStatus| status.modules.clone().unwrap().remove(0);
    assert_eq!(module(&first).reason.as_deref(), Some("DowngradeRefused"));
    assert!(module(&first).default, "it is in the hub's spec");
    let again = status(&inputs(&first, &[line_in(State::Warning, Reason::DowngradeRefused)], at(60)));
    assert_eq!(module(&again).last_transition_time.unwrap().0, at(0));
    let other = status(&inputs(&again, &[line_in(State::Warning, Reason::Paused)], at(90)));
    assert_eq!(module(&other).last_transition_time.unwrap().0, at(90));
    let unknown = status(&inputs(&other, &lines_before(&other), at(120)));
    assert_eq!(module(&unknown), module(&other), "nothing new is known");
}
