//! What to do with one hook, from what is found in its place.

use jiff::Timestamp;
use serde_json::Value;

use super::{DeletePolicy, Hook};

/// What is found in the place of a hook.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Live {
    /// The run that made it, where one did.
    pub mark: Option<String>,
    /// Whether a hook of this component made it, now or earlier.
    pub ours: bool,
    /// Whether it bears Helm's annotation.
    pub is_hook: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Which one it is.
    pub uid: Option<String>,
    /// The whole of it, without metadata.
    pub body: Value,
}

/// What to do with a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Create its object.
    Create,
    /// Delete what an earlier run left in its place.
    Replace,
    /// Wait for an event.
    Wait,
    /// It is done; the next one may run.
    Passed,
    /// It failed, and why.
    Failed(String),
}

/// What to do with a hook whose run has this mark. `started`: whether it was seen running.
pub(crate) fn turn(hook: &Hook, live: Option<&Live>, mark: &str, started: bool, overdue: bool) -> Turn {
    let Some(live) = live else {
        let lost = started.then(|| Turn::Failed("it is gone, and nobody saw how it ended".to_owned()));
        return lost.unwrap_or(Turn::Create);
    };
    let of_this_run = live.mark.as_deref() == Some(mark);
    if of_this_run && !live.deleting {
        return verdict(hook, &live.body, overdue);
    }
    if live.deleting {
        return Turn::Wait;
    }
    if hook.identity().is_crd() {
        return Turn::Passed;
    }
    // Helm fails where an earlier try left something without the policy that deletes it; that would need a human.
    if live.ours || (live.is_hook && hook.goes(DeletePolicy::BeforeCreation)) {
        return Turn::Replace;
    }
    Turn::Failed("an object of this name exists and no hook made it; delete or rename it".to_owned())
}

fn verdict(hook: &Hook, body: &Value, overdue: bool) -> Turn {
    if !hook.has_an_end() {
        return Turn::Passed;
    }
    match end(body) {
        Some(Ok(())) => Turn::Passed,
        Some(Err(why)) => Turn::Failed(why),
        None if overdue => Turn::Failed("it did not end in time".to_owned()),
        None => Turn::Wait,
    }
}

/// How a Job or Pod ended, in words of the API; `None` while it runs.
fn end(body: &Value) -> Option<Result<(), String>> {
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
        Some("Succeeded") => Some(Ok(())),
        Some("Failed") => {
            let reason = body.pointer("/status/reason").and_then(Value::as_str).unwrap_or("the Pod failed");
            Some(Err(format!("it failed: {reason}")))
        }
        _ => holds("Complete").map(|_| Ok(())),
    }
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
        turn(&hook("j", &json!({HOOK: "pre-install"})), live, MARK, false, false)
    }

    #[test]
    fn a_hook_of_this_run_counts_by_its_end_and_is_never_created_twice() {
        let of_this = |body: Value| taken(Some(&live(Some(MARK), body)));
        assert_eq!(taken(None), Turn::Create);
        assert_eq!(of_this(json!({})), Turn::Wait);
        assert_eq!(of_this(job("Suspended")), Turn::Wait);
        assert_eq!(of_this(job("Complete")), Turn::Passed);
        assert_eq!(of_this(job("Failed")), Turn::Failed("it failed: BackoffLimitExceeded".to_owned()));
        assert_eq!(of_this(json!({"status": {"phase": "Succeeded"}})), Turn::Passed);
        assert!(matches!(of_this(json!({"status": {"phase": "Failed"}})), Turn::Failed(_)));
        let started = turn(&hook("j", &json!({HOOK: "test"})), None, MARK, true, false);
        assert!(matches!(started, Turn::Failed(_)), "{started:?}");
    }

    #[test]
    fn one_that_takes_too_long_fails_unless_it_ended() {
        let late = |body: Value| {
            turn(&hook("j", &json!({HOOK: "test"})), Some(&live(Some(MARK), body)), MARK, true, true)
        };
        assert!(matches!(late(json!({})), Turn::Failed(_)));
        assert_eq!(late(job("Complete")), Turn::Passed);
    }

    #[test]
    fn what_an_earlier_run_left_is_replaced_and_what_is_somebody_elses_stays() {
        assert_eq!(taken(Some(&live(Some("earlier"), json!({})))), Turn::Replace);
        let of_helm = live(None, json!({}));
        assert_eq!(taken(Some(&of_helm)), Turn::Replace);
        let keeps = hook("j", &json!({HOOK: "pre-install", DELETE_POLICY: "hook-succeeded"}));
        assert!(matches!(turn(&keeps, Some(&of_helm), MARK, false, false), Turn::Failed(_)));
        let left = live(Some("earlier"), json!({}));
        assert_eq!(turn(&keeps, Some(&left), MARK, false, false), Turn::Replace);
        let foreign = Live { is_hook: false, ..of_helm };
        assert!(matches!(taken(Some(&foreign)), Turn::Failed(_)));
        let going = Live { deleting: true, ..foreign };
        assert_eq!(taken(Some(&going)), Turn::Wait);
    }

    #[test]
    fn other_kinds_are_done_when_they_exist() {
        let map = Hook::of(object("ConfigMap", "c", &json!({HOOK: "pre-install"}))).unwrap();
        assert_eq!(turn(&map, Some(&live(Some(MARK), json!({}))), MARK, false, false), Turn::Passed);
    }
}
