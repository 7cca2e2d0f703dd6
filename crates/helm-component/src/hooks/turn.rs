//! Decides on the next step for a hook from the live object of its name.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kyma_api::needs_delete_proof;
use serde_json::Value;

use super::{DeletePolicy, Hook};

/// Reasons for which Jobs fail, as in their conditions and events. Source: `staging/src/k8s.io/api/batch/v1/types.go`
/// of Kubernetes.
const FAILURES: [&str; 5] = [
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "PodFailurePolicy",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
];

/// Live object at the identity of a hook.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one object")]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Live {
    /// Mark of the run that created it, if a run did.
    pub mark: Option<String>,
    /// Whether a hook of this component created it, now or earlier.
    pub ours: bool,
    /// Whether it carries Helm's annotation.
    pub is_hook: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Time of its creation.
    pub created: Option<Timestamp>,
    /// Uid.
    pub uid: Option<String>,
    /// Whether the component applied it as an ordinary object: it became a hook in this revision.
    pub recorded: bool,
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The whole object without metadata.
    pub body: Value,
}

impl Live {
    /// Reports whether Kubernetes deletes it once it has ended.
    pub(crate) fn vanishes(&self) -> bool {
        self.body.pointer("/spec/ttlSecondsAfterFinished").is_some_and(Value::is_number)
    }
}

/// Result of a Job or Pod: the reason of the API if it failed.
pub(crate) type End = Result<(), String>;

/// State of a run's hook object as a stream showed it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum HookState {
    /// Not reported yet.
    #[default]
    Nothing,
    /// The hook exists and has not ended.
    Running,
    /// The hook ended with this result, and may be deleted already.
    Ended(End),
    /// The hook is gone, and had not ended when it was last shown.
    Gone,
}

/// Next step for a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Create its object.
    Create,
    /// Delete the object that an earlier run left.
    Replace,
    /// Leave the object as it is: it contains other objects, which would be deleted with it.
    Keep,
    /// Wait until the user deletes or renames the object, for this reason.
    Refuse(String),
    /// Wait for an event.
    Wait,
    /// The hook succeeded; the next hook may run.
    Succeeded,
    /// The hook failed, with the reason.
    Failed(String),
}

/// Decides on the next step for a hook whose run has this mark. `started`: whether it was seen running or was just
/// created. `overdue`: whether its deadline has passed or, if the object is missing, whether a stream had enough time
/// to report its end.
pub(crate) fn turn(
    hook: &Hook,
    live: Option<&Live>,
    told: &HookState,
    mark: &str,
    started: bool,
    overdue: bool,
) -> Turn {
    if let HookState::Ended(ended) = told {
        return over(ended.clone());
    }
    let Some(live) = live else { return missing(told, started, overdue) };
    let of_this_run = live.mark.as_deref() == Some(mark);
    if of_this_run && !live.deleting {
        return verdict(hook, &live.body, overdue);
    }
    // Kubernetes deletes a Job by its `ttlSecondsAfterFinished`, which may be 0.
    if of_this_run && let Some(ended) = end(&live.body, true).filter(|_| hook.has_an_end()) {
        return over(ended);
    }
    if live.deleting {
        return Turn::Wait;
    }
    let identity = hook.identity();
    if identity.is_crd() || identity.is_namespace() {
        return Turn::Keep;
    }
    if needs_delete_proof(&identity.group, &identity.kind) {
        let why = "it exists and holds data, and another run created it; delete or rename it if the data is not needed";
        return Turn::Refuse(why.to_owned());
    }
    // Helm fails if an earlier attempt left an object without the policy that deletes it; that would need a user's
    // intervention.
    if live.ours || live.recorded || (live.is_hook && hook.goes(DeletePolicy::BeforeCreation)) {
        return Turn::Replace;
    }
    Turn::Failed("an object of this name exists and no hook made it; delete or rename it".to_owned())
}

/// Decides on the next step if the object of a hook is missing. A hook that has begun is never created twice, and
/// counts as failed unless its success was reported.
fn missing(told: &HookState, started: bool, overdue: bool) -> Turn {
    match told {
        HookState::Nothing if !started => Turn::Create,
        // The stream reports slightly later than the read.
        HookState::Nothing | HookState::Running if !overdue => Turn::Wait,
        _ => Turn::Failed("it is gone, and nobody saw how it ended".to_owned()),
    }
}

fn over(end: End) -> Turn {
    match end {
        Ok(()) => Turn::Succeeded,
        Err(why) => Turn::Failed(why),
    }
}

fn verdict(hook: &Hook, body: &Value, overdue: bool) -> Turn {
    if !hook.has_an_end() {
        return Turn::Succeeded;
    }
    match end(body, false) {
        Some(ended) => over(ended),
        None if overdue => Turn::Failed("it did not end in time".to_owned()),
        None => Turn::Wait,
    }
}

/// Returns how a Job or Pod ended; `None` while it runs. A Pod that is being stopped may end as if it had succeeded,
/// so its end counts only before its deletion.
pub(crate) fn end(body: &Value, deleting: bool) -> Option<End> {
    let conditions = body.pointer("/status/conditions").and_then(Value::as_array);
    let holds = |type_: &str| {
        let mut all = conditions.into_iter().flatten();
        all.find(|condition| condition["type"] == type_ && condition["status"] == "True")
    };
    if let Some(failed) = holds("Failed") {
        let reason = failed["reason"].as_str().unwrap_or_default();
        return Some(Err(format!("it failed: {reason}")));
    }
    match body.pointer("/status/phase").and_then(Value::as_str) {
        Some(_) if deleting => None,
        Some("Succeeded") => Some(Ok(())),
        Some("Failed") => {
            let reason = body.pointer("/status/reason").and_then(Value::as_str).unwrap_or("the Pod failed");
            Some(Err(format!("it failed: {reason}")))
        }
        _ => holds("Complete").map(|_| Ok(())),
    }
}

/// Returns how a Job ended, by the reasons of its controller's events, which remain for a while after its deletion.
pub(crate) fn end_by_events<'a>(reasons: impl IntoIterator<Item = &'a str>) -> Option<End> {
    reasons.into_iter().find_map(|reason| match reason {
        "Completed" => Some(Ok(())),
        _ => FAILURES.contains(&reason).then(|| Err(format!("it failed: {reason}"))),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::hooks::tests::{hook, object};
    use crate::hooks::{DELETE_POLICY, HOOK};

    const MARK: &str = "run";

    fn live(mark: Option<&str>, body: Value) -> Live {
        Live {
            mark: mark.map(str::to_owned),
            ours: mark.is_some(),
            is_hook: true,
            deleting: false,
            created: None,
            uid: None,
            recorded: false,
            metadata: ObjectMeta::default(),
            body,
        }
    }

    fn job(condition: &str) -> Value {
        json!({"status": {"conditions": [
            {"type": "Suspended", "status": "True"},
            {"type": condition, "status": "True", "reason": "BackoffLimitExceeded"},
        ]}})
    }

    fn taken(live: Option<&Live>) -> Turn {
        turn(&hook("j", &json!({HOOK: "pre-install"})), live, &HookState::Nothing, MARK, false, false)
    }

    #[test]
    fn a_hook_of_this_run_counts_by_its_end_and_is_never_created_twice() {
        let of_this = |body: Value| taken(Some(&live(Some(MARK), body)));
        assert_eq!(taken(None), Turn::Create);
        assert_eq!(of_this(json!({})), Turn::Wait);
        assert_eq!(of_this(job("Suspended")), Turn::Wait);
        assert_eq!(of_this(job("Complete")), Turn::Succeeded);
        assert_eq!(of_this(job("Failed")), Turn::Failed("it failed: BackoffLimitExceeded".to_owned()));
        assert_eq!(of_this(json!({"status": {"phase": "Succeeded"}})), Turn::Succeeded);
        assert!(matches!(of_this(json!({"status": {"phase": "Failed"}})), Turn::Failed(_)));
    }

    #[test]
    fn one_that_takes_too_long_fails_unless_it_ended() {
        let late = |body: Value| {
            let live = live(Some(MARK), body);
            turn(&hook("j", &json!({HOOK: "test"})), Some(&live), &HookState::Running, MARK, true, true)
        };
        assert!(matches!(late(json!({})), Turn::Failed(_)));
        assert_eq!(late(job("Complete")), Turn::Succeeded);
    }

    #[test]
    fn what_an_earlier_run_left_is_replaced_and_what_is_somebody_elses_stays() {
        assert_eq!(taken(Some(&live(Some("earlier"), json!({})))), Turn::Replace);
        let of_helm = live(None, json!({}));
        assert_eq!(taken(Some(&of_helm)), Turn::Replace);
        let keeps = hook("j", &json!({HOOK: "pre-install", DELETE_POLICY: "hook-succeeded"}));
        let kept = |live: &Live| turn(&keeps, Some(live), &HookState::Nothing, MARK, false, false);
        assert!(matches!(kept(&of_helm), Turn::Failed(_)));
        let left = live(Some("earlier"), json!({}));
        assert_eq!(kept(&left), Turn::Replace);
        let foreign = Live { is_hook: false, ..of_helm };
        assert!(matches!(taken(Some(&foreign)), Turn::Failed(_)));
        let recorded = Live { recorded: true, ..foreign.clone() };
        assert_eq!(
            taken(Some(&recorded)),
            Turn::Replace,
            "an ordinary object of this component became a hook"
        );
        assert_eq!(kept(&recorded), Turn::Replace);
        let going = Live { deleting: true, ..foreign };
        assert_eq!(taken(Some(&going)), Turn::Wait);
    }

    #[test]
    fn an_object_that_holds_data_is_never_replaced() {
        let of = |kind: &str, live: &Live| {
            let mut body = object(kind, "o", &json!({HOOK: "pre-upgrade"})).into_value();
            if kind == "CustomResourceDefinition" {
                body["apiVersion"] = json!("apiextensions.k8s.io/v1");
            }
            let hook = Hook::of(kyma_object_set::Object::from_value(body).unwrap()).unwrap();
            turn(&hook, Some(live), &HookState::Nothing, MARK, false, false)
        };
        let earlier = live(Some("earlier"), json!({}));
        let of_helm = live(None, json!({}));
        let recorded = Live { recorded: true, is_hook: false, ..of_helm.clone() };
        for live in [&earlier, &of_helm, &recorded] {
            for kind in ["Namespace", "CustomResourceDefinition"] {
                assert_eq!(of(kind, live), Turn::Keep, "{kind}");
            }
            for kind in ["PersistentVolumeClaim", "PersistentVolume"] {
                assert!(matches!(of(kind, live), Turn::Refuse(_)), "{kind}");
            }
        }
        let of_this_run = live(Some(MARK), json!({}));
        assert_eq!(of("PersistentVolumeClaim", &of_this_run), Turn::Succeeded);
    }

    #[test]
    fn other_kinds_are_done_when_they_exist() {
        let map = Hook::of(object("ConfigMap", "c", &json!({HOOK: "pre-install"}))).unwrap();
        let there = live(Some(MARK), json!({}));
        assert_eq!(turn(&map, Some(&there), &HookState::Nothing, MARK, false, false), Turn::Succeeded);
    }

    /// Returns the next step for a hook whose object is missing.
    fn gone(told: &HookState, started: bool, overdue: bool) -> Turn {
        turn(&hook("j", &json!({HOOK: "test"})), None, told, MARK, started, overdue)
    }

    #[test]
    fn an_end_that_was_seen_counts_though_the_object_is_gone() {
        for (started, overdue) in [(false, false), (true, false), (true, true)] {
            assert_eq!(gone(&HookState::Ended(Ok(())), started, overdue), Turn::Succeeded);
            let failed = gone(&HookState::Ended(Err("it failed: why".to_owned())), started, overdue);
            assert_eq!(failed, Turn::Failed("it failed: why".to_owned()));
        }
        let going = Live { deleting: true, ..live(Some(MARK), job("Complete")) };
        assert_eq!(taken(Some(&going)), Turn::Succeeded);
        let earlier = Live { mark: Some("earlier".to_owned()), ..going };
        assert_eq!(taken(Some(&earlier)), Turn::Wait, "another run's");
    }

    #[test]
    fn what_nobody_saw_end_failed_once_no_stream_can_tell_and_never_runs_twice() {
        assert_eq!(gone(&HookState::Nothing, false, false), Turn::Create);
        assert_eq!(gone(&HookState::Nothing, true, false), Turn::Wait);
        assert_eq!(gone(&HookState::Running, false, false), Turn::Wait);
        let lost = Turn::Failed("it is gone, and nobody saw how it ended".to_owned());
        assert_eq!(gone(&HookState::Nothing, true, true), lost);
        assert_eq!(gone(&HookState::Running, true, true), lost);
        for started in [false, true] {
            assert_eq!(gone(&HookState::Gone, started, false), lost);
        }
    }

    #[test]
    fn a_pod_that_is_told_to_stop_did_not_succeed() {
        let pod = |phase: &str| json!({"status": {"phase": phase}});
        assert_eq!(end(&pod("Succeeded"), false), Some(Ok(())));
        assert_eq!((end(&pod("Succeeded"), true), end(&pod("Failed"), true)), (None, None));
        assert_eq!(end(&job("Complete"), true), Some(Ok(())));
    }

    #[test]
    fn events_tell_how_a_job_ended_that_is_gone() {
        let failed = |reason: &str| Some(Err(format!("it failed: {reason}")));
        assert_eq!(end_by_events(["SuccessfulCreate", "Completed"]), Some(Ok(())));
        for reason in FAILURES {
            assert_eq!(end_by_events(["SuccessfulCreate", reason]), failed(reason));
        }
        assert_eq!(
            end_by_events(["SuccessfulCreate", "FailedCreate", "Suspended", "SuccessfulDelete"]),
            None
        );
        assert_eq!(end_by_events([]), None);
    }

    #[test]
    fn a_job_with_a_time_to_live_goes_by_itself() {
        let vanishes = |spec: Value| live(Some(MARK), json!({"spec": spec})).vanishes();
        assert!(vanishes(json!({"ttlSecondsAfterFinished": 0})));
        assert!(!vanishes(json!({"ttlSecondsAfterFinished": null})) && !vanishes(json!({})));
    }
}
