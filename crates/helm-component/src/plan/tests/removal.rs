//! Steps of a removal, also while the user's objects block it.

use super::*;

#[test]
fn removal_blocked_by_user_objects_repairs_installed_objects() {
    let blocked = Failure::new(Reason::DeletionBlocked, "Book default/users");
    let stop_reason = Step::Stop(StopReason::Failed(blocked.clone()));
    let mut seen =
        Observed { operation: Operation::Remove, ..running(vec![object(deployment()), object(config("a"))]) };
    seen.removal = Some(Err(blocked));
    assert_eq!(next(&seen), stop_reason);
    seen.objects[0].drift = Some(Drift::Gone);
    assert_eq!(next(&seen), Step::Load);
    seen.content = Content::Loaded;
    assert_eq!(next(&seen), Step::Apply);
    seen.applied = true;
    assert_eq!(next(&seen), stop_reason, "not tried twice in a pass");
}

#[test]
fn removal_creates_no_objects_and_repairs_only_while_blocked() {
    let blocked = Failure::new(Reason::DeletionBlocked, "Book default/users");
    let mut seen =
        Observed { operation: Operation::Remove, ..running(vec![object(config("a")), object(config("b"))]) };
    seen.content = Content::Loaded;
    seen.removal = Some(Err(blocked.clone()));
    seen.inventory.remove(&config("b"));
    assert_eq!(
        next(&seen),
        Step::Stop(StopReason::Failed(blocked.clone())),
        "what is gone by order stays away"
    );
    seen.objects[0].drift = Some(Drift::Gone);
    let stale = Observed { content: Content::Stale, ..seen.clone() };
    assert_eq!(
        next(&stale),
        Step::Stop(StopReason::Failed(blocked)),
        "the same version is not found out anew"
    );
    seen.removal = Some(Err(fault()));
    assert_eq!(next(&seen), Step::Stop(StopReason::Failed(fault())));
    seen.removal = Some(Ok(vec!["x".to_owned()]));
    assert_eq!(next(&seen), Step::Stop(StopReason::Removing(vec!["x".to_owned()])));
}

#[test]
fn e13_while_a_removal_is_blocked_another_version_is_taken_over() {
    let blocked = Failure::new(Reason::DeletionBlocked, "Book default/users");
    let mut seen =
        Observed { operation: Operation::Remove, ..running(vec![object(config("a")), object(crd())]) };
    (seen.content, seen.changes) = (Content::Stale, true);
    assert_eq!(next(&seen), Step::Remove, "whether it is blocked is looked at first");
    seen.removal = Some(Err(blocked.clone()));
    assert_eq!(next(&seen), Step::Load);
    seen.content = Content::Loaded;
    seen.objects.push(object(config("new")));
    seen.objects.iter_mut().for_each(|object| object.changed = true);
    assert_eq!(next(&seen), Step::Apply);
    apply(&mut seen);
    assert!(seen.inventory.contains(&config("new")));
    assert_eq!(next(&seen), Step::Stop(StopReason::Failed(blocked)));
    seen.removal = Some(Ok(vec!["x".to_owned()]));
    seen.applied = false;
    assert_eq!(
        next(&seen),
        Step::Stop(StopReason::Removing(vec!["x".to_owned()])),
        "one that goes on brings nothing"
    );
}

#[test]
fn a_removal_ends_when_nothing_of_ours_is_left() {
    let mut seen = Observed { operation: Operation::Remove, ..running(vec![object(deployment())]) };
    assert_eq!(next(&seen), Step::Remove);
    seen.removal = Some(Ok(vec!["Deployment.apps here/d".to_owned()]));
    assert_eq!(next(&seen), Step::Stop(StopReason::Removing(vec!["Deployment.apps here/d".to_owned()])));
    seen.removal = Some(Err(fault()));
    assert_eq!(next(&seen), Step::Stop(StopReason::Failed(fault())));
    seen.removal = Some(Ok(vec![]));
    assert_eq!(next(&seen), Step::Stop(StopReason::Removed));
}
