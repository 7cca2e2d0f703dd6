//! Cache of one target: its subscriptions and watched objects.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use kyma_controller::{Content, ObjectEvent, ResourceVersion, WatchSpec};
use kyma_object_set::{Discovery, GroupKind, Identity, Inventory, ObjectLocks, ObservedObject};

use super::WatchedObject;
use super::objects::{AffectedComponents, Objects};
use super::verdict::{RulesByOwner, Verdict};
use crate::component_key::ComponentKey;
use crate::expressions::Rules;

/// State of one target. Bounded by the objects that components own: streams are limited by the operator's label, and
/// objects are reduced before they are stored.
#[derive(Default)]
pub(super) struct TargetState {
    pub(super) discovery: Arc<Discovery>,
    pub(super) object_locks: Arc<ObjectLocks>,
    /// Time of the last change of CRDs or aggregated APIs.
    pub(super) kinds_changed: Option<Instant>,
    pub(super) objects: HashMap<GroupKind, Objects>,
    /// Subscription of each component that uses the target; empty until the component subscribes.
    pub(super) subscriptions: HashMap<ComponentKey, Subscription>,
    /// Replaced as a whole, so that a caller can tell whether the rules changed while it evaluated them.
    pub(super) rules: Arc<RulesByOwner>,
    /// Number of subscribers of each stream.
    subscribers: HashMap<WatchSpec, usize>,
    listed: HashSet<WatchSpec>,
}

/// Subscriptions of a component on a target.
#[derive(Default)]
pub(super) struct Subscription {
    pub(super) watch_specs: Vec<WatchSpec>,
    /// Rules for the health of its objects.
    pub(super) rules: Arc<Rules>,
    /// Kinds with objects that were seen before the component had these rules.
    pub(super) stale: HashSet<GroupKind>,
}

impl Subscription {
    pub(super) fn new(watch_specs: Vec<WatchSpec>, rules: Arc<Rules>) -> Self {
        Self { watch_specs, rules, stale: HashSet::new() }
    }
}

impl TargetState {
    /// Returns the objects of an owner, and those in `also`.
    pub(super) fn objects(&self, owner: &str, also: &Inventory) -> BTreeMap<Identity, WatchedObject> {
        let own = self.objects.values().flat_map(|objects| objects.index.of(owner));
        let also = also.iter().filter_map(|(identity, _)| {
            let objects = self.objects.get(&identity.group_kind())?;
            Some((identity, objects.index.get(identity)?))
        });
        own.chain(also).map(|(identity, seen)| (identity.clone(), seen.clone())).collect()
    }

    /// Selects the objects that the operator applied and that no stream of whole objects has reported since.
    pub(super) fn unreported(&self, objects: &BTreeMap<Identity, WatchedObject>) -> BTreeSet<Identity> {
        let is_unreported = |identity: &&Identity| {
            let kind = self.objects.get(&identity.group_kind());
            kind.is_some_and(|kind| kind.is_unreported(identity))
        };
        objects.keys().filter(is_unreported).cloned().collect()
    }

    /// Reports whether all of these streams have delivered their list.
    pub(super) fn all_listed(&self, watch_specs: &[WatchSpec]) -> bool {
        watch_specs.iter().all(|watch_spec| self.listed.contains(watch_spec))
    }

    /// Takes the result of an apply of the operator.
    pub(super) fn record_apply(
        &mut self,
        identity: &Identity,
        applied: (ObservedObject, Option<String>),
        revision: Option<ResourceVersion>,
    ) {
        if identity.is_crd() {
            self.kinds_changed = Some(Instant::now());
        }
        self.objects.entry(identity.group_kind()).or_default().record_apply(identity, applied, revision);
    }

    /// Takes an event of a stream, with the health of its objects.
    pub(super) fn take(
        &mut self,
        manager: &str,
        watch_spec: &WatchSpec,
        event: &ObjectEvent,
        verdicts: Vec<Option<Verdict>>,
    ) -> AffectedComponents {
        // Otherwise an event of a stream that has just ended would be kept forever.
        if !self.subscribers.contains_key(watch_spec) {
            return AffectedComponents::default();
        }
        let is_list = matches!(event, ObjectEvent::Listed { .. });
        let first_list = is_list && self.listed.insert(watch_spec.clone());
        let of_kinds = matches!(watch_spec.group.as_str(), "apiextensions.k8s.io" | "apiregistration.k8s.io");
        if of_kinds && !first_list {
            self.kinds_changed = Some(Instant::now());
        }
        // A stream without label selector, of CRDs or APIServices, only reports that kinds come and go.
        let is_of_kinds_alone = watch_spec.labels.is_none();
        if !is_of_kinds_alone {
            let kind = GroupKind::new(&watch_spec.group, &watch_spec.kind);
            let objects = self.objects.entry(kind.clone()).or_default();
            if !is_list {
                let verdict = verdicts.into_iter().next().unwrap_or_default();
                return objects.take_one(manager, watch_spec, event, verdict);
            }
            objects.take_list(manager, watch_spec, event, verdicts);
            if watch_spec.content == Content::Whole {
                for subscription in self.subscriptions.values_mut() {
                    subscription.stale.remove(&kind);
                }
            }
        }
        if first_list {
            self.completed()
        } else {
            AffectedComponents { all: true, ..AffectedComponents::default() }
        }
    }

    /// Returns the components whose streams have all delivered their list.
    fn completed(&self) -> AffectedComponents {
        let is_complete = |subscription: &Subscription| self.all_listed(&subscription.watch_specs);
        let components = self.subscriptions.iter().filter(|(_, subscription)| is_complete(subscription));
        let components = components.map(|(component_key, _)| component_key.clone()).collect();
        AffectedComponents { components, ..AffectedComponents::default() }
    }

    /// Counts the subscribers of each stream. Drops streams without subscribers, with their objects.
    pub(super) fn count(&mut self, before: &[WatchSpec], after: &[WatchSpec]) {
        for watch_spec in after {
            *self.subscribers.entry(watch_spec.clone()).or_default() += 1;
        }
        for watch_spec in before {
            if let Some(count) = self.subscribers.get_mut(watch_spec) {
                *count = count.saturating_sub(1);
            }
        }
        self.subscribers.retain(|_, count| *count > 0);
        let subscribers = &self.subscribers;
        self.listed.retain(|watch_spec| subscribers.contains_key(watch_spec));
        let kind = |watch_spec: &WatchSpec| GroupKind::new(&watch_spec.group, &watch_spec.kind);
        let kinds: HashSet<GroupKind> = subscribers.keys().map(kind).collect();
        self.objects.retain(|kind, _| kinds.contains(kind));
        let whole = self.listed.iter().filter(|watch_spec| watch_spec.content == Content::Whole);
        let whole: HashSet<GroupKind> = whole.map(kind).collect();
        for (_, objects) in self.objects.iter_mut().filter(|(kind, _)| !whole.contains(*kind)) {
            objects.forget_whole_revision();
        }
    }
}
