//! How the health of objects is told, each by the rules of the component that owns it.
//!
//! Only the verdict is kept, never the object. Where a component's rules change, its verdicts go, and the next pass reads
//! the objects once; what the stream brings meanwhile is newer than what that reads.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, MutexGuard};

use jiff::Timestamp;
use kube::core::DynamicObject;
use kyma_api::labels;
use kyma_object_set::health::{self, Health, HealthStatus};
use kyma_object_set::{GroupKind, Identity, Inventory};
use kyma_sdk::{Content, Interest, Sighting};
use kyma_targets::SecretKey;
use serde_json::Value;

use super::store::{Place, Store, Wish};
use super::{Dependent, Seen};
use crate::expressions::Rules;

type Places = HashMap<Option<SecretKey>, Place>;

/// What a whole object says of itself.
#[derive(Debug, Clone)]
pub(super) struct Verdict {
    pub(super) health: Health,
    /// Whether it did its work and goes by itself.
    pub(super) finished: bool,
}

impl Store {
    /// Judges what a stream brought, by rules that hold for as long as the lock is held that is returned with it. `None`
    /// stands for metadata alone.
    pub(super) fn judged(
        &self,
        target: Option<&SecretKey>,
        interest: &Interest,
        sighting: &Sighting,
    ) -> (MutexGuard<'_, Places>, Vec<Option<Verdict>>) {
        let objects = match sighting {
            Sighting::Listed { objects, .. } => objects.as_slice(),
            Sighting::Applied(object) | Sighting::Deleted(object) => std::slice::from_ref(&**object),
        };
        let rules_of = |places: &Places| places.get(&target.cloned()).map(|place| Arc::clone(&place.rules));
        if interest.content == Content::Metadata || interest.labels.is_none() {
            return (self.places(), vec![None; objects.len()]);
        }
        let mut rules = rules_of(&self.places()).unwrap_or_default();
        loop {
            let verdicts = objects.iter().map(|object| verdict(&rules, interest, object)).collect();
            let places = self.places();
            // Somebody's rules changed meanwhile; that takes a person, so it does not go on like this.
            match rules_of(&places) {
                Some(now) if !Arc::ptr_eq(&now, &rules) => rules = now,
                _ => return (places, verdicts),
            }
        }
    }

    /// Objects of `dependent` that were seen before it had its rules.
    pub(super) fn unjudged(&self, target: Option<&SecretKey>, dependent: &Dependent) -> BTreeSet<Identity> {
        let places = self.places();
        let Some(place) = places.get(&target.cloned()) else { return BTreeSet::new() };
        let stale = place.wishes.get(dependent).into_iter().flat_map(|wish| &wish.stale);
        let objects = stale.filter_map(|kind| place.objects.get(kind)).flat_map(|objects| &objects.seen);
        let own = objects.filter(|(_, seen)| {
            seen.health.is_none() && seen.observed.owner.as_deref() == Some(&*dependent.owner)
        });
        own.map(|(identity, _)| identity.clone()).collect()
    }

    /// Takes what was read of an object, unless its stream was faster or the rules are others by now.
    pub(super) fn judge(
        &self,
        target: Option<&SecretKey>,
        rules: &Rules,
        identity: &Identity,
        object: &DynamicObject,
    ) {
        let verdict = of(rules, &identity.group_kind(), whole(object));
        let mut places = self.places();
        let Some(place) = places.get_mut(&target.cloned()) else { return };
        let Some(objects) = place.objects.get_mut(&identity.group_kind()) else { return };
        let Some(seen) = objects.seen.get_mut(identity) else { return };
        let are_these = match seen.observed.owner.as_deref().and_then(|owner| place.rules.get(owner)) {
            Some(held) => held.differing(rules).is_empty(),
            None => rules.are_none(),
        };
        let is_it = object.metadata.uid.as_deref() == Some(&*seen.observed.uid);
        let Some(Verdict { health, finished }) = verdict else { return };
        if are_these && is_it && seen.health.is_none() {
            seen.failed_since = (health.status == HealthStatus::Failed).then(Timestamp::now);
            seen.health = Some(health);
            if finished {
                objects.finished.insert(identity.clone(), seen.observed.uid.clone());
            }
        }
    }

    pub(super) fn all_judged(&self, target: Option<&SecretKey>, dependent: &Dependent) {
        let mut places = self.places();
        let wish = places.get_mut(&target.cloned()).and_then(|place| place.wishes.get_mut(dependent));
        if let Some(wish) = wish {
            wish.stale.clear();
        }
    }

    pub(super) fn finished(&self, target: Option<&SecretKey>, inventory: &Inventory) -> Vec<Identity> {
        let mut places = self.places();
        let Some(place) = places.get_mut(&target.cloned()) else { return vec![] };
        let mut found = vec![];
        for objects in place.objects.values_mut() {
            let seen = &objects.seen;
            objects.finished.retain(|identity, uid| {
                let own = inventory.get(identity).is_some_and(|entry| entry.uid == *uid);
                found.extend(own.then(|| identity.clone()));
                !own || seen.contains_key(identity)
            });
        }
        found
    }
}

impl Place {
    /// Whoever wants something else than before, or wants it judged otherwise.
    pub(super) fn wish(&mut self, dependent: &Dependent, mut wish: Wish) {
        let before = self.wishes.remove(dependent).unwrap_or_default();
        wish.stale = before.stale;
        let whole = |interest: &&Interest| interest.content == Content::Whole;
        let whole: BTreeSet<GroupKind> = wish.interests.iter().filter(whole).map(kind_of).collect();
        if !Arc::ptr_eq(&before.rules, &wish.rules) {
            let differing = before.rules.differing(&wish.rules);
            wish.stale.extend(differing.into_iter().filter(|kind| self.forget_verdicts(kind, dependent)));
            self.judge_by(dependent, &wish.rules);
        }
        wish.stale.retain(|kind| whole.contains(kind));
        self.wishes.insert(dependent.clone(), wish);
    }

    /// Whether there were any.
    fn forget_verdicts(&mut self, kind: &GroupKind, dependent: &Dependent) -> bool {
        let seen = self.objects.get_mut(kind).into_iter().flat_map(|objects| objects.seen.values_mut());
        let own = seen.filter(|seen| seen.observed.owner.as_deref() == Some(&*dependent.owner));
        let forget = |seen: &mut Seen| (seen.health, seen.failed_since) = (None, None);
        own.map(forget).count() > 0
    }

    fn judge_by(&mut self, dependent: &Dependent, rules: &Arc<Rules>) {
        if !rules.are_none() {
            Arc::make_mut(&mut self.rules).insert(Arc::clone(&dependent.owner), Arc::clone(rules));
        } else if self.rules.contains_key(&dependent.owner) {
            Arc::make_mut(&mut self.rules).remove(&dependent.owner);
        }
    }

    /// Whoever wants nothing any more; whether it wanted anything.
    pub(super) fn unwish(&mut self, dependent: &Dependent) -> bool {
        self.judge_by(dependent, &Arc::default());
        self.wishes.remove(dependent).is_some()
    }
}

/// Which object it is.
pub(super) fn identity(kind: &GroupKind, object: &DynamicObject) -> Identity {
    let metadata = &object.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    Identity::new(&kind.group, &kind.kind, metadata.namespace.as_deref(), name)
}

fn kind_of(interest: &Interest) -> GroupKind {
    GroupKind::new(&interest.group, &interest.kind)
}

fn verdict(
    rules: &HashMap<Arc<str>, Arc<Rules>>,
    interest: &Interest,
    object: &DynamicObject,
) -> Option<Verdict> {
    let owner = object.metadata.labels.as_ref().and_then(|labels| labels.get(labels::OWNER));
    let resource = interest.resource();
    let mut whole = whole(object);
    // Items of a list do not say what they are.
    if let (Some(fields), None) = (whole.as_mut().and_then(Value::as_object_mut), &object.types) {
        fields.insert("apiVersion".to_owned(), resource.api_version.into());
        fields.insert("kind".to_owned(), resource.kind.into());
    }
    match owner.and_then(|owner| rules.get(owner.as_str())) {
        Some(rules) => of(rules, &kind_of(interest), whole),
        None => of(&Rules::default(), &kind_of(interest), whole),
    }
}

/// Without managedFields, which are most of many objects and say nothing of health.
fn whole(object: &DynamicObject) -> Option<Value> {
    let mut whole = serde_json::to_value(object).ok()?;
    if let Some(metadata) = whole.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    Some(whole)
}

fn of(rules: &Rules, kind: &GroupKind, object: Option<Value>) -> Option<Verdict> {
    let object = object?;
    let finished = health::is_finished(&object);
    Some(Verdict { health: rules.assess(kind, &object, Timestamp::now()), finished })
}

#[cfg(test)]
mod tests;
