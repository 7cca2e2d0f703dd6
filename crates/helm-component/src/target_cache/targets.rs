//! States of targets, indexed by component and by access Secret. Pure.
//!
//! An operator may serve ten thousand targets, of which a component uses one: adding and removing a component visits no
//! others.

use std::collections::{BTreeSet, HashMap};

use kyma_targets::SecretKey;

use super::target_state::TargetState;
use crate::component_key::ComponentKey;

/// Access Secret of a target; `None` for the hub itself.
type TargetKey = Option<SecretKey>;

/// State of each target that components use.
#[derive(Default)]
pub(super) struct TargetStates {
    states: HashMap<TargetKey, TargetState>,
    /// Targets of each component. The state of each has a subscription of the component, which may be empty.
    by_component: HashMap<ComponentKey, BTreeSet<TargetKey>>,
    /// Targets through the Secret of each name.
    by_secret: HashMap<String, BTreeSet<SecretKey>>,
}

impl TargetStates {
    pub(super) fn get(&self, target: Option<&SecretKey>) -> Option<&TargetState> {
        self.states.get(&target.cloned())
    }

    pub(super) fn get_mut(&mut self, target: Option<&SecretKey>) -> Option<&mut TargetState> {
        self.states.get_mut(&target.cloned())
    }

    /// Registers the component on the target and returns its state, which is dropped with the last component.
    pub(super) fn register(
        &mut self,
        target: Option<&SecretKey>,
        component_key: &ComponentKey,
    ) -> &mut TargetState {
        let is_new = self.by_component.entry(component_key.clone()).or_default().insert(target.cloned());
        if let Some(secret) = target.filter(|_| is_new) {
            self.by_secret.entry(secret.name.clone()).or_default().insert(secret.clone());
        }
        let state = self.states.entry(target.cloned()).or_default();
        state.subscriptions.entry(component_key.clone()).or_default();
        state
    }

    /// Removes a component from all its targets but this one.
    pub(super) fn leave_others(&mut self, target: Option<&SecretKey>, component_key: &ComponentKey) {
        let Some(targets) = self.by_component.get_mut(component_key) else { return };
        let others: Vec<TargetKey> = targets.iter().filter(|key| key.as_ref() != target).cloned().collect();
        for key in &others {
            targets.remove(key);
        }
        for key in &others {
            self.leave(key, component_key);
        }
    }

    /// Removes a component from all its targets.
    pub(super) fn forget(&mut self, component_key: &ComponentKey) {
        for key in self.by_component.remove(component_key).unwrap_or_default() {
            self.leave(&key, component_key);
        }
    }

    /// Drops the states of the targets through the Secret of this name.
    pub(super) fn drop_secret(&mut self, name: &str) {
        for key in self.by_secret.remove(name).unwrap_or_default().into_iter().map(Some) {
            let Some(state) = self.states.remove(&key) else { continue };
            for component_key in state.subscriptions.keys() {
                let Some(targets) = self.by_component.get_mut(component_key) else { continue };
                targets.remove(&key);
                if targets.is_empty() {
                    self.by_component.remove(component_key);
                }
            }
        }
    }

    /// Removes the subscription of a component, and the state with the last one.
    fn leave(&mut self, key: &TargetKey, component_key: &ComponentKey) {
        let Some(state) = self.states.get_mut(key) else { return };
        state.unsubscribe(component_key);
        if !state.subscriptions.is_empty() {
            return;
        }
        self.states.remove(key);
        if let Some(secret) = key
            && let Some(keys) = self.by_secret.get_mut(&secret.name)
        {
            keys.remove(secret);
            if keys.is_empty() {
                self.by_secret.remove(&secret.name);
            }
        }
    }
}

#[cfg(test)]
impl TargetStates {
    /// Reports whether no component uses a target.
    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty() && self.by_component.is_empty() && self.by_secret.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component_key(name: &str) -> ComponentKey {
        ComponentKey { namespace: "hub".into(), name: name.into(), owner: name.into() }
    }

    fn target(name: &str) -> SecretKey {
        SecretKey { namespace: "hub".to_owned(), name: name.to_owned(), key: "config".to_owned() }
    }

    #[test]
    fn a_removed_component_changes_only_the_targets_that_it_used() {
        let mut targets = TargetStates::default();
        let (own, other) = (target("own"), target("other"));
        targets.register(Some(&own), &component_key("a"));
        targets.register(None, &component_key("a"));
        // A visit of this state would drop it, since it has no component.
        targets.states.insert(Some(other.clone()), TargetState::default());
        targets.forget(&component_key("a"));
        assert_eq!(targets.states.keys().collect::<Vec<_>>(), [&Some(other)]);
        assert!(targets.by_component.is_empty() && targets.by_secret.is_empty());
    }

    #[test]
    fn a_state_is_dropped_with_its_last_component() {
        let mut targets = TargetStates::default();
        let own = target("own");
        for name in ["a", "b", "b"] {
            targets.register(Some(&own), &component_key(name));
        }
        targets.forget(&component_key("a"));
        targets.forget(&component_key("a"));
        assert!(targets.get(Some(&own)).is_some());
        targets.forget(&component_key("b"));
        assert!(targets.is_empty());
    }

    #[test]
    fn a_component_that_moves_leaves_its_former_target() {
        let mut targets = TargetStates::default();
        let (before, after) = (target("before"), target("after"));
        targets.register(Some(&before), &component_key("a"));
        targets.register(Some(&after), &component_key("a"));
        targets.leave_others(Some(&after), &component_key("a"));
        assert!(targets.get(Some(&before)).is_none() && targets.get(Some(&after)).is_some());
        targets.forget(&component_key("a"));
        assert!(targets.is_empty());
    }

    #[test]
    fn a_changed_secret_drops_its_targets_alone() {
        let mut targets = TargetStates::default();
        let (changed, other) = (target("changed"), target("other"));
        targets.register(Some(&changed), &component_key("a"));
        targets.register(Some(&other), &component_key("b"));
        targets.register(None, &component_key("c"));
        targets.drop_secret("changed");
        targets.drop_secret("unknown");
        assert!(targets.get(Some(&changed)).is_none());
        assert!(targets.get(Some(&other)).is_some() && targets.get(None).is_some());
        targets.register(Some(&changed), &component_key("a"));
        for name in ["a", "b", "c"] {
            targets.forget(&component_key(name));
        }
        assert!(targets.is_empty());
    }
}
