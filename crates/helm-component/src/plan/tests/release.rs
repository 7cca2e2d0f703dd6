//! Helm's record of a release: found on the target, or written.

use super::*;

#[test]
fn helms_record_is_looked_for_before_anything_is_written() {
    let mut seen =
        Observed { namespace_ready: false, helm_release_unread: true, ..fresh(vec![object(deployment())]) };
    seen.existing_installation = ExistingInstallation::Unread;
    assert_eq!(next(&seen), Step::ReadExistingInstallation);
    seen.existing_installation = ExistingInstallation::None;
    assert_eq!(next(&seen), Step::FindHelmRelease);
    seen.helm_release_unread = false;
    assert_eq!(next(&seen), Step::Namespace);
}

#[test]
fn a_release_is_recorded_once_all_of_it_is_there() {
    let mut seen =
        Observed { watched: true, content: Content::Loaded, ..running(vec![object(deployment())]) };
    seen.history.deployed = true;
    assert_eq!(next(&seen), Step::Record(ReleaseStatus::Deployed));
    seen.content = Content::Recorded;
    assert_eq!(next(&seen), Step::Load, "it takes the objects to record them");
    seen.history.failure = Some(fault());
    assert_eq!(next(&seen), Step::Stop(StopReason::Failed(fault())), "it is not tried twice");
    seen.history = HistoryDue { deployed: true, ..HistoryDue::default() };
    seen.objects[0].served = false;
    assert!(matches!(next(&seen), Step::Stop(StopReason::MissingKinds(_))));
}

#[test]
fn a_release_that_cannot_be_applied_is_recorded_as_failed() {
    let mut seen = fresh(vec![ObjectState { fault: Some(fault()), ..object(deployment()) }]);
    seen.applied = true;
    seen.history.failed = true;
    assert_eq!(next(&seen), Step::Record(ReleaseStatus::Failed));
    seen.history.failed = false;
    assert_eq!(next(&seen), Step::Stop(StopReason::Failed(fault())));
}
