//! State behind the watches, by target.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::core::DynamicObject;
use kyma_object_set::{Discovery, GroupKind, Identity, Inventory, Observed, Turns};
use kyma_sdk::{Interest, Sighting};
use kyma_targets::SecretKey;

use super::objects::Changed;
use super::place::{Subscription, TargetState};
use super::verdict::{self, Verdict};
use super::{Dependent, WatchedObject};
use crate::expressions::Rules;

type Places = HashMap<Option<SecretKey>, TargetState>;

/// State of all targets; there are as many as components name.
pub(super) struct Store {
    manager: &'static str,
    places: Mutex<Places>,
}

impl Store {
    pub(super) fn new(manager: &'static str) -> Self {
        Self { manager, places: Mutex::default() }
    }

    pub(super) fn want(&self, target: Option<&SecretKey>, dependent: &Dependent, wish: Subscription) {
        self.places().entry(target.cloned()).or_default().wish(dependent, wish);
    }

    pub(super) fn wanted(&self, target: Option<&SecretKey>, dependent: &Dependent) -> Vec<Interest> {
        let wanted = |place: &TargetState| Some(place.wishes.get(dependent)?.interests.clone());
        self.look(target, |place| wanted(place).unwrap_or_default())
    }

    pub(super) fn all_listed(&self, target: Option<&SecretKey>, interests: &[Interest]) -> bool {
        self.look(target, |place| place.all_listed(interests))
    }

    /// Returns the objects of an owner, and those in `also`.
    pub(super) fn objects(
        &self,
        target: Option<&SecretKey>,
        owner: &str,
        also: &Inventory,
    ) -> BTreeMap<Identity, WatchedObject> {
        self.look(target, |place| place.objects(owner, also))
    }

    /// Selects the objects that the operator applied and that no stream of whole objects has reported since.
    pub(super) fn untold(
        &self,
        target: Option<&SecretKey>,
        objects: &BTreeMap<Identity, WatchedObject>,
    ) -> BTreeSet<Identity> {
        self.look(target, |place| place.untold(objects))
    }

    pub(super) fn note(
        &self,
        target: Option<&SecretKey>,
        identity: &Identity,
        sight: (Observed, Option<String>),
        revision: Option<u64>,
    ) {
        self.places().entry(target.cloned()).or_default().note(identity, sight, revision);
    }

    /// Returns the state that all components of a target share.
    pub(super) fn shared(&self, target: Option<&SecretKey>) -> (Arc<Discovery>, Arc<Turns>) {
        let mut places = self.places();
        let place = places.entry(target.cloned()).or_default();
        (Arc::clone(&place.discovery), Arc::clone(&place.turns))
    }

    /// Returns the time since CRDs or aggregated APIs changed; `None` if they never did.
    pub(super) fn kinds_unchanged_for(&self, target: Option<&SecretKey>) -> Option<Duration> {
        self.look(target, |place| place.kinds_changed.map(|changed| changed.elapsed()))
    }

    /// Returns the objects of `dependent` that were seen before it had its rules.
    pub(super) fn unjudged(&self, target: Option<&SecretKey>, dependent: &Dependent) -> BTreeSet<Identity> {
        self.look(target, |place| place.unjudged(dependent))
    }

    /// Takes the verdict on an object that was read, unless its stream was faster or the rules have changed.
    pub(super) fn judge(
        &self,
        target: Option<&SecretKey>,
        rules: &Rules,
        identity: &Identity,
        object: &DynamicObject,
    ) {
        let verdict = Verdict::by(rules, &identity.group_kind(), object);
        if let Some(place) = self.places().get_mut(&target.cloned()) {
            place.judge(rules, identity, object, verdict);
        }
    }

    pub(super) fn all_judged(&self, target: Option<&SecretKey>, dependent: &Dependent) {
        if let Some(place) = self.places().get_mut(&target.cloned()) {
            place.all_judged(dependent);
        }
    }

    pub(super) fn finished(&self, target: Option<&SecretKey>, inventory: &Inventory) -> Vec<Identity> {
        let mut places = self.places();
        places.get_mut(&target.cloned()).map(|place| place.finished(inventory)).unwrap_or_default()
    }

    pub(super) fn forget(&self, dependent: &Dependent) {
        let mut places = self.places();
        places.values_mut().for_each(|place| place.unwish(dependent));
        places.retain(|_, place| !place.wishes.is_empty());
    }

    pub(super) fn access_changed(&self, secret: &str) {
        self.places().retain(|target, _| target.as_ref().is_none_or(|target| target.name != secret));
    }

    /// Returns whether expressions determine the health of a watch's objects.
    pub(super) fn has_rules(&self, target: Option<&SecretKey>, interest: &Interest) -> bool {
        let kind = GroupKind::new(&interest.group, &interest.kind);
        let rules = self.look(target, |place| Arc::clone(&place.rules));
        verdict::is_judged(interest) && rules.values().any(|rules| rules.has(&kind))
    }

    pub(super) fn take(
        &self,
        target: Option<&SecretKey>,
        interest: &Interest,
        sighting: &Sighting,
    ) -> Changed {
        // Expressions are evaluated without the lock, as they take time.
        let (mut places, verdicts) = self.judged(target, interest, sighting);
        let place = places.entry(target.cloned()).or_default();
        place.take(self.manager, interest, sighting, verdicts)
    }

    /// Determines the health of a stream's objects, by rules that stay valid while the returned lock is held. `None`
    /// stands for metadata alone.
    fn judged(
        &self,
        target: Option<&SecretKey>,
        interest: &Interest,
        sighting: &Sighting,
    ) -> (MutexGuard<'_, Places>, Vec<Option<Verdict>>) {
        let objects = match sighting {
            Sighting::Listed { objects, .. } => objects.as_slice(),
            Sighting::Applied(object) | Sighting::Deleted(object) => std::slice::from_ref(&**object),
        };
        if !verdict::is_judged(interest) {
            return (self.places(), vec![None; objects.len()]);
        }
        let mut rules = self.look(target, |place| Arc::clone(&place.rules));
        loop {
            let verdicts = verdict::verdicts(&rules, interest, objects);
            let places = self.places();
            // A user changed the rules of a component meanwhile. That is rare, so this loop ends.
            match places.get(&target.cloned()).map(|place| Arc::clone(&place.rules)) {
                Some(now) if !Arc::ptr_eq(&now, &rules) => rules = now,
                _ => return (places, verdicts),
            }
        }
    }

    /// Reads the state of a target; the default if it has none.
    fn look<T: Default>(&self, target: Option<&SecretKey>, what: impl FnOnce(&TargetState) -> T) -> T {
        self.places().get(&target.cloned()).map(what).unwrap_or_default()
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
