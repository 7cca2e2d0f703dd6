//! Cache of the objects of one kind on one target, from streams and the operator's own applies.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::core::DynamicObject;
use kyma_api::{annotations, labels};
use kyma_health::HealthStatus;
use kyma_object_set::{GroupKind, Identity, ObservedObject, drift};
use kyma_sdk::{Content, ObjectEvent, WatchSpec};

use super::index::Index;
use super::verdict::Verdict;
use super::{Dependent, WatchedObject};

/// Maximum time that a list takes to arrive. During that time, a list of a lower resourceVersion than the answer to
/// an apply counts as older than that apply; later, it is of a target that was restored.
const LIST: Duration = Duration::from_secs(10);

/// Owners of the objects that a watch event changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) everybody: bool,
    /// One or two, compared with each dependent of a stream: comparing is less work than hashing.
    pub(super) owners: BTreeSet<String>,
    pub(super) dependents: HashSet<Dependent>,
}

impl Changed {
    pub(super) fn concerns(&self, dependent: &Dependent) -> bool {
        self.everybody || self.owners.contains(&*dependent.owner) || self.dependents.contains(dependent)
    }
}

/// The objects of one kind.
#[derive(Default)]
pub(super) struct Objects {
    /// Last state of each object.
    pub(super) seen: Index,
    /// Uids of finished objects, some of which Kubernetes may have deleted since.
    pub(super) finished: HashMap<Identity, String>,
    told: DeliveredObjects,
    /// Answers to the operator's own applies, until a list covers them.
    noted: HashMap<Identity, Note>,
}

/// ResourceVersions up to which streams have reported everything.
#[derive(Default)]
struct DeliveredObjects {
    /// Of the metadata of objects.
    any: u64,
    /// Of whole objects, which show health; `None` without subscribers, or before the first list.
    whole: Option<u64>,
}

/// Answer to an apply of the operator.
struct Note {
    revision: u64,
    at: Instant,
}

impl DeliveredObjects {
    fn reach(&mut self, content: Content, event: &ObjectEvent) {
        let revision = event.revision().unwrap_or_default();
        // After a restore of the target, the version of a list may be lower than that of earlier events.
        let is_list = matches!(event, ObjectEvent::Listed { .. });
        let after = |before: u64| if is_list { revision } else { revision.max(before) };
        self.any = after(self.any);
        if content == Content::Whole && (is_list || self.whole.is_some()) {
            self.whole = Some(after(self.whole.unwrap_or_default()));
        }
    }
}

impl Note {
    /// Reports whether a list of this version does not cover the apply.
    fn is_later_than(&self, version: u64, now: Instant) -> bool {
        self.revision > version && now.saturating_duration_since(self.at) < LIST
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
        self.told.reach(watch_spec.content, event);
        let (version, now) = (self.told.any, Instant::now());
        // Health comes from the list of whole objects.
        let whole = self.told.whole.filter(|_| watch_spec.content == Content::Metadata);
        let awaits = |note: &Note| whole.is_some_and(|told| note.revision > told);
        self.noted.retain(|_, note| awaits(note) || note.is_later_than(version, now));
        let mut listed = BTreeMap::new();
        for (object, verdict) in list.iter().zip(verdicts) {
            let identity = identity(&kind, object);
            let seen = self.reduce(manager, &identity, object, verdict);
            listed.insert(identity, seen);
        }
        let later = self.noted.iter().filter(|(_, note)| note.is_later_than(version, now));
        let later = later.filter_map(|(one, _)| Some((one.clone(), self.seen.get(one)?.clone())));
        listed.extend(later);
        self.seen = listed.into_iter().collect();
        if watch_spec.content == Content::Whole {
            let Self { seen, finished, .. } = self;
            finished.retain(|identity, _| seen.contains(identity));
        }
    }

    /// Takes one object that is new, changed or gone.
    pub(super) fn take_one(
        &mut self,
        manager: &str,
        watch_spec: &WatchSpec,
        event: &ObjectEvent,
        verdict: Option<Verdict>,
    ) -> Changed {
        let (ObjectEvent::Applied(object) | ObjectEvent::Deleted(object)) = event else {
            return Changed::default();
        };
        let identity = identity(&GroupKind::new(&watch_spec.group, &watch_spec.kind), object);
        let was_unreported = self.is_unreported(&identity);
        self.told.reach(watch_spec.content, event);
        let seen = self.reduce(manager, &identity, object, verdict);
        if matches!(event, ObjectEvent::Deleted(_)) {
            return self.take_away(&identity, seen);
        }
        // The event is older than the operator's apply, whose answer arrived first.
        let noted = self.noted.get(&identity);
        if noted.is_some_and(|noted| event.revision().is_some_and(|told| told < noted.revision)) {
            return Changed::default();
        }
        // The first event since an apply is news even if nothing changed: components wait for it.
        let is_report = was_unreported && !self.is_unreported(&identity);
        let before = self.seen.insert(identity, seen.clone());
        if before.as_ref() == Some(&seen) && !is_report {
            return Changed::default();
        }
        changed(before, Some(seen))
    }

    fn take_away(&mut self, identity: &Identity, seen: WatchedObject) -> Changed {
        let held = self.seen.get(identity);
        // Another uid: the event is about an older object, which the operator's apply has replaced meanwhile.
        if held.is_some_and(|held| held.observed.uid != seen.observed.uid) {
            return Changed::default();
        }
        self.noted.remove(identity);
        changed(self.seen.remove(identity), Some(seen))
    }

    /// Takes the result of an apply of the operator, unless a stream is further already.
    pub(super) fn note(
        &mut self,
        identity: &Identity,
        (observed, version): (ObservedObject, Option<String>),
        revision: Option<u64>,
    ) {
        let is_known = revision.is_some_and(|revision| revision <= self.told.any);
        if let Some(revision) = revision
            && !(is_known && self.told.whole.is_none_or(|told| revision <= told))
        {
            self.noted.insert(identity.clone(), Note { revision, at: Instant::now() });
        }
        // A later change by another manager must not be hidden.
        if is_known {
            return;
        }
        let held = self.seen.get(identity);
        // The previous owner must learn of the change, which the stream reports.
        if held.is_some_and(|held| held.observed.owner.is_some() && held.observed.owner != observed.owner) {
            return;
        }
        let (health, failed_since) =
            held.map(|seen| (seen.health.clone(), seen.failed_since)).unwrap_or_default();
        self.seen.insert(identity.clone(), WatchedObject { observed, health, failed_since, version });
    }

    /// Reports whether the operator applied an object that the stream of whole objects has not reported since.
    pub(super) fn is_unreported(&self, identity: &Identity) -> bool {
        let noted = self.noted.get(identity).zip(self.told.whole);
        noted.is_some_and(|(noted, told)| noted.revision > told)
    }

    /// Forgets the version of whole objects, after the last subscriber left.
    pub(super) fn tell_metadata_alone(&mut self) {
        self.told.whole = None;
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
        let held = self.seen.get(identity).filter(|held| held.observed.uid == observed.uid);
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

/// Returns the identity of an object.
fn identity(kind: &GroupKind, object: &DynamicObject) -> Identity {
    let metadata = &object.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    Identity::new(&kind.group, &kind.kind, metadata.namespace.as_deref(), name)
}

fn changed(before: Option<WatchedObject>, after: Option<WatchedObject>) -> Changed {
    let owners = before.into_iter().chain(after).filter_map(|seen| seen.observed.owner).collect();
    Changed { owners, ..Changed::default() }
}
