use super::*;
use crate::plan::tests::{deployment, fault, fresh, object, running};
use crate::plan::{Content, ObjectState, Observed, next};

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

#[test]
fn release_is_recorded_by_its_result_and_only_once() {
    let due_for = |deployed: bool, failed: bool, failure: Option<Failure>, result: ApplyResult| {
        due(&HistoryDue { deployed, failed, failure }, result)
    };
    let (refused, complete) = (ApplyResult::Refused, ApplyResult::Complete { is_loaded: true });
    // Neither a release without records nor a recorded one is recorded.
    assert_eq!(due_for(false, false, None, refused), None);
    assert_eq!(due_for(false, false, None, complete), None);
    // The result selects the status.
    assert_eq!(due_for(true, true, None, refused), Some(Step::Record(ReleaseStatus::Failed)));
    assert_eq!(due_for(true, true, None, complete), Some(Step::Record(ReleaseStatus::Deployed)));
    assert_eq!(due_for(true, false, None, refused), None);
    assert_eq!(due_for(false, true, None, complete), None);
    let unloaded = ApplyResult::Complete { is_loaded: false };
    assert_eq!(due_for(true, false, None, unloaded), Some(Step::Load), "the record needs the content");
    // A write that failed is not repeated in the same pass.
    let stop = Step::Stop(StopReason::Failed(fault()));
    assert_eq!(due_for(true, false, Some(fault()), complete), Some(stop));
}
