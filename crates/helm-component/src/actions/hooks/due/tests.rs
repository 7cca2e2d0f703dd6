use kyma_health::HealthStatus;
use kyma_object_set::Identity;

use super::*;
use crate::plan::tests::{applied, config, crd, deployment, fault, fresh, id, object, running};
use crate::plan::{Content, ObjectState, Observed, Step, next};

fn hooks_due(event: Event) -> HooksDue {
    let before = event == Event::PreInstall;
    HooksDue {
        before: before.then_some(event),
        after: (!before).then_some(event),
        release: before,
        ..HooksDue::default()
    }
}

fn waiting() -> StopReason {
    StopReason::Hook("the pre-install hook Job.batch here/j".to_owned())
}

fn missing(identity: Identity) -> ObjectState {
    ObjectState { changed: true, served: false, ..object(identity) }
}

#[test]
fn each_phase_has_its_next_step_for_hooks() {
    let before = |crds_due: bool, fault: Option<Failure>| Phase::BeforeApply { crds_due, fault };
    let after = |all_sent: bool, is_loaded: bool| Phase::AfterApply { all_sent, is_loaded };
    let (pre, post) = (hooks_due(Event::PreInstall), hooks_due(Event::PostInstall));
    let stopped = |hooks: &HooksDue| HooksDue { stop_reason: Some(waiting()), ..hooks.clone() };
    let with_crds = HooksDue { crds_applied: true, ..pre.clone() };
    let (run_pre, run_post) = (HookStep::Run(Event::PreInstall), HookStep::Run(Event::PostInstall));
    let stop = || Some(HookStep::Stop(waiting()));
    let rows = [
        (HooksDue::default(), before(true, Some(fault())), None),
        (HooksDue::default(), after(true, true), None),
        (post.clone(), before(false, None), None),
        (pre.clone(), after(true, true), None),
        (pre.clone(), before(true, Some(fault())), Some(HookStep::ApplyCrds)),
        (with_crds.clone(), before(true, Some(fault())), Some(HookStep::Refuse(fault()))),
        (with_crds, before(true, None), Some(run_pre.clone())),
        (pre.clone(), before(false, Some(fault())), Some(HookStep::Refuse(fault()))),
        (pre.clone(), before(false, None), Some(run_pre)),
        (stopped(&pre), before(true, Some(fault())), stop()),
        (post.clone(), after(false, true), None),
        (post.clone(), after(false, false), None),
        (post.clone(), after(true, false), Some(HookStep::Load)),
        (post.clone(), after(true, true), Some(run_post)),
        (stopped(&post), after(false, false), stop()),
    ];
    for (hooks, phase, expected) in rows {
        let row = format!("{hooks:?} {phase:?}");
        assert_eq!(due(&hooks, phase), expected, "{row}");
    }
}

#[test]
fn hooks_come_before_everything_but_crds_and_the_namespace() {
    let mut seen = fresh(vec![object(crd()), object(config("c"))]);
    seen.hooks = hooks_due(Event::PreInstall);
    seen.namespace_ready = false;
    assert_eq!(next(&seen), Step::Namespace);
    seen.namespace_ready = true;
    assert_eq!(next(&seen), Step::ApplyCrds);
    seen.hooks.crds_applied = true;
    assert_eq!(next(&seen), Step::Hooks(Event::PreInstall));
    seen.hooks.stop_reason = Some(waiting());
    assert_eq!(next(&seen), Step::Stop(waiting()));
    seen.hooks = HooksDue { release: true, ..HooksDue::default() };
    assert_eq!(next(&seen), Step::Apply);
}

#[test]
fn a_chart_of_hooks_alone_runs_them() {
    let mut seen = fresh(vec![]);
    seen.hooks = hooks_due(Event::PreInstall);
    assert_eq!(next(&seen), Step::Hooks(Event::PreInstall));
    seen.hooks = HooksDue { release: true, ..HooksDue::default() };
    assert_eq!(next(&seen), Step::Apply);
}

#[test]
fn post_hooks_wait_for_objects_of_served_kinds_not_for_health() {
    let mut seen =
        running(vec![ObjectState { health: Some(HealthStatus::InProgress), ..object(deployment()) }]);
    seen.hooks = hooks_due(Event::PostInstall);
    assert_eq!(next(&seen), Step::Load, "a new process has no content");
    seen.content = Content::Loaded;
    assert_eq!(next(&seen), Step::Hooks(Event::PostInstall));
    seen.objects.push(missing(id("example.org", "Widget", "w")));
    assert_eq!(next(&seen), Step::Hooks(Event::PostInstall), "its kind may never come");
    seen.objects
        .push(ObjectState { waiting: Some("its kind is not served yet".to_owned()), ..object(config("c")) });
    assert!(matches!(next(&seen), Step::Stop(_) | Step::Apply), "{:?}", next(&seen));
    seen.applied = true;
    assert!(matches!(next(&seen), Step::Stop(_)), "{:?}", next(&seen));
}

#[test]
fn causes_of_delays_are_read_while_a_hook_runs() {
    let slow = running(vec![ObjectState { health: Some(HealthStatus::InProgress), ..object(deployment()) }]);
    let slow = Observed { content: Content::Loaded, causes_due: true, ..slow };
    for event in [Event::PreInstall, Event::PostInstall] {
        let mut seen =
            Observed { hooks: HooksDue { stop_reason: Some(waiting()), ..hooks_due(event) }, ..slow.clone() };
        assert_eq!(next(&seen), Step::ReadCauses);
        seen.causes_due = false;
        assert_eq!(next(&seen), Step::Stop(waiting()), "once");
        seen.causes_due = true;
        seen.hooks.stop_reason = Some(StopReason::Failed(fault()));
        assert_eq!(next(&seen), Step::Stop(StopReason::Failed(fault())), "the end of a hook comes first");
    }
    let unseen = Observed { watched: false, applied: true, ..slow };
    let hooks = HooksDue { stop_reason: Some(waiting()), ..hooks_due(Event::PostInstall) };
    assert_eq!(next(&Observed { hooks, ..unseen }), Step::Stop(waiting()));
}

#[test]
fn surplus_objects_are_pruned_before_post_upgrade_hooks() {
    let mut seen = running(vec![object(config("c"))]);
    seen.content = Content::Loaded;
    seen.hooks = hooks_due(Event::PostUpgrade);
    let (surplus, entry) = applied(&config("old"));
    seen.inventory.insert(surplus.clone(), entry);
    assert_eq!(next(&seen), Step::Prune(vec![surplus]));
    seen.pruned = Some(Err(fault()));
    assert_eq!(next(&seen), Step::Stop(StopReason::Failed(fault())));
}

#[test]
fn a_failed_hook_ends_the_pass() {
    let mut seen = fresh(vec![object(config("c"))]);
    seen.hooks = HooksDue { stop_reason: Some(StopReason::Failed(fault())), ..hooks_due(Event::PreInstall) };
    assert_eq!(next(&seen), Step::Stop(StopReason::Failed(fault())));
}
