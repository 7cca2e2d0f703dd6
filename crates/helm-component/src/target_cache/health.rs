//! Rules for the health of objects: each object by the rules of the component that owns it.
//!
//! Only the verdict is kept, never the object. If a component's rules change, its verdicts are dropped, and the next
//! pass reads the objects once; events of streams in the meantime are newer than that read.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use kube::core::DynamicObject;
use kyma_controller::{Content, WatchSpec};
use kyma_health::HealthStatus;
use kyma_object_set::{GroupKind, Identity, Inventory};

use super::target_state::{Subscription, TargetState};
use super::verdict::Verdict;
use crate::component_key::ComponentKey;
use crate::expressions::Rules;

impl TargetState {
    /// Replaces the subscription and health rules of a component.
    pub(super) fn subscribe(&mut self, component_key: &ComponentKey, mut subscription: Subscription) {
        let before = self.subscriptions.remove(component_key).unwrap_or_default();
        subscription.stale = before.stale;
        let whole = |watch_spec: &&WatchSpec| watch_spec.content == Content::Whole;
        let whole: BTreeSet<GroupKind> = subscription.watch_specs.iter().filter(whole).map(kind_of).collect();
        if !Arc::ptr_eq(&before.rules, &subscription.rules) {
            let differing = before.rules.differing(&subscription.rules);
            let stale = differing.into_iter().filter(|kind| self.forget_verdicts(kind, component_key));
            subscription.stale.extend(stale);
            self.judge_by(component_key, &subscription.rules);
        }
        subscription.stale.retain(|kind| whole.contains(kind));
        self.count(&before.watch_specs, &subscription.watch_specs);
        self.subscriptions.insert(component_key.clone(), subscription);
    }

    /// Removes the subscription of a component.
    pub(super) fn unsubscribe(&mut self, component_key: &ComponentKey) {
        self.judge_by(component_key, &Arc::default());
        if let Some(subscription) = self.subscriptions.remove(component_key) {
            self.count(&subscription.watch_specs, &[]);
        }
    }

    /// Drops the verdicts on a component's objects of a kind. Reports whether there are such objects.
    fn forget_verdicts(&mut self, kind: &GroupKind, component_key: &ComponentKey) -> bool {
        let Some(objects) = self.objects.get_mut(kind) else { return false };
        let own: Vec<Identity> =
            objects.index.of(&component_key.owner).map(|(identity, _)| identity.clone()).collect();
        for identity in &own {
            objects.index.judge(identity, None, None);
        }
        !own.is_empty()
    }

    fn judge_by(&mut self, component_key: &ComponentKey, rules: &Arc<Rules>) {
        if !rules.are_none() {
            Arc::make_mut(&mut self.rules).insert(Arc::clone(&component_key.owner), Arc::clone(rules));
        } else if self.rules.contains_key(&component_key.owner) {
            Arc::make_mut(&mut self.rules).remove(&component_key.owner);
        }
    }

    /// Returns the objects of a component that were seen before it had its rules.
    pub(super) fn unjudged(&self, component_key: &ComponentKey) -> BTreeSet<Identity> {
        let subscription = self.subscriptions.get(component_key);
        let stale = subscription.into_iter().flat_map(|subscription| &subscription.stale);
        let objects = stale.filter_map(|kind| self.objects.get(kind));
        let own = objects.flat_map(|objects| objects.index.of(&component_key.owner));
        own.filter(|(_, seen)| seen.health.is_none()).map(|(identity, _)| identity.clone()).collect()
    }

    /// Takes the verdict on an object that was read, unless its stream was faster or the rules have changed.
    pub(super) fn judge(
        &mut self,
        rules: &Rules,
        identity: &Identity,
        object: &DynamicObject,
        verdict: Option<Verdict>,
    ) {
        let Some(objects) = self.objects.get_mut(&identity.group_kind()) else { return };
        let Some(seen) = objects.index.get(identity) else { return };
        let are_these = match seen.observed.owner.as_deref().and_then(|owner| self.rules.get(owner)) {
            Some(held) => held.differing(rules).is_empty(),
            None => rules.are_none(),
        };
        let is_it = object.metadata.uid.as_deref() == Some(&*seen.observed.uid);
        let Some(Verdict { health, finished }) = verdict else { return };
        if are_these && is_it && seen.health.is_none() {
            if finished {
                objects.finished.insert(identity.clone(), seen.observed.uid.clone());
            }
            let failed_since = (health.status == HealthStatus::Failed).then(Timestamp::now);
            objects.index.judge(identity, Some(health), failed_since);
        }
    }

    /// Records that the health of all outdated objects of a component was determined.
    pub(super) fn all_judged(&mut self, component_key: &ComponentKey) {
        if let Some(subscription) = self.subscriptions.get_mut(component_key) {
            subscription.stale.clear();
        }
    }

    /// Returns the objects of an inventory that have finished; objects that are gone are returned once.
    pub(super) fn finished(&mut self, inventory: &Inventory) -> Vec<Identity> {
        let mut found = vec![];
        for (identity, entry) in inventory {
            let Some(objects) = self.objects.get_mut(&identity.group_kind()) else { continue };
            if objects.finished.get(identity).is_some_and(|uid| *uid == entry.uid) {
                found.push(identity.clone());
                if !objects.index.contains(identity) {
                    objects.finished.remove(identity);
                }
            }
        }
        found
    }
}

fn kind_of(watch_spec: &WatchSpec) -> GroupKind {
    GroupKind::new(&watch_spec.group, &watch_spec.kind)
}

#[cfg(test)]
mod tests;
