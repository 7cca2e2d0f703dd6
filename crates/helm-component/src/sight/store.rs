//! The memory behind the watches.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::core::DynamicObject;
use kyma_api::{annotations, labels};
use kyma_object_set::health::HealthStatus;
use kyma_object_set::{Discovery, GroupKind, Identity, Inventory, Observed, Turns, drift};
use kyma_sdk::{Content, Interest, Sighting};
use kyma_targets::SecretKey;

use super::judged::{self, Verdict};
use super::{Dependent, Seen};
use crate::expressions::Rules;

/// Whose objects a sighting changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    everybody: bool,
    owners: HashSet<String>,
    dependents: HashSet<Dependent>,
}

impl Changed {
    pub(super) fn concerns(&self, dependent: &Dependent) -> bool {
        self.everybody || self.owners.contains(&*dependent.owner) || self.dependents.contains(dependent)
    }
}

/// All that was seen, by target. Bounded by what components own: streams are scoped by our label, and objects
/// are reduced before they come in here.
pub(super) struct Store {
    manager: &'static str,
    places: Mutex<HashMap<Option<SecretKey>, Place>>,
}

#[derive(Default)]
pub(super) struct Place {
    discovery: Arc<Discovery>,
    turns: Arc<Turns>,
    kinds_changed: Option<Instant>,
    listed: HashSet<Interest>,
    pub(super) objects: HashMap<GroupKind, Objects>,
    pub(super) wishes: HashMap<Dependent, Wish>,
    /// By owner, of those who have any. Replaced as a whole, so that who judges can tell whether they are still these.
    pub(super) rules: Arc<HashMap<Arc<str>, Arc<Rules>>>,
}

/// What a component wants of a target.
#[derive(Default)]
pub(super) struct Wish {
    pub(super) interests: Vec<Interest>,
    /// How the health of its objects is told.
    pub(super) rules: Arc<Rules>,
    /// Kinds of which objects were seen before it had these rules.
    pub(super) stale: HashSet<GroupKind>,
}

impl Wish {
    pub(super) fn new(interests: Vec<Interest>, rules: Arc<Rules>) -> Self {
        Self { interests, rules, stale: HashSet::new() }
    }
}

/// The objects of one kind.
#[derive(Default)]
pub(super) struct Objects {
    pub(super) seen: BTreeMap<Identity, Seen>,
    /// The uids of those that did their work, of which Kubernetes may have deleted some since.
    pub(super) finished: HashMap<Identity, String>,
    /// The resourceVersion up to which a stream has told everything.
    told: u64,
    /// The resourceVersions that our own applies gave, until a list.
    noted: HashMap<Identity, u64>,
}

impl Store {
    pub(super) fn new(manager: &'static str) -> Self {
        Self { manager, places: Mutex::default() }
    }

    pub(super) fn want(&self, target: Option<&SecretKey>, dependent: &Dependent, wish: Wish) {
        let mut places = self.places();
        let place = places.entry(target.cloned()).or_default();
        place.wish(dependent, wish);
        place.drop_unwanted();
    }

    pub(super) fn wanted(&self, target: Option<&SecretKey>, dependent: &Dependent) -> Vec<Interest> {
        let places = self.places();
        places
            .get(&target.cloned())
            .and_then(|place| place.wishes.get(dependent))
            .map(|wish| wish.interests.clone())
            .unwrap_or_default()
    }

    pub(super) fn all_listed(&self, target: Option<&SecretKey>, interests: &[Interest]) -> bool {
        let places = self.places();
        places
            .get(&target.cloned())
            .is_some_and(|place| interests.iter().all(|interest| place.listed.contains(interest)))
    }

    pub(super) fn objects(
        &self,
        target: Option<&SecretKey>,
        owner: &str,
        also: &Inventory,
    ) -> BTreeMap<Identity, Seen> {
        let places = self.places();
        let Some(place) = places.get(&target.cloned()) else { return BTreeMap::new() };
        place
            .objects
            .values()
            .flat_map(|objects| &objects.seen)
            .filter(|(identity, seen)| {
                seen.observed.owner.as_deref() == Some(owner) || also.contains(identity)
            })
            .map(|(identity, seen)| (identity.clone(), seen.clone()))
            .collect()
    }

    /// Those of these objects that our own applies changed, as long as no stream is so far.
    pub(super) fn untold(
        &self,
        target: Option<&SecretKey>,
        objects: &BTreeMap<Identity, Seen>,
    ) -> BTreeSet<Identity> {
        let places = self.places();
        let Some(place) = places.get(&target.cloned()) else { return BTreeSet::new() };
        let untold = |identity: &&Identity| {
            let kind = place.objects.get(&identity.group_kind());
            kind.is_some_and(|kind| kind.noted.get(identity).is_some_and(|noted| *noted > kind.told))
        };
        objects.keys().filter(untold).cloned().collect()
    }

    pub(super) fn note(
        &self,
        target: Option<&SecretKey>,
        identity: &Identity,
        (observed, version): (Observed, Option<String>),
        revision: Option<u64>,
    ) {
        let mut places = self.places();
        let place = places.entry(target.cloned()).or_default();
        if identity.is_crd() {
            place.kinds_changed = Some(Instant::now());
        }
        let objects = place.objects.entry(identity.group_kind()).or_default();
        // What somebody else did since is known already, and must not be covered up.
        if revision.is_some_and(|revision| revision <= objects.told) {
            return;
        }
        let held = objects.seen.get(identity);
        // Whose it was has to hear of it, and hears what the stream has to tell.
        if held.is_some_and(|held| held.observed.owner.is_some() && held.observed.owner != observed.owner) {
            return;
        }
        let (health, failed_since) =
            held.map(|seen| (seen.health.clone(), seen.failed_since)).unwrap_or_default();
        objects.noted.extend(revision.map(|revision| (identity.clone(), revision)));
        objects.seen.insert(identity.clone(), Seen { observed, health, failed_since, version });
    }

    /// What all who apply to a target share.
    pub(super) fn shared(&self, target: Option<&SecretKey>) -> (Arc<Discovery>, Arc<Turns>) {
        let mut places = self.places();
        let place = places.entry(target.cloned()).or_default();
        (Arc::clone(&place.discovery), Arc::clone(&place.turns))
    }

    /// Time since CRDs or aggregated APIs changed; `None` where they never did.
    pub(super) fn kinds_unchanged_for(&self, target: Option<&SecretKey>) -> Option<Duration> {
        let places = self.places();
        let changed = places.get(&target.cloned()).and_then(|place| place.kinds_changed);
        changed.map(|changed| changed.elapsed())
    }

    pub(super) fn forget(&self, dependent: &Dependent) {
        let mut places = self.places();
        for place in places.values_mut() {
            if place.unwish(dependent) {
                place.drop_unwanted();
            }
        }
        places.retain(|_, place| !place.wishes.is_empty());
    }

    pub(super) fn access_changed(&self, secret: &str) {
        self.places().retain(|target, _| target.as_ref().is_none_or(|target| target.name != secret));
    }

    pub(super) fn take(
        &self,
        target: Option<&SecretKey>,
        interest: &Interest,
        sighting: &Sighting,
    ) -> Changed {
        // Outside of the lock, as expressions take their time.
        let (mut places, verdicts) = self.judged(target, interest, sighting);
        let place = places.entry(target.cloned()).or_default();
        let first_list = matches!(sighting, Sighting::Listed { .. }) && !place.listed.contains(interest);
        let of_kinds = matches!(interest.group.as_str(), "apiextensions.k8s.io" | "apiregistration.k8s.io");
        if of_kinds && !first_list {
            place.kinds_changed = Some(Instant::now());
        }
        if matches!(sighting, Sighting::Listed { .. }) {
            place.listed.insert(interest.clone());
        }
        // The unscoped stream of CRDs only tells that kinds come and go.
        if interest.labels.is_none() {
            return if first_list {
                place.completed()
            } else {
                Changed { everybody: true, ..Changed::default() }
            };
        }
        let kind = GroupKind::new(&interest.group, &interest.kind);
        let objects = place.objects.entry(kind.clone()).or_default();
        objects.told = match sighting {
            // Of a target that was restored it may be lower.
            Sighting::Listed { .. } => sighting.revision().unwrap_or_default(),
            _ => sighting.revision().unwrap_or_default().max(objects.told),
        };
        if let Sighting::Listed { objects: list, .. } = sighting {
            objects.take_list(self.manager, &kind, list, verdicts);
            if interest.content == Content::Whole {
                let Objects { seen, finished, .. } = objects;
                finished.retain(|identity, _| seen.contains_key(identity));
                for wish in place.wishes.values_mut() {
                    wish.stale.remove(&kind);
                }
            }
            return if first_list {
                place.completed()
            } else {
                Changed { everybody: true, ..Changed::default() }
            };
        }
        objects.take_one(self.manager, &kind, sighting, verdicts.into_iter().next().unwrap_or_default())
    }

    pub(super) fn places(&self) -> MutexGuard<'_, HashMap<Option<SecretKey>, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Objects {
    fn take_list(
        &mut self,
        manager: &str,
        kind: &GroupKind,
        list: &[DynamicObject],
        verdicts: Vec<Option<Verdict>>,
    ) {
        self.noted.clear();
        let mut listed = BTreeMap::new();
        for (object, verdict) in list.iter().zip(verdicts) {
            let identity = judged::identity(kind, object);
            let seen = self.reduce(manager, &identity, object, verdict);
            listed.insert(identity, seen);
        }
        self.seen = listed;
    }

    fn take_one(
        &mut self,
        manager: &str,
        kind: &GroupKind,
        sighting: &Sighting,
        verdict: Option<Verdict>,
    ) -> Changed {
        let (Sighting::Applied(object) | Sighting::Deleted(object)) = sighting else {
            return Changed::default();
        };
        let identity = judged::identity(kind, object);
        let seen = self.reduce(manager, &identity, object, verdict);
        if matches!(sighting, Sighting::Deleted(_)) {
            let is_it = self.seen.get(&identity).is_none_or(|held| held.observed.uid == seen.observed.uid);
            // Of another uid: an older object, which our own apply has replaced meanwhile.
            return if is_it { changed(self.seen.remove(&identity), Some(seen)) } else { Changed::default() };
        }
        // From before our own apply, whose answer was faster.
        let noted = self.noted.get(&identity);
        if noted.is_some_and(|noted| sighting.revision().is_some_and(|told| told < *noted)) {
            return Changed::default();
        }
        let before = self.seen.insert(identity, seen.clone());
        if before.as_ref() == Some(&seen) { Changed::default() } else { changed(before, Some(seen)) }
    }

    fn reduce(
        &mut self,
        manager: &str,
        identity: &Identity,
        object: &DynamicObject,
        verdict: Option<Verdict>,
    ) -> Seen {
        let metadata = &object.metadata;
        let observed = Observed::from_metadata(metadata, manager, labels::OWNER);
        let held = self.seen.get(identity).filter(|held| held.observed.uid == observed.uid);
        if let Some(Verdict { finished: true, .. }) = verdict {
            self.finished.insert(identity.clone(), observed.uid.clone());
        }
        let health = match verdict {
            Some(verdict) => Some(verdict.health),
            // Another component's stream of the kind may bring whole objects.
            None => held.and_then(|held| held.health.clone()),
        };
        let failed = health.as_ref().is_some_and(|health| health.status == HealthStatus::Failed);
        let since = || held.and_then(|held| held.failed_since).unwrap_or_else(Timestamp::now);
        let failed_since = failed.then(since);
        let version = drift::applied_annotation(metadata, manager, annotations::MODULE_VERSION);
        Seen { observed, health, failed_since, version: version.map(str::to_owned) }
    }
}

impl Place {
    /// Those whose every stream has given its list by now.
    fn completed(&self) -> Changed {
        let complete = |wish: &Wish| wish.interests.iter().all(|interest| self.listed.contains(interest));
        let dependents = self.wishes.iter().filter(|(_, wish)| complete(wish));
        let dependents = dependents.map(|(dependent, _)| dependent.clone()).collect();
        Changed { dependents, ..Changed::default() }
    }

    /// Forgets streams that nobody wants any more, with what they showed.
    fn drop_unwanted(&mut self) {
        let wanted: HashSet<&Interest> = self.wishes.values().flat_map(|wish| &wish.interests).collect();
        self.listed.retain(|interest| wanted.contains(interest));
        let kinds: HashSet<GroupKind> =
            wanted.iter().map(|interest| GroupKind::new(&interest.group, &interest.kind)).collect();
        self.objects.retain(|kind, _| kinds.contains(kind));
    }
}

fn changed(before: Option<Seen>, after: Option<Seen>) -> Changed {
    let owners = before.into_iter().chain(after).filter_map(|seen| seen.observed.owner).collect();
    Changed { owners, ..Changed::default() }
}

#[cfg(test)]
mod tests {
    use kube::api::ApiResource;
    use serde_json::{Value, json};

    use super::*;

    const OURS: &str = "helm-component";

    fn interest(content: Content) -> Interest {
        let resource = ApiResource {
            group: "apps".into(),
            version: "v1".into(),
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            plural: "deployments".into(),
        };
        Interest { content, ..Interest::in_kind(&resource).owned() }
    }

    /// The object as the apiserver shows it after we applied these fields.
    fn object(revision: u64, ours: &Value) -> Box<DynamicObject> {
        let entry = json!({"manager": OURS, "operation": "Apply", "fieldsV1": {"f:spec": ours}});
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "d", "namespace": "n", "uid": "u", "resourceVersion": revision.to_string(),
                "labels": {labels::OWNER: "owner"}, "managedFields": [entry],
            },
            "spec": {"replicas": 0},
            "status": {"observedGeneration": 1},
        });
        Box::new(serde_json::from_value(object).unwrap())
    }

    fn intact(revision: u64) -> Box<DynamicObject> {
        object(revision, &json!({"f:replicas": {}}))
    }

    fn drifted(revision: u64) -> Box<DynamicObject> {
        object(revision, &json!({}))
    }

    fn identity() -> Identity {
        Identity::new("apps", "Deployment", Some("n"), "d")
    }

    fn observed(object: &DynamicObject) -> Observed {
        Observed::from_metadata(&object.metadata, OURS, labels::OWNER)
    }

    fn held(store: &Store) -> Option<Seen> {
        store.objects(None, "owner", &Inventory::default()).remove(&identity())
    }

    fn saw(store: &Store, sighting: &Sighting) -> bool {
        store.take(None, &interest(Content::Metadata), sighting).owners.contains("owner")
    }

    #[test]
    fn what_an_apply_gave_counts_until_the_stream_shows_it() {
        let store = Store::new(OURS);
        saw(&store, &Sighting::Applied(drifted(4)));
        store.note(None, &identity(), (observed(&intact(5)), None), Some(5));
        assert_eq!(held(&store).unwrap().observed, observed(&intact(5)));
        assert!(!saw(&store, &Sighting::Applied(intact(5))), "our own write is no news");
        assert!(saw(&store, &Sighting::Applied(drifted(6))));
    }

    #[test]
    fn an_object_that_was_applied_is_untold_until_its_stream_is_so_far() {
        let store = Store::new(OURS);
        let untold = |store: &Store| {
            !store.untold(None, &store.objects(None, "owner", &Inventory::default())).is_empty()
        };
        saw(&store, &Sighting::Applied(intact(4)));
        assert!(!untold(&store));
        store.note(None, &identity(), (observed(&intact(6)), None), Some(6));
        assert!(untold(&store));
        saw(&store, &Sighting::Applied(intact(5)));
        assert!(untold(&store), "late");
        saw(&store, &Sighting::Applied(intact(6)));
        assert!(!untold(&store));
    }

    #[test]
    fn what_was_before_an_apply_does_not_cover_up_its_answer() {
        let store = Store::new(OURS);
        saw(&store, &Sighting::Applied(drifted(4)));
        store.note(None, &identity(), (observed(&intact(6)), None), Some(6));
        assert!(!saw(&store, &Sighting::Applied(drifted(5))), "late");
        assert_eq!(held(&store).unwrap().observed, observed(&intact(6)));
    }

    #[test]
    fn an_owner_whose_object_another_one_took_hears_of_it() {
        let store = Store::new(OURS);
        saw(&store, &Sighting::Applied(intact(4)));
        let mut theirs = intact(5);
        theirs.metadata.labels = Some([(labels::OWNER.to_owned(), "another".to_owned())].into());
        store.note(None, &identity(), (observed(&theirs), None), Some(5));
        assert!(saw(&store, &Sighting::Applied(theirs)));
    }

    #[test]
    fn what_somebody_did_after_an_apply_is_not_covered_up_by_its_answer() {
        let store = Store::new(OURS);
        saw(&store, &Sighting::Applied(drifted(4)));
        saw(&store, &Sighting::Applied(intact(5)));
        saw(&store, &Sighting::Applied(drifted(6)));
        store.note(None, &identity(), (observed(&intact(5)), None), Some(5));
        assert_eq!(held(&store).unwrap().observed, observed(&drifted(6)), "changed again");
        saw(&store, &Sighting::Deleted(drifted(7)));
        store.note(None, &identity(), (observed(&intact(5)), None), Some(5));
        assert_eq!(held(&store), None, "deleted");
        store.note(None, &identity(), (observed(&intact(8)), None), Some(8));
        saw(&store, &Sighting::Listed { objects: vec![], version: "9".into() });
        store.note(None, &identity(), (observed(&intact(8)), None), Some(8));
        assert_eq!(held(&store), None, "no longer listed");
    }

    #[test]
    fn after_a_restore_of_the_target_the_list_decides() {
        let store = Store::new(OURS);
        saw(&store, &Sighting::Applied(intact(900)));
        saw(&store, &Sighting::Listed { objects: vec![*intact(5)], version: "6".into() });
        store.note(None, &identity(), (observed(&drifted(7)), None), Some(7));
        assert_eq!(held(&store).unwrap().observed, observed(&drifted(7)));
    }

    #[test]
    fn health_outlasts_a_stream_that_brings_metadata_alone() {
        let store = Store::new(OURS);
        store.take(None, &interest(Content::Whole), &Sighting::Applied(intact(4)));
        let known = held(&store).unwrap().health;
        assert!(known.is_some());
        saw(&store, &Sighting::Applied(intact(5)));
        assert_eq!(held(&store).unwrap().health, known);
        saw(&store, &Sighting::Listed { objects: vec![*intact(6)], version: "7".into() });
        assert_eq!(held(&store).unwrap().health, known);
    }
}
