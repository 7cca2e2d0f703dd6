use super::*;

fn due(event: Event) -> HooksDue {
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
fn hooks_come_before_everything_but_crds_and_the_namespace() {
    let mut seen = fresh(vec![object(crd()), object(config("c"))]);
    seen.hooks = due(Event::PreInstall);
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
    seen.hooks = due(Event::PreInstall);
    assert_eq!(next(&seen), Step::Hooks(Event::PreInstall));
    seen.hooks = HooksDue { release: true, ..HooksDue::default() };
    assert_eq!(next(&seen), Step::Apply);
}

#[test]
fn post_hooks_wait_for_objects_of_served_kinds_not_for_health() {
    let mut seen =
        running(vec![ObjectState { health: Some(HealthStatus::InProgress), ..object(deployment()) }]);
    seen.hooks = due(Event::PostInstall);
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
            Observed { hooks: HooksDue { stop_reason: Some(waiting()), ..due(event) }, ..slow.clone() };
        assert_eq!(next(&seen), Step::ReadCauses);
        seen.causes_due = false;
        assert_eq!(next(&seen), Step::Stop(waiting()), "once");
        seen.causes_due = true;
        seen.hooks.stop_reason = Some(StopReason::Failed(fault()));
        assert_eq!(next(&seen), Step::Stop(StopReason::Failed(fault())), "the end of a hook comes first");
    }
    let unseen = Observed { watched: false, applied: true, ..slow };
    let hooks = HooksDue { stop_reason: Some(waiting()), ..due(Event::PostInstall) };
    assert_eq!(next(&Observed { hooks, ..unseen }), Step::Stop(waiting()));
}

#[test]
fn surplus_objects_are_pruned_before_post_upgrade_hooks() {
    let mut seen = running(vec![object(config("c"))]);
    seen.content = Content::Loaded;
    seen.hooks = due(Event::PostUpgrade);
    let (surplus, entry) = applied(&config("old"));
    seen.inventory.insert(surplus.clone(), entry);
    assert_eq!(next(&seen), Step::Prune(vec![surplus]));
    seen.pruned = Some(Err(fault()));
    assert_eq!(next(&seen), Step::Stop(StopReason::Failed(fault())));
}

#[test]
fn a_failed_hook_ends_the_pass() {
    let mut seen = fresh(vec![object(config("c"))]);
    seen.hooks = HooksDue { stop_reason: Some(StopReason::Failed(fault())), ..due(Event::PreInstall) };
    assert_eq!(next(&seen), Step::Stop(StopReason::Failed(fault())));
}
