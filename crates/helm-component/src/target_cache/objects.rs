//! Cache of the objects of one kind on one target, from streams and the operator's own applies.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::core::DynamicObject;
use kyma_api::{annotations, labels};
use kyma_controller::{Content, ObjectEvent, OwnWrite, ResourceVersion, WatchSpec, WriteThrough};
use kyma_health::HealthStatus;
use kyma_object_set::{GroupKind, Identity, ObservedObject, drift};

use super::WatchedObject;
use super::index::Index;
use super::verdict::Verdict;
use crate::component_key::ComponentKey;

/// Maximum time that a list takes to arrive. During that time, a list of a lower resourceVersion than the answer to
/// an apply counts as older than that apply; later, it is of a target that was restored.
const MAX_LIST_DURATION: Duration = Duration::from_secs(10);

/// Owners of the objects that a watch event changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AffectedComponents {
    pub(super) all: bool,
    /// One or two, compared with each subscriber of a stream: comparing is less work than hashing.
    pub(super) owners: BTreeSet<String>,
    pub(super) components: HashSet<ComponentKey>,
}

impl AffectedComponents {
    pub(super) fn concerns(&self, component_key: &ComponentKey) -> bool {
        self.all || self.owners.contains(&*component_key.owner) || self.components.contains(component_key)
    }
}

/// The objects of one kind.
#[derive(Default)]
pub(super) struct Objects {
    /// Last state of each object.
    pub(super) index: Index,
    /// Uids of finished objects, some of which Kubernetes may have deleted since.
    pub(super) finished: HashMap<Identity, String>,
    delivered: DeliveredObjects,
    /// The operator's own applies, each with the time of its answer, until a list covers them. The streams do not
    /// report when a list began, so [`MAX_LIST_DURATION`] decides which applies it covers.
    applied: WriteThrough<Identity, Instant>,
}

/// ResourceVersions up to which streams have reported everything.
#[derive(Default)]
struct DeliveredObjects {
    /// Of the metadata of objects.
    any: ResourceVersion,
    /// Of whole objects, which show health; `None` without subscribers, or before the first list.
    whole: Option<ResourceVersion>,
}

impl DeliveredObjects {
    fn advance(&mut self, content: Content, event: &ObjectEvent) {
        let revision = event.revision().unwrap_or_default();
        // After a restore of the target, the version of a list may be lower than that of earlier events.
        let is_list = matches!(event, ObjectEvent::Listed { .. });
        let after = |before: ResourceVersion| if is_list { revision } else { revision.max(before) };
        self.any = after(self.any);
        if content == Content::Whole && (is_list || self.whole.is_some()) {
            self.whole = Some(after(self.whole.unwrap_or_default()));
        }
    }
}

impl Objects {
    /// Takes a complete list.
    pub(super) fn take_list(
        &mut self,
        manager: &str,
        watch_spec: &WatchSpec,
        event: &ObjectEvent,
        verdicts: Vec<Option<Verdict>>,
    ) {
        let ObjectEvent::Listed { objects: list, .. } = event else { return };
        let kind = GroupKind::new(&watch_spec.group, &watch_spec.kind);
        self.delivered.advance(watch_spec.content, event);
        let (version, now) = (self.delivered.any, Instant::now());
        // Health comes from the list of whole objects.
        let whole = self.delivered.whole.filter(|_| watch_spec.content == Content::Metadata);
        let awaits =
            |applied: &OwnWrite<Instant>| whole.is_some_and(|delivered| applied.version() > delivered);
        self.applied.retain(|applied| awaits(applied) || is_later_than(applied, version, now));
        let mut listed = BTreeMap::new();
        for (object, verdict) in list.iter().zip(verdicts) {
            let identity = identity(&kind, object);
            let seen = self.reduce(manager, &identity, object, verdict);
            listed.insert(identity, seen);
        }
        let later = self.applied.writes().filter(|(_, applied)| is_later_than(applied, version, now));
        let later = later.filter_map(|(one, _)| Some((one.clone(), self.index.get(one)?.clone())));
        listed.extend(later);
        self.index = listed.into_iter().collect();
        if watch_spec.content == Content::Whole {
            let Self { index, finished, .. } = self;
            finished.retain(|identity, _| index.contains(identity));
        }
    }

    /// Takes one object that is new, changed or gone.
    pub(super) fn take_one(
        &mut self,
        manager: &str,
        watch_spec: &WatchSpec,
        event: &ObjectEvent,
        verdict: Option<Verdict>,
    ) -> AffectedComponents {
        let (ObjectEvent::Applied(object) | ObjectEvent::Deleted(object)) = event else {
            return AffectedComponents::default();
        };
        let identity = identity(&GroupKind::new(&watch_spec.group, &watch_spec.kind), object);
        let was_unreported = self.is_unreported(&identity);
        self.delivered.advance(watch_spec.content, event);
        let seen = self.reduce(manager, &identity, object, verdict);
        if matches!(event, ObjectEvent::Deleted(_)) {
            return self.take_away(&identity, seen);
        }
        // The event is older than the operator's apply, whose answer arrived first.
        let is_older = |revision| self.applied.newer_than(&identity, revision).is_some();
        if event.revision().is_some_and(is_older) {
            return AffectedComponents::default();
        }
        // The first event since an apply is news even if nothing changed: components wait for it.
        let is_report = was_unreported && !self.is_unreported(&identity);
        let before = self.index.insert(identity, seen.clone());
        if before.as_ref() == Some(&seen) && !is_report {
            return AffectedComponents::default();
        }
        affected(before, Some(seen))
    }

    fn take_away(&mut self, identity: &Identity, seen: WatchedObject) -> AffectedComponents {
        let held = self.index.get(identity);
        // Another uid: the event is about an older object, which the operator's apply has replaced meanwhile.
        if held.is_some_and(|held| held.observed.uid != seen.observed.uid) {
            return AffectedComponents::default();
        }
        self.applied.forget(identity);
        affected(self.index.remove(identity), Some(seen))
    }

    /// Takes the result of an apply of the operator, unless a stream is further already.
    pub(super) fn record_apply(
        &mut self,
        identity: &Identity,
        (observed, version): (ObservedObject, Option<String>),
        revision: Option<ResourceVersion>,
    ) {
        let is_known = revision.is_some_and(|revision| revision <= self.delivered.any);
        if let Some(revision) = revision
            && !(is_known && self.delivered.whole.is_none_or(|delivered| revision <= delivered))
        {
            self.applied.record_write(identity.clone(), revision, Instant::now());
        }
        // A later change by another manager must not be hidden.
        if is_known {
            return;
        }
        let held = self.index.get(identity);
        // The previous owner must learn of the change, which the stream reports.
        if held.is_some_and(|held| held.observed.owner.is_some() && held.observed.owner != observed.owner) {
            return;
        }
        let (health, failed_since) =
            held.map(|seen| (seen.health.clone(), seen.failed_since)).unwrap_or_default();
        self.index.insert(identity.clone(), WatchedObject { observed, health, failed_since, version });
    }

    /// Reports whether the operator applied an object that the stream of whole objects has not reported since.
    pub(super) fn is_unreported(&self, identity: &Identity) -> bool {
        let is_later = |delivered| self.applied.newer_than(identity, delivered).is_some();
        self.delivered.whole.is_some_and(is_later)
    }

    /// Forgets the version of whole objects, after the last subscriber left.
    pub(super) fn forget_whole_revision(&mut self) {
        self.delivered.whole = None;
    }

    fn reduce(
        &mut self,
        manager: &str,
        identity: &Identity,
        object: &DynamicObject,
        verdict: Option<Verdict>,
    ) -> WatchedObject {
        let metadata = &object.metadata;
        let observed = ObservedObject::from_metadata(metadata, manager, labels::OWNER);
        let held = self.index.get(identity).filter(|held| held.observed.uid == observed.uid);
        if let Some(Verdict { finished: true, .. }) = verdict {
            self.finished.insert(identity.clone(), observed.uid.clone());
        }
        let health = match verdict {
            Some(verdict) => Some(verdict.health),
            // The event has metadata alone: keep the health from another component's stream of whole objects.
            None => held.and_then(|held| held.health.clone()),
        };
        let failed = health.as_ref().is_some_and(|health| health.status == HealthStatus::Failed);
        let since = || held.and_then(|held| held.failed_since).unwrap_or_else(Timestamp::now);
        let failed_since = failed.then(since);
        let version = drift::applied_annotation(metadata, manager, annotations::MODULE_VERSION);
        WatchedObject { observed, health, failed_since, version: version.map(str::to_owned) }
    }
}

/// Reports whether a list of this version does not cover an apply.
fn is_later_than(applied: &OwnWrite<Instant>, version: ResourceVersion, now: Instant) -> bool {
    applied.version() > version && now.saturating_duration_since(*applied.value()) < MAX_LIST_DURATION
}

/// Returns the identity of an object.
fn identity(kind: &GroupKind, object: &DynamicObject) -> Identity {
    let metadata = &object.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    Identity::new(&kind.group, &kind.kind, metadata.namespace.as_deref(), name)
}

fn affected(before: Option<WatchedObject>, after: Option<WatchedObject>) -> AffectedComponents {
    let owners = before.into_iter().chain(after).filter_map(|seen| seen.observed.owner).collect();
    AffectedComponents { owners, ..AffectedComponents::default() }
}
