use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::copy::Kind;

struct Hub {
    has: BTreeSet<Key>,
    deleted: BTreeSet<Key>,
    hidden_by_loss: BTreeSet<Key>,
}

impl Source for Hub {
    fn is_too_incomplete_to_delete(&self, _: Kind) -> bool {
        self.has.is_empty()
    }

    fn has(&self, key: &Key) -> bool {
        self.has.contains(key)
    }

    fn is_deleted(&self, key: &Key) -> bool {
        self.deleted.contains(key)
    }

    fn is_hidden_by_loss(&self, key: &Key) -> bool {
        self.hidden_by_loss.contains(key)
    }
}

fn key(name: &str) -> Key {
    Key { kind: Kind::Template, name: name.into() }
}

fn hub(names: &[&str]) -> Hub {
    let has = names.iter().map(|name| key(name)).collect();
    Hub { has, deleted: BTreeSet::new(), hidden_by_loss: BTreeSet::new() }
}

fn copy() -> Arc<Copy> {
    Arc::new(Copy::new(&BTreeMap::new(), &BTreeMap::new(), json!({})))
}

fn desired(names: &[&str]) -> BTreeMap<Key, Arc<Copy>> {
    names.iter().map(|name| (key(name), copy())).collect()
}

fn existing(ownership: Ownership) -> ExistingObject {
    ExistingObject {
        uid: "uid".into(),
        fingerprint: "f".into(),
        ownership,
        content: Some(copy().hash.clone()),
    }
}

fn on_target(name: &str, ownership: Ownership) -> BTreeMap<Key, ExistingObject> {
    BTreeMap::from([(key(name), existing(ownership))])
}

#[test]
fn what_is_missing_is_made_and_what_is_in_step_is_left() {
    let plan = plan(&desired(&["a", "b"]), &on_target("a", Ownership::Ours), &hub(&["a", "b"]));
    assert_eq!(plan, Plan { apply: vec![(key("b"), copy(), None)], ..Plan::default() });
}

#[test]
fn what_differs_is_applied_over_the_object_that_is_there() {
    let stale = BTreeMap::from([(
        key("a"),
        ExistingObject { content: Some("old".into()), ..existing(Ownership::Ours) },
    )]);
    let unknown = BTreeMap::from([(key("a"), ExistingObject { content: None, ..existing(Ownership::Ours) })]);
    for existing in [stale, unknown, on_target("a", Ownership::Adoptable)] {
        let plan = plan(&desired(&["a"]), &existing, &hub(&["a"]));
        assert_eq!(plan.apply, [(key("a"), copy(), Some("uid".into()))]);
    }
}

#[test]
fn a_users_object_of_a_wanted_name_is_told_and_left_alone() {
    let plan = plan(&desired(&["a"]), &on_target("a", Ownership::Foreign), &hub(&["a"]));
    assert_eq!(plan, Plan { taken: vec![key("a")], ..Plan::default() });
}

#[test]
fn a_copy_that_is_going_is_waited_for() {
    let plan = plan(&desired(&["a"]), &on_target("a", Ownership::Deleting), &hub(&["a"]));
    assert!(plan.is_empty());
}

#[test]
fn only_our_own_copies_are_removed() {
    let removed = |ownership| plan(&desired(&[]), &on_target("a", ownership), &hub(&["a"])).remove.len();
    let counts =
        [Ownership::Ours, Ownership::Deleting, Ownership::Adoptable, Ownership::Foreign].map(removed);
    assert_eq!(counts, [1, 0, 0, 0]);
}

#[test]
fn a_copy_that_the_index_does_not_know_needs_a_live_look_first() {
    let unconfirmed =
        |hub: Hub| plan(&desired(&[]), &on_target("a", Ownership::Ours), &hub).remove[0].unconfirmed;
    assert!(!unconfirmed(hub(&["a"])), "on the hub, but not for this Kyma");
    let deleted = Hub { deleted: [key("a")].into(), ..hub(&["b"]) };
    assert!(unconfirmed(deleted), "deleted as far as the watch told");
}

#[test]
fn a_partial_loss_of_the_catalogue_removes_no_copy() {
    let lost = plan(&desired(&["b"]), &on_target("a", Ownership::Ours), &hub(&["b"]));
    assert_eq!((lost.frozen, lost.remove.len()), (1, 0), "nobody deleted it");
    let hidden = Hub { hidden_by_loss: [key("a")].into(), ..hub(&["a", "b"]) };
    let hidden = plan(&desired(&["b"]), &on_target("a", Ownership::Ours), &hidden);
    assert_eq!((hidden.frozen, hidden.remove.len()), (0, 0), "a template that it refers to is missing");
}

#[test]
fn too_incomplete_catalogue_deletes_no_copies() {
    let plan = plan(&desired(&[]), &on_target("a", Ownership::Ours), &hub(&[]));
    assert_eq!(plan, Plan { frozen: 1, ..Plan::default() });
}

#[test]
fn frozen_removals_are_counted() {
    let mut plan = plan(&desired(&["b"]), &on_target("a", Ownership::Ours), &hub(&["a", "b"]));
    plan.freeze();
    assert_eq!((plan.frozen, plan.remove.len(), plan.apply.len()), (1, 0, 1));
}
