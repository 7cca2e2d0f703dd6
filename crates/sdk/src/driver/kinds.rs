//! Kinds of the target that a component names in `dependsOn`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as metav1;
use kube::api::ApiResource;
use kyma_api::{
    GroupKind, Reason,
    condition::{self, Condition, Status},
};
use kyma_controller::{Failure, WatchSpec, served_kinds};

use super::state::Driver;
use crate::component::{Component, Progress};
use crate::context::Context;
use crate::dependencies::Kind;

const DEPENDENCIES_READY: &str = condition::types::DEPENDENCIES_READY;
/// Time between two lookups of a kind that is missing for less than [`EARLY_LOOKUP_PERIOD`]. Discovery lags behind the
/// event of the CRD.
pub(super) const LOOKUP_INTERVAL: Duration = Duration::from_secs(15);
/// Time between two lookups of a kind that is missing for longer.
pub(super) const LATE_LOOKUP_INTERVAL: Duration = Duration::from_mins(2);
/// Time after which a missing kind is looked up less often.
const EARLY_LOOKUP_PERIOD: Duration = Duration::from_mins(2);
/// Maximum number of names in a message.
const MAX_NAMES: usize = 10;

impl<C: Component> Driver<C> {
    /// Looks up the kinds that the component depends on and returns the condition `DependenciesReady`; `None` if the
    /// component depends on no kind and the status mentions none. The CRDs of the target are watched from then on.
    pub(super) async fn look_up_kinds(&self, context: &Context<C::Resource>) -> Option<Lookup> {
        // helm-component reports kinds itself, from the discovery that its components on a target share.
        if Kind::of::<C::Resource>() == Kind::helm() {
            return None;
        }
        let kinds: Vec<GroupKind> =
            context.contract.spec.depends_on.iter().filter_map(|one| one.api.clone()).collect();
        if kinds.is_empty() {
            let held = self.reported(context, DEPENDENCIES_READY)?;
            let is_reported = held.status == "Unknown" || held.reason == Reason::DependencyMissing.as_str();
            return is_reported
                .then(|| Lookup { condition: judge(&kinds, Ok(vec![])), again: LOOKUP_INTERVAL });
        }
        context.watch(WatchSpec::in_kind(&ApiResource::erase::<CustomResourceDefinition>(&())));
        let condition = judge(&kinds, served_kinds(&context.target.client(), &kinds).await);
        let again = lookup_interval(self.reported(context, DEPENDENCIES_READY).as_ref(), Timestamp::now());
        Some(Lookup { condition, again })
    }

    /// Returns a condition of the current status.
    pub(super) fn reported(&self, context: &Context<C::Resource>, type_: &str) -> Option<metav1::Condition> {
        let mut status = self.status.current(&context.resource).unwrap_or_default();
        let conditions = status.remove("conditions").unwrap_or_default();
        let conditions: Vec<metav1::Condition> = serde_json::from_value(conditions).unwrap_or_default();
        condition::get(&conditions, type_).cloned()
    }
}

/// Result of a lookup.
pub(super) struct Lookup {
    /// The condition `DependenciesReady`.
    condition: Condition,
    /// Time until the next lookup if a kind is missing.
    again: Duration,
}

/// Returns the time until the next lookup of a kind whose absence this condition reports.
pub(super) fn lookup_interval(reported: Option<&metav1::Condition>, now: Timestamp) -> Duration {
    let Some(reported) = reported.filter(|one| one.status != "True") else { return LOOKUP_INTERVAL };
    let age = Duration::try_from(now.duration_since(reported.last_transition_time.0)).unwrap_or_default();
    if age < EARLY_LOOKUP_PERIOD { LOOKUP_INTERVAL } else { LATE_LOOKUP_INTERVAL }
}

/// Adds the condition to the progress of a step, unless the component reports the condition itself.
pub(super) fn with_kinds(kinds: Option<Lookup>, mut progress: Progress) -> Progress {
    let Some(Lookup { condition: kinds, again }) = kinds else { return progress };
    if progress.conditions.iter().any(|one| one.type_ == DEPENDENCIES_READY) {
        return progress;
    }
    if kinds.status != Status::True {
        progress = progress.again_within(again);
    }
    progress.conditions.push(kinds);
    progress
}

/// Compares the kinds that a component depends on with those that the target serves.
fn judge(kinds: &[GroupKind], served: Result<Vec<ApiResource>, Failure>) -> Condition {
    let served = match served {
        Ok(served) => served,
        Err(failure) => {
            return Condition::new(DEPENDENCIES_READY, Status::Unknown, failure.reason)
                .with_message(failure.message);
        }
    };
    let is_served = |wanted: &GroupKind| {
        served.iter().any(|resource| {
            resource.group == wanted.group
                && resource.kind == wanted.kind
                && wanted.version.as_ref().is_none_or(|version| *version == resource.version)
        })
    };
    let missing: Vec<String> = kinds.iter().filter(|kind| !is_served(kind)).map(name).collect();
    if missing.is_empty() {
        return Condition::new(DEPENDENCIES_READY, Status::True, Reason::Succeeded);
    }
    let message = format!("the target does not serve {}", listing(&missing));
    Condition::new(DEPENDENCIES_READY, Status::False, Reason::DependencyMissing).with_message(message)
}

/// Returns the first names, and the number of the others.
pub(super) fn listing(names: &[String]) -> String {
    let first = names.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Returns `Kind.group`, with the version if the component names one.
pub(super) fn name(kind: &GroupKind) -> String {
    let GroupKind { group, version, kind } = kind;
    let name = if group.is_empty() { kind.clone() } else { format!("{kind}.{group}") };
    version.as_ref().map_or_else(|| name.clone(), |version| format!("{name} in version {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lamp(version: Option<&str>) -> GroupKind {
        GroupKind {
            group: "example.org".to_owned(),
            version: version.map(str::to_owned),
            kind: "Lamp".to_owned(),
        }
    }

    fn served_lamp() -> ApiResource {
        ApiResource {
            group: "example.org".to_owned(),
            version: "v1".to_owned(),
            api_version: "example.org/v1".to_owned(),
            kind: "Lamp".to_owned(),
            plural: "lamps".to_owned(),
        }
    }

    #[test]
    fn a_kind_is_missing_until_its_group_and_version_are_served() {
        let judged = |kind: GroupKind, served: Vec<ApiResource>| {
            let judged = judge(&[kind], Ok(served));
            (judged.status, judged.reason, judged.message)
        };
        let ready = (Status::True, Reason::Succeeded, String::new());
        assert_eq!(judged(lamp(None), vec![served_lamp()]), ready);
        assert_eq!(judged(lamp(Some("v1")), vec![served_lamp()]), ready);
        let missing = |message: &str| (Status::False, Reason::DependencyMissing, message.to_owned());
        let none = missing("the target does not serve Lamp.example.org");
        assert_eq!(judged(lamp(None), vec![]), none);
        let version = missing("the target does not serve Lamp.example.org in version v2");
        assert_eq!(judged(lamp(Some("v2")), vec![served_lamp()]), version);
        let of_another_group = GroupKind { group: "example.com".to_owned(), ..lamp(None) };
        let group = missing("the target does not serve Lamp.example.com");
        assert_eq!(judged(of_another_group, vec![served_lamp()]), group);
    }

    fn lookup(condition: Condition) -> Lookup {
        Lookup { condition, again: LOOKUP_INTERVAL }
    }

    #[test]
    fn a_kind_that_is_missing_for_long_is_looked_up_less_often() {
        let now = Timestamp::from_second(1_000).unwrap();
        let interval = |status: &str, second: i64| {
            let reported = serde_json::json!({
                "type": DEPENDENCIES_READY, "status": status, "reason": "DependencyMissing", "message": "",
                "lastTransitionTime": Timestamp::from_second(second).unwrap(),
            });
            lookup_interval(Some(&serde_json::from_value(reported).unwrap()), now)
        };
        assert_eq!(lookup_interval(None, now), LOOKUP_INTERVAL);
        assert_eq!(interval("False", 900), LOOKUP_INTERVAL);
        assert_eq!(interval("False", 800), LATE_LOOKUP_INTERVAL);
        assert_eq!(interval("True", 0), LOOKUP_INTERVAL, "it was served until now");
    }

    #[test]
    fn many_missing_kinds_are_counted() {
        let kinds: Vec<GroupKind> =
            (0..12).map(|number| GroupKind { kind: format!("Lamp{number}"), ..lamp(None) }).collect();
        let message = judge(&kinds, Ok(vec![])).message;
        assert!(message.ends_with("Lamp9.example.org and 2 more"), "{message}");
    }

    #[test]
    fn a_lookup_without_answer_is_unknown_and_repeated() {
        let failure = Failure::new(Reason::TargetServerError, "look up API group example.org");
        let unknown = judge(&[lamp(None)], Err(failure));
        assert_eq!((unknown.status, unknown.reason), (Status::Unknown, Reason::TargetServerError));
        let progress = with_kinds(Some(lookup(unknown)), Progress::ready("1"));
        assert_eq!(progress, {
            let unknown = Condition::new(DEPENDENCIES_READY, Status::Unknown, Reason::TargetServerError)
                .with_message("look up API group example.org");
            Progress::ready("1").again_within(LOOKUP_INTERVAL).with_condition(unknown)
        });
    }

    #[test]
    fn a_condition_that_the_component_reports_itself_stays() {
        let own = || {
            let served = Condition::new(DEPENDENCIES_READY, Status::True, Reason::Succeeded);
            Progress::ready("1").with_condition(served)
        };
        assert_eq!(with_kinds(Some(lookup(judge(&[lamp(None)], Ok(vec![])))), own()), own());
    }
}
