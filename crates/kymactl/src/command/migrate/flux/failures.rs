//! Converts timeouts and remediation. Pure.

use kyma_api::{Rollback, RollbackMode, Timeouts};
use serde_json::Value;

use super::facts::{is_set, text};
use super::finding::{Finding, Severity};

/// Flux's default timeout in seconds.
const DEFAULT_TIMEOUT_SECONDS: i32 = 300;
/// Maximum timeout of a component in seconds.
const MAX_TIMEOUT_SECONDS: u64 = 86_400;

/// Returns the timeouts for hooks, health and removal.
pub(super) fn timeouts(spec: &Value, findings: &mut Vec<Finding>) -> Option<Timeouts> {
    let mut seconds = |pointers: &[&str]| {
        let (pointer, value) = pointers.iter().find_map(|pointer| Some((pointer, text(spec, pointer)?)))?;
        let found = duration(value);
        if found.is_none() {
            let place = format!("spec{}", pointer.replace('/', "."));
            findings.push(Finding::new(place, Severity::NotConverted, format!("{value} is not a duration")));
        }
        found
    };
    let each = seconds(&["/upgrade/timeout", "/timeout"]);
    let delete_seconds = seconds(&["/uninstall/timeout"]);
    let fails = each.or_else(|| rollback(spec).map(|_| DEFAULT_TIMEOUT_SECONDS));
    let health_seconds = fails.filter(|_| !is_set(spec, "/upgrade/disableWait"));
    let made = Timeouts { hook_seconds: each, health_seconds, delete_seconds, ..Timeouts::default() };
    (made != Timeouts::default()).then_some(made)
}

/// Parses a Go duration to seconds, rounded up.
fn duration(text: &str) -> Option<i32> {
    let mut milliseconds = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        milliseconds += number
            * match &rest[..end] {
                "ms" => 1.0,
                "s" => 1_000.0,
                "m" => 60_000.0,
                "h" => 3_600_000.0,
                _ => return None,
            };
        rest = &rest[end..];
    }
    let seconds = std::time::Duration::try_from_secs_f64(milliseconds / 1_000.0).ok()?;
    let whole = seconds.as_secs() + u64::from(seconds.subsec_nanos() > 0);
    i32::try_from(whole.clamp(1, MAX_TIMEOUT_SECONDS)).ok()
}

/// Returns the rollback setting. Flux rolls a failed upgrade back if `remediation` has retries or sets
/// `remediateLastFailure`, unless the strategy is to uninstall or to retry.
pub(super) fn rollback(spec: &Value) -> Option<Rollback> {
    if tries_again(spec) {
        return None;
    }
    let remediation = spec.pointer("/upgrade/remediation")?;
    let retries = remediation["retries"].as_i64().unwrap_or_default() != 0;
    let remediates = remediation["remediateLastFailure"].as_bool().unwrap_or(retries);
    let rolls_back = text(remediation, "/strategy").unwrap_or("rollback") == "rollback";
    ((retries || remediates) && rolls_back).then_some(Rollback { mode: RollbackMode::OnFailure })
}

/// Reports whether the strategy ignores `remediation`.
fn tries_again(spec: &Value) -> bool {
    text(spec, "/upgrade/strategy/name") == Some("RetryOnFailure")
}

/// Returns a finding if Flux would uninstall a release after a failed upgrade.
pub(super) fn uninstalls(spec: &Value) -> Option<Finding> {
    let place = "spec.upgrade.remediation.strategy";
    let is_it = text(spec, "/upgrade/remediation/strategy") == Some("uninstall") && !tries_again(spec);
    let says = "a failed upgrade uninstalls nothing: the release stays, and the upgrade is retried";
    is_it.then(|| Finding::new(place, Severity::NotConverted, says))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failure_that_flux_only_retries_is_not_rolled_back() {
        let rolls_back = |upgrade: Value| rollback(&json!({"upgrade": upgrade})).is_some();
        let remediation = json!({"retries": 3});
        assert!(rolls_back(json!({"remediation": remediation})));
        let strategy = |name: &str| json!({"remediation": remediation, "strategy": {"name": name}});
        assert!(!rolls_back(strategy("RetryOnFailure")));
        assert!(rolls_back(strategy("RemediateOnFailure")));
        assert!(!rolls_back(json!({"strategy": {"name": "RemediateOnFailure"}})));
    }

    #[test]
    fn an_upgrade_failure_that_flux_uninstalls_is_reported() {
        let told = |upgrade: Value| uninstalls(&json!({"upgrade": upgrade})).map(|one| one.severity);
        let remediation = json!({"retries": 3, "strategy": "uninstall"});
        assert_eq!(told(json!({"remediation": remediation})), Some(Severity::NotConverted));
        let strategy = json!({"name": "RetryOnFailure"});
        assert_eq!(told(json!({"remediation": remediation, "strategy": strategy})), None);
        assert_eq!(told(json!({"remediation": {"retries": 3}})), None);
    }

    #[test]
    fn durations_of_go_are_seconds() {
        for (text, seconds) in [
            ("5m0s", Some(300)),
            ("1h30m", Some(5400)),
            ("500ms", Some(1)),
            ("1.5m", Some(90)),
            ("x", None),
            ("5", None),
        ] {
            assert_eq!(duration(text), seconds, "{text}");
        }
    }
}
