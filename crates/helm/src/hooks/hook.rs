//! Hooks, their events and their delete policies, as in annotations of Helm.

use std::collections::BTreeSet;
use std::fmt;

use kyma_object_set::{Identity, Object};

/// Helm's annotation that makes an object a hook instead of a part of the release.
pub const HOOK: &str = "helm.sh/hook";
const WEIGHT: &str = "helm.sh/hook-weight";
pub(super) const DELETE_POLICY: &str = "helm.sh/hook-delete-policy";

/// An event in the life of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// Before the first installation, after CRDs.
    PreInstall,
    /// After the first installation, without waiting for health.
    PostInstall,
    /// Before other content or values are applied.
    PreUpgrade,
    /// After an upgrade, once objects that are no longer desired are deleted.
    PostUpgrade,
    /// Before a removal, once nothing blocks it.
    PreDelete,
    /// After a removal.
    PostDelete,
    /// Before a rollback, with the hooks of the rollback target.
    PreRollback,
    /// After a rollback, once objects that are no longer desired are deleted.
    PostRollback,
    /// When a user requests tests.
    Test,
}

impl Event {
    const ALL: [Self; 9] = [
        Self::PreInstall,
        Self::PostInstall,
        Self::PreUpgrade,
        Self::PostUpgrade,
        Self::PreDelete,
        Self::PostDelete,
        Self::PreRollback,
        Self::PostRollback,
        Self::Test,
    ];

    /// Returns the name of the event in the annotation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PreInstall => "pre-install",
            Self::PostInstall => "post-install",
            Self::PreUpgrade => "pre-upgrade",
            Self::PostUpgrade => "post-upgrade",
            Self::PreDelete => "pre-delete",
            Self::PostDelete => "post-delete",
            Self::PreRollback => "pre-rollback",
            Self::PostRollback => "post-rollback",
            Self::Test => "test",
        }
    }

    /// Parses the name of an event; `test-success` is Helm 2's name of `test`.
    pub fn of(word: &str) -> Option<Self> {
        let word = if word == "test-success" { "test" } else { word };
        Self::ALL.into_iter().find(|event| event.as_str() == word)
    }

    pub(super) const fn is_of_removal(self) -> bool {
        matches!(self, Self::PreDelete | Self::PostDelete)
    }

    pub(super) const fn follows_apply(self) -> bool {
        matches!(self, Self::PostInstall | Self::PostUpgrade | Self::PostRollback)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Condition under which the object of a hook is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeletePolicy {
    /// Before a hook creates its object again; the default.
    BeforeCreation,
    /// After the hooks of the event succeeded.
    Succeeded,
    /// After the hook failed.
    Failed,
}

/// A hook.
#[derive(Debug, Clone, PartialEq)]
pub struct Hook {
    /// The object that the hook creates.
    pub object: Object,
    events: BTreeSet<Event>,
    weight: i64,
    deletes: BTreeSet<DeletePolicy>,
}

impl Hook {
    /// Reads an object with the annotation; `None` if it names an unknown event, as in Helm.
    pub fn of(object: Object) -> Option<Self> {
        let words = |key: &str| words(object.annotation(key).unwrap_or_default());
        let events: Option<BTreeSet<Event>> = words(HOOK).iter().map(|word| Event::of(word)).collect();
        let policy = |word: &String| match word.as_str() {
            "before-hook-creation" => Some(DeletePolicy::BeforeCreation),
            "hook-succeeded" => Some(DeletePolicy::Succeeded),
            "hook-failed" => Some(DeletePolicy::Failed),
            _ => None,
        };
        let mut deletes: BTreeSet<DeletePolicy> = words(DELETE_POLICY).iter().filter_map(policy).collect();
        if deletes.is_empty() {
            deletes.insert(DeletePolicy::BeforeCreation);
        }
        let weight = object.annotation(WEIGHT).and_then(|text| text.trim().parse().ok()).unwrap_or_default();
        Some(Self { events: events?, weight, deletes, object })
    }

    /// Returns warnings about annotations that Helm ignores silently.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = vec![];
        if self.events.is_empty() {
            warnings.push(format!("{HOOK} names no event, so it never runs"));
        }
        let policies = words(self.object.annotation(DELETE_POLICY).unwrap_or_default());
        let known = ["before-hook-creation", "hook-succeeded", "hook-failed"];
        for policy in policies.iter().filter(|policy| !known.contains(&policy.as_str())) {
            warnings.push(format!("{DELETE_POLICY} names an unknown policy ({policy}), which is ignored"));
        }
        let weight = self.object.annotation(WEIGHT);
        if let Some(weight) = weight.filter(|text| text.trim().parse::<i64>().is_err()) {
            warnings.push(format!("{WEIGHT} is not a number ({weight}) and counts as 0"));
        }
        warnings
    }

    /// Reports whether it runs only when a user requests tests.
    pub fn is_only_test(&self) -> bool {
        !self.events.is_empty() && self.events.iter().all(|event| *event == Event::Test)
    }

    /// Returns the weight; hooks with lower weights run first.
    pub fn weight(&self) -> i64 {
        self.weight
    }

    /// Returns the conditions under which its object is deleted, in Helm's words.
    pub fn policies(&self) -> Vec<&'static str> {
        let word = |policy: &DeletePolicy| match policy {
            DeletePolicy::BeforeCreation => "before-hook-creation",
            DeletePolicy::Succeeded => "hook-succeeded",
            DeletePolicy::Failed => "hook-failed",
        };
        self.deletes.iter().map(word).collect()
    }

    /// Returns its name in messages and records.
    pub fn name(&self) -> String {
        self.object.identity().to_string()
    }

    /// Returns the identity of its object.
    pub fn identity(&self) -> Identity {
        self.object.identity()
    }

    /// Returns the events at which it runs.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        self.events.iter().copied()
    }

    /// Returns whether this policy deletes the hook's object. CRDs and Namespaces are never deleted: their objects
    /// would be deleted with them.
    pub fn goes(&self, policy: DeletePolicy) -> bool {
        let identity = self.identity();
        self.deletes.contains(&policy) && !identity.is_crd() && !identity.is_namespace()
    }

    /// Reports whether it has an end to wait for.
    pub fn has_an_end(&self) -> bool {
        matches!((self.object.group(), self.object.kind()), ("batch", "Job") | ("", "Pod"))
    }
}

/// Returns the hooks of an event in the order in which they run: by weight, then name, then position in the content.
pub fn of_event(hooks: &[Hook], event: Event) -> Vec<&Hook> {
    let mut found: Vec<&Hook> = hooks.iter().filter(|hook| hook.events.contains(&event)).collect();
    found.sort_by(|one, other| (one.weight, one.object.name()).cmp(&(other.weight, other.object.name())));
    found
}

/// Splits an annotation at commas and converts it to lower case.
fn words(text: &str) -> Vec<String> {
    text.split(',').map(|word| word.trim().to_lowercase()).filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn object(kind: &str, name: &str, annotations: &Value) -> Object {
        let api_version = if kind == "Job" { "batch/v1" } else { "v1" };
        let metadata = json!({"name": name, "namespace": "n", "annotations": annotations});
        let body = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        Object::from_value(body).unwrap()
    }

    pub(crate) fn hook(name: &str, annotations: &Value) -> Hook {
        Hook::of(object("Job", name, annotations)).unwrap()
    }

    #[test]
    fn annotations_are_read_as_helm_reads_them() {
        let read = hook(
            "j",
            &json!({HOOK: " Pre-Install , post-upgrade,test-success", WEIGHT: "-5", DELETE_POLICY: "Hook-Succeeded, other"}),
        );
        let events: Vec<Event> = read.events().collect();
        assert_eq!(events, [Event::PreInstall, Event::PostUpgrade, Event::Test]);
        assert_eq!(read.weight, -5);
        assert!(read.goes(DeletePolicy::Succeeded) && !read.goes(DeletePolicy::BeforeCreation));
        let plain = hook("j", &json!({HOOK: "test", WEIGHT: "heavy"}));
        assert_eq!(plain.weight, 0);
        assert!(plain.goes(DeletePolicy::BeforeCreation) && !plain.goes(DeletePolicy::Failed));
        assert_eq!(Hook::of(object("Job", "j", &json!({HOOK: "pre-install,crd-install"}))), None);
    }

    #[test]
    fn annotations_that_helm_ignores_give_warnings() {
        let warnings = |annotations: Value| hook("j", &annotations).warnings().len();
        assert_eq!(warnings(json!({HOOK: "pre-install", WEIGHT: "-5", DELETE_POLICY: "hook-failed"})), 0);
        assert_eq!(warnings(json!({HOOK: ""})), 1);
        assert_eq!(warnings(json!({HOOK: "test", WEIGHT: "heavy", DELETE_POLICY: "hook-succeded"})), 2);
    }

    #[test]
    fn they_run_by_weight_then_name() {
        let at = |name: &str, weight: &str| hook(name, &json!({HOOK: "pre-install", WEIGHT: weight}));
        let hooks =
            [at("c", "1"), at("b", "1"), at("z", "-1"), at("a", "10"), hook("t", &json!({HOOK: "test"}))];
        let names = |event: Event| -> Vec<String> {
            of_event(&hooks, event).iter().map(|hook| hook.object.name().to_owned()).collect()
        };
        assert_eq!(names(Event::PreInstall), ["z", "b", "c", "a"]);
        assert_eq!(names(Event::Test), ["t"]);
        assert_eq!(names(Event::PreDelete), Vec::<String>::new());
    }
}
