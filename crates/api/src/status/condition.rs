//! Conditions that operators report, their types, and functions on stored conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as metav1, Time};

use crate::schema::limits;
use crate::status::reason::Reason;

/// Condition types.
pub mod types {
    /// The object has its desired state. On components, ModuleConfigs, Pauses and Kymas.
    pub const READY: &str = "Ready";
    /// Kyma: all modules have their desired state. Owner: kyma-operator.
    pub const MODULES: &str = "Modules";
    /// Kyma: the target has the catalogue. Owner: release-meta-syncer.
    pub const MODULE_CATALOG: &str = "ModuleCatalog";
    /// Kyma: the target has the CRDs. Owner: kyma-operator.
    pub const CRDS_SYNC: &str = "CRDsSync";
    /// Kyma: the target reports changes through KLM's watcher. KLM sets this condition; the operators do not.
    pub const SKR_WEBHOOK: &str = "SKRWebhook";
    /// Kyma: the target has the image-pull Secret. Absent unless configured.
    pub const SKR_IMAGE_PULL_SECRET_SYNC: &str = "SKRImagePullSecretSync";
    /// Kyma: the target has the rules that ModuleConfigs set for objects of modules. ModuleConfig: no target refuses
    /// the rules that it sets. Absent if no ModuleConfig sets such rules. Owner: kyma-operator.
    pub const RESOURCE_RULES_APPLIED: &str = "ResourceRulesApplied";
    /// Kyma: an upgrade waits for a maintenance window (False), or a setting skips windows (True). Otherwise absent.
    /// Owner: kyma-operator.
    pub const MAINTENANCE_WINDOW: &str = "MaintenanceWindow";
    /// The target responds, and its cluster identity equals the recorded one. On Kymas and components.
    pub const TARGET_REACHABLE: &str = "TargetReachable";
    /// Component: all dependencies in `dependsOn` exist, and the target serves the kinds of the component's objects.
    pub const DEPENDENCIES_READY: &str = "DependenciesReady";
    /// Component: content is fetched and rendered.
    pub const RENDERED: &str = "Rendered";
    /// Component: all objects are applied.
    pub const APPLIED: &str = "Applied";
    /// Component: the module's workloads are healthy.
    pub const HEALTHY: &str = "Healthy";
    /// Component: the last Ready release is stored for a rollback. Absent unless configured.
    pub const ROLLBACK_AVAILABLE: &str = "RollbackAvailable";
    /// Component: the last requested tests of the chart succeeded. Absent without a request.
    pub const TEST_SUCCESS: &str = "TestSuccess";
}

/// Condition types of earlier versions, each with its current name. Stored statuses may still have them.
const RENAMED_TYPES: [(&str, &str); 3] = [
    ("Kept", types::ROLLBACK_AVAILABLE),
    ("Tested", types::TEST_SUCCESS),
    ("ResourceRules", types::RESOURCE_RULES_APPLIED),
];

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The condition is met.
    True,
    /// The condition is not met.
    False,
    /// The state is unknown.
    Unknown,
}

impl Status {
    /// Returns the value of the field `status` of a Kubernetes condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A condition that an operator reports. [`set`] adds the observed generation and the transition time.
///
/// ```
/// use kyma_api::Reason;
/// use kyma_api::condition::{Condition, Status, types};
///
/// let applied = Condition::new(types::APPLIED, Status::False, Reason::Progressing).with_message("waiting: Job a/b");
/// assert_eq!((applied.type_, applied.message.as_str()), ("Applied", "waiting: Job a/b"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// One of [`types`], or a type of the operator's own.
    pub type_: &'static str,
    /// Status of the condition.
    pub status: Status,
    /// Reason of the status.
    pub reason: Reason,
    /// Message for users. Truncated at [`limits::MESSAGE_BYTES`]. Must not change while the state does not change;
    /// otherwise each reconcile writes the status.
    pub message: String,
}

impl Condition {
    /// Creates a condition with an empty message.
    pub const fn new(type_: &'static str, status: Status, reason: Reason) -> Self {
        Self { type_, status, reason, message: String::new() }
    }

    /// Replaces the message.
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }
}

/// Sets a condition and returns whether anything changed. `generation` is the generation of the object that the
/// condition describes.
///
/// The transition time becomes `now` only if the status changes or the condition is new. Conditions of other types keep
/// their content and order. If several conditions have this type, which the schema forbids, only the first stays.
pub fn set(
    conditions: &mut Vec<metav1::Condition>,
    desired: &Condition,
    generation: Option<i64>,
    now: &Time,
) -> bool {
    let Some(position) = conditions.iter().position(|existing| existing.type_ == desired.type_) else {
        conditions.push(build(desired, generation, now.clone()));
        return true;
    };
    let existing = &conditions[position];
    let since = if existing.status == desired.status.as_str() {
        existing.last_transition_time.clone()
    } else {
        now.clone()
    };
    let new = build(desired, generation, since);
    let changed = *existing != new;
    conditions[position] = new;
    let before = conditions.len();
    let mut index = 0;
    conditions.retain(|existing| {
        index += 1;
        index - 1 == position || existing.type_ != desired.type_
    });
    changed || conditions.len() != before
}

/// Removes the condition of this type and returns whether it existed.
pub fn remove(conditions: &mut Vec<metav1::Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|existing| existing.type_ != type_);
    conditions.len() != before
}

/// Replaces former types and reasons of stored conditions with the current ones, and returns whether any condition
/// changed. If a condition of the current type exists, the condition of the former type is removed.
pub fn rename_stored(conditions: &mut Vec<metav1::Condition>) -> bool {
    let mut changed = false;
    for (former, current) in RENAMED_TYPES {
        changed |= rename(conditions, former, current);
    }
    for stored in conditions {
        if let Some(reason) = Reason::from_former_name(&stored.reason) {
            reason.as_str().clone_into(&mut stored.reason);
            changed = true;
        }
    }
    changed
}

/// Returns the current name of a stored condition type.
pub fn current_type(stored: &str) -> &str {
    let renamed = RENAMED_TYPES.into_iter().find(|(former, _)| *former == stored);
    renamed.map_or(stored, |(_, current)| current)
}

/// Renames the condition of type `old` to `new`, and returns whether it existed. If a condition of type `new` exists,
/// it stays, and the condition of type `old` is removed.
fn rename(conditions: &mut Vec<metav1::Condition>, old: &str, new: &str) -> bool {
    if get(conditions, new).is_some() {
        return remove(conditions, old);
    }
    let Some(found) = conditions.iter_mut().find(|existing| existing.type_ == old) else {
        return false;
    };
    new.clone_into(&mut found.type_);
    remove(conditions, old);
    true
}

/// Returns the condition of this type.
pub fn get<'a>(conditions: &'a [metav1::Condition], type_: &str) -> Option<&'a metav1::Condition> {
    conditions.iter().find(|existing| existing.type_ == type_)
}

/// Reports whether the condition of this type exists and is True.
pub fn is_true(conditions: &[metav1::Condition], type_: &str) -> bool {
    get(conditions, type_).is_some_and(|existing| existing.status == Status::True.as_str())
}

fn build(desired: &Condition, generation: Option<i64>, since: Time) -> metav1::Condition {
    metav1::Condition {
        last_transition_time: since,
        message: cut(&desired.message),
        observed_generation: generation,
        reason: desired.reason.as_str().to_owned(),
        status: desired.status.as_str().to_owned(),
        type_: desired.type_.to_owned(),
    }
}

fn cut(message: &str) -> String {
    if message.len() <= limits::MESSAGE_BYTES {
        return message.to_owned();
    }
    let mark = "…";
    let end =
        (0..=limits::MESSAGE_BYTES - mark.len()).rev().find(|&i| message.is_char_boundary(i)).unwrap_or(0);
    format!("{}{mark}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
    }

    fn desired(status: Status, message: &str) -> Condition {
        Condition::new(types::READY, status, Reason::Progressing).with_message(message)
    }

    #[test]
    fn the_same_condition_again_changes_nothing() {
        let mut conditions = vec![];
        assert!(set(&mut conditions, &desired(Status::False, "a"), Some(1), &at(1)));
        let before = conditions.clone();
        assert!(!set(&mut conditions, &desired(Status::False, "a"), Some(1), &at(2)));
        assert_eq!(conditions, before);
    }

    #[test]
    fn transition_time_changes_only_with_the_status() {
        let mut conditions = vec![];
        set(&mut conditions, &desired(Status::False, "a"), Some(1), &at(1));
        assert!(set(&mut conditions, &desired(Status::False, "b"), Some(1), &at(2)));
        assert_eq!(conditions[0].last_transition_time, at(1));
        assert!(set(&mut conditions, &desired(Status::True, "b"), Some(1), &at(3)));
        assert_eq!(conditions[0].last_transition_time, at(3));
    }

    #[test]
    fn other_conditions_stay_in_place() {
        let mut conditions = vec![];
        let other = Condition { type_: types::MODULES, ..desired(Status::True, "") };
        set(&mut conditions, &desired(Status::False, "a"), Some(1), &at(1));
        set(&mut conditions, &other, Some(1), &at(1));
        set(&mut conditions, &desired(Status::True, "a"), Some(1), &at(2));
        assert_eq!(conditions.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), ["Ready", "Modules"]);
        assert!(is_true(&conditions, types::MODULES));
        assert!(remove(&mut conditions, types::MODULES) && !remove(&mut conditions, types::MODULES));
    }

    #[test]
    fn a_duplicate_condition_type_is_removed() {
        let mut conditions = vec![];
        set(&mut conditions, &desired(Status::False, "a"), Some(1), &at(1));
        conditions.push(conditions[0].clone());
        assert!(set(&mut conditions, &desired(Status::False, "a"), Some(1), &at(2)));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn rename_keeps_content_and_prefers_the_new_type() {
        let old = Condition { type_: "ResourceRules", ..desired(Status::False, "a") };
        let mut conditions = vec![];
        assert!(!rename_stored(&mut conditions));
        set(&mut conditions, &old, Some(1), &at(1));
        let before = conditions[0].clone();
        assert!(rename_stored(&mut conditions) && !rename_stored(&mut conditions));
        assert_eq!(conditions, [metav1::Condition { type_: "ResourceRulesApplied".to_owned(), ..before }]);
        let renamed = conditions.clone();
        set(&mut conditions, &old.with_message("b"), Some(1), &at(2));
        assert!(rename_stored(&mut conditions));
        assert_eq!(conditions, renamed, "the condition of the new type stays");
    }

    #[test]
    fn former_types_and_reasons_have_current_names() {
        for (former, current) in RENAMED_TYPES {
            assert_eq!(current_type(former), current);
            assert_eq!(current_type(current), current);
        }
        let mut conditions = vec![];
        set(&mut conditions, &desired(Status::False, "a"), None, &at(1));
        "NotKept".clone_into(&mut conditions[0].reason);
        assert!(rename_stored(&mut conditions) && !rename_stored(&mut conditions));
        assert_eq!(conditions[0].reason, "RollbackUnavailable");
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let mut conditions = vec![];
        set(&mut conditions, &desired(Status::False, &"ä".repeat(5000)), None, &at(1));
        assert!(
            conditions[0].message.len() <= limits::MESSAGE_BYTES && conditions[0].message.ends_with("ä…")
        );
    }
}
