//! The memory behind the watches.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::core::DynamicObject;
use kyma_api::{annotations, labels};
use kyma_object_set::health::{self, Health};
use kyma_object_set::{Discovery, GroupKind, Identity, Inventory, Observed, Turns, drift};
use kyma_sdk::{Content, Interest, Sighting};
use kyma_targets::SecretKey;

use super::{Dependent, Seen};

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
struct Place {
    discovery: Arc<Discovery>,
    turns: Arc<Turns>,
    kinds_changed: Option<Instant>,
    listed: HashSet<Interest>,
    objects: HashMap<GroupKind, Objects>,
    wishes: HashMap<Dependent, Vec<Interest>>,
}

/// The objects of one kind.
#[derive(Default)]
struct Objects {
    seen: BTreeMap<Identity, Seen>,
    /// The resourceVersion up to which a stream has told everything.
    told: u64,
    /// The resourceVersions that our own applies gave, until a list.
    noted: HashMap<Identity, u64>,
}

impl Store {
    pub(super) fn new(manager: &'static str) -> Self {
        Self { manager, places: Mutex::default() }
    }

    pub(super) fn want(&self, target: Option<&SecretKey>, dependent: &Dependent, interests: &[Interest]) {
        let mut places = self.places();
        let place = places.entry(target.cloned()).or_default();
        place.wishes.insert(dependent.clone(), interests.to_vec());
        place.drop_unwanted();
    }

    pub(super) fn wanted(&self, target: Option<&SecretKey>, dependent: &Dependent) -> Vec<Interest> {
        let places = self.places();
        places
            .get(&target.cloned())
            .and_then(|place| place.wishes.get(dependent))
            .cloned()
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
        let health = held.and_then(|seen| seen.health.clone());
        objects.noted.extend(revision.map(|revision| (identity.clone(), revision)));
        objects.seen.insert(identity.clone(), Seen { observed, health, version });
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
            if place.wishes.remove(dependent).is_some() {
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
        let mut places = self.places();
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
        let Objects { seen: held, told, noted } = place.objects.entry(kind.clone()).or_default();
        *told = match sighting {
            // Of a target that was restored it may be lower.
            Sighting::Listed { .. } => sighting.revision().unwrap_or_default(),
            _ => sighting.revision().unwrap_or_default().max(*told),
        };
        match sighting {
            Sighting::Listed { objects, .. } => {
                noted.clear();
                let list = objects.iter().map(|object| self.reduce(&kind, interest.content, object, held));
                *held = list.collect();
                if first_list { place.completed() } else { Changed { everybody: true, ..Changed::default() } }
            }
            Sighting::Applied(object) => {
                let (identity, seen) = self.reduce(&kind, interest.content, object, held);
                // From before our own apply, whose answer was faster.
                if noted
                    .get(&identity)
                    .is_some_and(|noted| sighting.revision().is_some_and(|told| told < *noted))
                {
                    return Changed::default();
                }
                let before = held.insert(identity, seen.clone());
                if before.as_ref() == Some(&seen) { Changed::default() } else { changed(before, Some(seen)) }
            }
            Sighting::Deleted(object) => {
                let (identity, seen) = self.reduce(&kind, interest.content, object, held);
                let is_it = held.get(&identity).is_none_or(|held| held.observed.uid == seen.observed.uid);
                // Of another uid: an older object, which our own apply has replaced meanwhile.
                if is_it { changed(held.remove(&identity), Some(seen)) } else { Changed::default() }
            }
        }
    }

    fn reduce(
        &self,
        kind: &GroupKind,
        content: Content,
        object: &DynamicObject,
        held: &BTreeMap<Identity, Seen>,
    ) -> (Identity, Seen) {
        let metadata = &object.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        let identity = Identity::new(&kind.group, &kind.kind, metadata.namespace.as_deref(), name);
        let observed = Observed::from_metadata(metadata, self.manager, labels::OWNER);
        let health = match content {
            Content::Whole => assess(object),
            // Another component's stream of the kind may bring whole objects.
            Content::Metadata => held
                .get(&identity)
                .filter(|held| held.observed.uid == observed.uid)
                .and_then(|held| held.health.clone()),
        };
        let version = drift::applied_annotation(metadata, self.manager, annotations::MODULE_VERSION);
        (identity, Seen { observed, health, version: version.map(str::to_owned) })
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Option<SecretKey>, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Those whose every stream has given its list by now.
    fn completed(&self) -> Changed {
        let complete = |wished: &&Vec<Interest>| wished.iter().all(|interest| self.listed.contains(interest));
        let dependents = self.wishes.iter().filter(|(_, wished)| complete(wished));
        let dependents = dependents.map(|(dependent, _)| dependent.clone()).collect();
        Changed { dependents, ..Changed::default() }
    }

    /// Forgets streams that nobody wants any more, with what they showed.
    fn drop_unwanted(&mut self) {
        let wanted: HashSet<&Interest> = self.wishes.values().flatten().collect();
        self.listed.retain(|interest| wanted.contains(interest));
        let kinds: HashSet<GroupKind> =
            wanted.iter().map(|interest| GroupKind::new(&interest.group, &interest.kind)).collect();
        self.objects.retain(|kind, _| kinds.contains(kind));
    }
}

fn assess(object: &DynamicObject) -> Option<Health> {
    let whole = serde_json::to_value(object).ok()?;
    Some(health::assess(&whole, jiff::Timestamp::now()))
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
