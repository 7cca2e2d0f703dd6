//! Decides on the next step for a hook from the live object of its name.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kyma_api::needs_delete_proof;
use serde_json::Value;

use super::hook::{DeletePolicy, Hook};

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
pub struct LiveHook {
    /// Mark of the run that created it, if a run did.
    pub mark: Option<String>,
    /// Whether a hook of this component created it, now or earlier.
    pub is_own: bool,
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

impl LiveHook {
    /// Reports whether Kubernetes deletes it once it has ended.
    pub fn vanishes(&self) -> bool {
        self.body.pointer("/spec/ttlSecondsAfterFinished").is_some_and(Value::is_number)
    }
}

/// Result of a Job or Pod: the reason of the API if it failed.
pub type HookResult = Result<(), String>;

/// State of a run's hook object as a stream showed it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HookState {
    /// Not reported yet.
    #[default]
    Unreported,
    /// The hook exists and has not ended.
    Running,
    /// The hook ended with this result, and may be deleted already.
    Ended(HookResult),
    /// The hook is gone, and had not ended when it was last shown.
    Gone,
}

/// Next step for a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookAction {
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
pub fn next_action(
    hook: &Hook,
    live: Option<&LiveHook>,
    state: &HookState,
    mark: &str,
    started: bool,
    overdue: bool,
) -> HookAction {
    if let HookState::Ended(ended) = state {
        return over(ended.clone());
    }
    let Some(live) = live else { return missing(state, started, overdue) };
    let of_this_run = live.mark.as_deref() == Some(mark);
    if of_this_run && !live.deleting {
        return verdict(hook, &live.body, overdue);
    }
    // Kubernetes deletes a Job by its `ttlSecondsAfterFinished`, which may be 0.
    if of_this_run && let Some(ended) = end(&live.body, true).filter(|_| hook.has_an_end()) {
        return over(ended);
    }
    if live.deleting {
        return HookAction::Wait;
    }
    let identity = hook.identity();
    if identity.is_crd() || identity.is_namespace() {
        return HookAction::Keep;
    }
    if needs_delete_proof(&identity.group, &identity.kind) {
        let why = "it exists and holds data, and another run created it; delete or rename it if the data is not needed";
        return HookAction::Refuse(why.to_owned());
    }
    // Helm fails if an earlier attempt left an object without the policy that deletes it; that would need a user's
    // intervention.
    if live.is_own || live.recorded || (live.is_hook && hook.goes(DeletePolicy::BeforeCreation)) {
        return HookAction::Replace;
    }
    HookAction::Failed("an object of this name exists and no hook created it; delete or rename it".to_owned())
}

/// Decides on the next step if the object of a hook is missing. A hook that has begun is never created twice, and
/// counts as failed unless its success was reported.
fn missing(state: &HookState, started: bool, overdue: bool) -> HookAction {
    match state {
        HookState::Unreported if !started => HookAction::Create,
        // The stream reports slightly later than the read.
        HookState::Unreported | HookState::Running if !overdue => HookAction::Wait,
        _ => HookAction::Failed("it no longer exists, and its result was not observed".to_owned()),
    }
}

fn over(end: HookResult) -> HookAction {
    match end {
        Ok(()) => HookAction::Succeeded,
        Err(why) => HookAction::Failed(why),
    }
}

fn verdict(hook: &Hook, body: &Value, overdue: bool) -> HookAction {
    if !hook.has_an_end() {
        return HookAction::Succeeded;
    }
    match end(body, false) {
        Some(ended) => over(ended),
        None if overdue => HookAction::Failed("it did not end in time".to_owned()),
        None => HookAction::Wait,
    }
}

/// Returns how a Job or Pod ended; `None` while it runs. A Pod that is being stopped may end as if it had succeeded,
/// so its end counts only before its deletion.
pub fn end(body: &Value, deleting: bool) -> Option<HookResult> {
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
pub fn end_by_events<'a>(reasons: impl IntoIterator<Item = &'a str>) -> Option<HookResult> {
    reasons.into_iter().find_map(|reason| match reason {
        "Completed" => Some(Ok(())),
        _ => FAILURES.contains(&reason).then(|| Err(format!("it failed: {reason}"))),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::hooks::hook::tests::{hook, object};
    use crate::hooks::hook::{DELETE_POLICY, HOOK};

    const MARK: &str = "run";

    fn live(mark: Option<&str>, body: Value) -> LiveHook {
        LiveHook {
            mark: mark.map(str::to_owned),
            is_own: mark.is_some(),
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

    fn action_for(live: Option<&LiveHook>) -> HookAction {
        next_action(
            &hook("j", &json!({HOOK: "pre-install"})),
            live,
            &HookState::Unreported,
            MARK,
            false,
            false,
        )
    }

    #[test]
    fn hook_of_this_run_counts_by_its_end_and_is_not_recreated() {
        let of_this = |body: Value| action_for(Some(&live(Some(MARK), body)));
        assert_eq!(action_for(None), HookAction::Create);
        assert_eq!(of_this(json!({})), HookAction::Wait);
        assert_eq!(of_this(job("Suspended")), HookAction::Wait);
        assert_eq!(of_this(job("Complete")), HookAction::Succeeded);
        assert_eq!(of_this(job("Failed")), HookAction::Failed("it failed: BackoffLimitExceeded".to_owned()));
        assert_eq!(of_this(json!({"status": {"phase": "Succeeded"}})), HookAction::Succeeded);
        assert!(matches!(of_this(json!({"status": {"phase": "Failed"}})), HookAction::Failed(_)));
    }

    #[test]
    fn a_late_hook_fails_unless_it_ended() {
        let late = |body: Value| {
            let live = live(Some(MARK), body);
            next_action(
                &hook("j", &json!({HOOK: "test"})),
                Some(&live),
                &HookState::Running,
                MARK,
                true,
                true,
            )
        };
        assert!(matches!(late(json!({})), HookAction::Failed(_)));
        assert_eq!(late(job("Complete")), HookAction::Succeeded);
    }

    #[test]
    fn objects_of_an_earlier_run_are_replaced_and_foreign_ones_stay() {
        assert_eq!(action_for(Some(&live(Some("earlier"), json!({})))), HookAction::Replace);
        let of_helm = live(None, json!({}));
        assert_eq!(action_for(Some(&of_helm)), HookAction::Replace);
        let keeps = hook("j", &json!({HOOK: "pre-install", DELETE_POLICY: "hook-succeeded"}));
        let kept =
            |live: &LiveHook| next_action(&keeps, Some(live), &HookState::Unreported, MARK, false, false);
        assert!(matches!(kept(&of_helm), HookAction::Failed(_)));
        let left = live(Some("earlier"), json!({}));
        assert_eq!(kept(&left), HookAction::Replace);
        let foreign = LiveHook { is_hook: false, ..of_helm };
        assert!(matches!(action_for(Some(&foreign)), HookAction::Failed(_)));
        let recorded = LiveHook { recorded: true, ..foreign.clone() };
        assert_eq!(
            action_for(Some(&recorded)),
            HookAction::Replace,
            "an ordinary object of this component became a hook"
        );
        assert_eq!(kept(&recorded), HookAction::Replace);
        let going = LiveHook { deleting: true, ..foreign };
        assert_eq!(action_for(Some(&going)), HookAction::Wait);
    }

    #[test]
    fn an_object_that_holds_data_is_never_replaced() {
        let of = |kind: &str, live: &LiveHook| {
            let mut body = object(kind, "o", &json!({HOOK: "pre-upgrade"})).into_value();
            if kind == "CustomResourceDefinition" {
                body["apiVersion"] = json!("apiextensions.k8s.io/v1");
            }
            let hook = Hook::of(kyma_object_set::Object::from_value(body).unwrap()).unwrap();
            next_action(&hook, Some(live), &HookState::Unreported, MARK, false, false)
        };
        let earlier = live(Some("earlier"), json!({}));
        let of_helm = live(None, json!({}));
        let recorded = LiveHook { recorded: true, is_hook: false, ..of_helm.clone() };
        for live in [&earlier, &of_helm, &recorded] {
            for kind in ["Namespace", "CustomResourceDefinition"] {
                assert_eq!(of(kind, live), HookAction::Keep, "{kind}");
            }
            for kind in ["PersistentVolumeClaim", "PersistentVolume"] {
                assert!(matches!(of(kind, live), HookAction::Refuse(_)), "{kind}");
            }
        }
        let of_this_run = live(Some(MARK), json!({}));
        assert_eq!(of("PersistentVolumeClaim", &of_this_run), HookAction::Succeeded);
    }

    #[test]
    fn other_kinds_are_done_when_they_exist() {
        let map = Hook::of(object("ConfigMap", "c", &json!({HOOK: "pre-install"}))).unwrap();
        let there = live(Some(MARK), json!({}));
        assert_eq!(
            next_action(&map, Some(&there), &HookState::Unreported, MARK, false, false),
            HookAction::Succeeded
        );
    }

    /// Returns the next step for a hook whose object is missing.
    fn gone(state: &HookState, started: bool, overdue: bool) -> HookAction {
        next_action(&hook("j", &json!({HOOK: "test"})), None, state, MARK, started, overdue)
    }

    #[test]
    fn an_end_that_was_seen_counts_though_the_object_is_gone() {
        for (started, overdue) in [(false, false), (true, false), (true, true)] {
            assert_eq!(gone(&HookState::Ended(Ok(())), started, overdue), HookAction::Succeeded);
            let failed = gone(&HookState::Ended(Err("it failed: why".to_owned())), started, overdue);
            assert_eq!(failed, HookAction::Failed("it failed: why".to_owned()));
        }
        let going = LiveHook { deleting: true, ..live(Some(MARK), job("Complete")) };
        assert_eq!(action_for(Some(&going)), HookAction::Succeeded);
        let earlier = LiveHook { mark: Some("earlier".to_owned()), ..going };
        assert_eq!(action_for(Some(&earlier)), HookAction::Wait, "another run's");
    }

    #[test]
    fn lost_hook_fails_once_no_watch_can_report_it_and_never_reruns() {
        assert_eq!(gone(&HookState::Unreported, false, false), HookAction::Create);
        assert_eq!(gone(&HookState::Unreported, true, false), HookAction::Wait);
        assert_eq!(gone(&HookState::Running, false, false), HookAction::Wait);
        let lost = HookAction::Failed("it no longer exists, and its result was not observed".to_owned());
        assert_eq!(gone(&HookState::Unreported, true, true), lost);
        assert_eq!(gone(&HookState::Running, true, true), lost);
        for started in [false, true] {
            assert_eq!(gone(&HookState::Gone, started, false), lost);
        }
    }

    #[test]
    fn a_pod_that_is_being_stopped_did_not_succeed() {
        let pod = |phase: &str| json!({"status": {"phase": phase}});
        assert_eq!(end(&pod("Succeeded"), false), Some(Ok(())));
        assert_eq!((end(&pod("Succeeded"), true), end(&pod("Failed"), true)), (None, None));
        assert_eq!(end(&job("Complete"), true), Some(Ok(())));
    }

    #[test]
    fn events_report_how_a_deleted_job_ended() {
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
