//! Health of a whole object, by the rules of the component that owns it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::core::DynamicObject;
use kyma_api::labels;
use kyma_controller::{Content, WatchSpec};
use kyma_health::Health;
use kyma_object_set::GroupKind;
use serde_json::Value;

use crate::expressions::{Rules, is_too_large, too_large};

/// Maximum evaluation time of expressions for one event or list of a watch.
const MAX_EVALUATION_TIME: Duration = Duration::from_secs(1);

/// Rules of the owners that have any.
pub(super) type RulesByOwner = HashMap<Arc<str>, Arc<Rules>>;

/// Health of a whole object.
#[derive(Debug, Clone)]
pub(super) struct Verdict {
    /// Health by the owner's rules.
    pub(super) health: Health,
    /// Whether it has finished and is deleted without the operator.
    pub(super) finished: bool,
}

impl Verdict {
    /// Returns the verdict on an object by these rules.
    pub(super) fn by(rules: &Rules, kind: &GroupKind, object: &DynamicObject) -> Option<Self> {
        Self::of(rules, kind, whole(object))
    }

    fn of(rules: &Rules, kind: &GroupKind, object: Option<Value>) -> Option<Self> {
        let object = object?;
        let finished = kyma_health::is_finished(&object);
        Some(Self { health: rules.assess(kind, &object, Timestamp::now()), finished })
    }
}

/// Reports whether a stream has objects whose health is determined: whole ones, limited by label.
pub(super) fn is_judged(watch_spec: &WatchSpec) -> bool {
    watch_spec.content == Content::Whole && watch_spec.labels.is_some()
}

/// Determines the health of a watch's objects, each by its owner's rules. Once an owner's expressions exceed their
/// budget for one object, or the time for all is over, the remaining objects count as too large without evaluation.
pub(super) fn verdicts(
    rules: &RulesByOwner,
    watch_spec: &WatchSpec,
    objects: &[DynamicObject],
) -> Vec<Option<Verdict>> {
    let deadline = Instant::now() + MAX_EVALUATION_TIME;
    let kind = GroupKind::new(&watch_spec.group, &watch_spec.kind);
    let mut exhausted: HashSet<&str> = HashSet::new();
    let verdicts = objects.iter().map(|object| {
        let owner = object.metadata.labels.as_ref().and_then(|labels| labels.get(labels::OWNER));
        let owner = owner.map(String::as_str);
        let rules = owner.and_then(|owner| rules.get(owner)).filter(|rules| rules.has(&kind));
        let gives_up = owner.is_some_and(|owner| exhausted.contains(owner)) || Instant::now() > deadline;
        let used = rules.filter(|_| !gives_up);
        let verdict = verdict(used, rules.is_some() && gives_up, watch_spec, object);
        if let (Some(owner), Some(verdict)) = (owner, &verdict)
            && rules.is_some()
            && is_too_large(&verdict.health)
        {
            exhausted.insert(owner);
        }
        verdict
    });
    verdicts.collect()
}

fn verdict(
    rules: Option<&Arc<Rules>>,
    gives_up: bool,
    watch_spec: &WatchSpec,
    object: &DynamicObject,
) -> Option<Verdict> {
    let resource = watch_spec.resource();
    let mut whole = whole(object);
    // Items of a list have no apiVersion and kind.
    if let (Some(fields), None) = (whole.as_mut().and_then(Value::as_object_mut), &object.types) {
        fields.insert("apiVersion".to_owned(), resource.api_version.into());
        fields.insert("kind".to_owned(), resource.kind.into());
    }
    let kind = GroupKind::new(&watch_spec.group, &watch_spec.kind);
    let verdict = match rules {
        Some(rules) => Verdict::of(rules, &kind, whole),
        None => Verdict::of(&Rules::default(), &kind, whole),
    };
    verdict.map(|verdict| if gives_up { Verdict { health: too_large(), ..verdict } } else { verdict })
}

/// Returns an object without managedFields, which are most of many objects and do not affect health.
fn whole(object: &DynamicObject) -> Option<Value> {
    let mut whole = serde_json::to_value(object).ok()?;
    if let Some(metadata) = whole.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    Some(whole)
}
