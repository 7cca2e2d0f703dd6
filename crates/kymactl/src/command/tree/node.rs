//! The objects of a component and those that they own, with their health. Pure.

use std::collections::HashMap;

use jiff::Timestamp;
use kube::{ResourceExt as _, api::DynamicObject};
use kyma_health::{Health, HealthStatus};
use kyma_object_set::{
    Entry, Identity, OWNER_LABEL, ObservedObject,
    drift::{self, Drift},
};
use serde::Serialize;

use crate::output;

/// Relation of an object to the component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Role {
    /// Part of the content.
    Object,
    /// A hook that ran or runs.
    Hook,
    /// The default custom resource.
    DefaultResource,
    /// Created by the controller of another object, its owner.
    Owned,
}

/// An object in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Node {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) group: String,
    pub(super) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) role: Role,
    /// `Current`, `InProgress`, `Terminating`, `Unknown`, `Failed`, or `NotFound`.
    pub(super) health: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    /// Change since the last apply; `None` without drift.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) drift: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) children: Vec<Node>,
}

/// Returns `<kind>.<group>/<name>` of all objects, owners first.
pub(super) fn names(nodes: &[Node]) -> Vec<String> {
    let of_node = |node: &Node| {
        let own = output::qualified(&node.kind, &node.group, &node.name);
        std::iter::once(own).chain(names(&node.children)).collect::<Vec<_>>()
    };
    nodes.iter().flat_map(of_node).collect()
}

/// Health of an object that does not exist.
pub(super) const NOT_FOUND: &str = "NotFound";

/// Field manager and owner of the component's objects, and the time of the view.
pub(super) struct View<'a> {
    pub(super) manager: &'a str,
    pub(super) owner: &'a str,
    pub(super) now: Timestamp,
}

/// Result of reading an object.
pub(super) enum ReadResult {
    /// It exists.
    Live(Box<DynamicObject>),
    /// It does not exist.
    Nothing,
    /// It could not be read, with the reason.
    Unknown(String),
}

impl View<'_> {
    /// Returns the node of a component's object; `entry` is the record of its last apply.
    pub(super) fn node(
        &self,
        identity: &Identity,
        role: Role,
        entry: Option<&Entry>,
        found: &ReadResult,
    ) -> Node {
        let (health, live) = match found {
            ReadResult::Live(live) => (self.assess(live), Some(&**live)),
            ReadResult::Nothing => (None, None),
            ReadResult::Unknown(why) => (Some(Health::new(HealthStatus::Unknown, why.clone())), None),
        };
        let known = !matches!(found, ReadResult::Unknown(_));
        let entry = entry.filter(|entry| known && entry.was_sent() && !identity.is_namespace());
        let observed =
            live.map(|live| ObservedObject::from_metadata(&live.metadata, self.manager, OWNER_LABEL));
        let drift = entry.and_then(|entry| word(drift::compare(entry, observed.as_ref(), self.owner)));
        node(identity, role, health, drift, live)
    }

    fn assess(&self, live: &DynamicObject) -> Option<Health> {
        let whole = serde_json::to_value(live).ok()?;
        Some(kyma_health::assess(&whole, self.now))
    }

    /// Adds owned objects below their owners at any depth, and drops all others.
    pub(super) fn grow(&self, nodes: &mut [Node], owned: &[(Identity, DynamicObject)]) {
        let mut by_owner: HashMap<&str, Vec<&(Identity, DynamicObject)>> = HashMap::new();
        for one in owned {
            for owner in one.1.owner_references() {
                by_owner.entry(&owner.uid).or_default().push(one);
            }
        }
        for node in nodes {
            self.hang(node, &by_owner, MAX_DEPTH);
        }
    }

    fn hang(&self, node: &mut Node, by_owner: &HashMap<&str, Vec<&(Identity, DynamicObject)>>, depth: usize) {
        let Some(owned) = node.uid.as_deref().and_then(|uid| by_owner.get(uid)) else { return };
        if depth == 0 {
            return;
        }
        for (identity, live) in owned {
            let mut child = self::node(identity, Role::Owned, self.assess(live), None, Some(live));
            self.hang(&mut child, by_owner, depth - 1);
            // ReplicaSets of earlier revisions.
            let is_idle = identity.kind == "ReplicaSet" && live.data["spec"]["replicas"] == 0;
            if !(is_idle && child.children.is_empty()) {
                node.children.push(child);
            }
        }
        node.children.sort_by(|one, other| (&one.kind, &one.name).cmp(&(&other.kind, &other.name)));
    }
}

/// Maximum depth below an object of the content: a CronJob's Jobs and their Pods are two levels.
const MAX_DEPTH: usize = 3;

fn node(
    identity: &Identity,
    role: Role,
    health: Option<Health>,
    drift: Option<&'static str>,
    live: Option<&DynamicObject>,
) -> Node {
    let Identity { group, kind, namespace, name } = identity.clone();
    Node {
        group,
        kind,
        namespace,
        name,
        role,
        health: health.as_ref().map_or(NOT_FOUND, |health| health.status.as_str()),
        message: health.map(|health| health.message).unwrap_or_default(),
        drift,
        uid: live.and_then(|live| live.metadata.uid.clone()),
        created: live.and_then(|live| live.metadata.creation_timestamp.as_ref()).map(|time| time.0),
        children: vec![],
    }
}

fn word(drift: Drift) -> Option<&'static str> {
    match drift {
        Drift::Unchanged | Drift::Deleting => None,
        Drift::Changed => Some("changed"),
        Drift::Gone => Some("deleted"),
        Drift::Recreated => Some("recreated"),
        Drift::Taken => Some("taken"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const VIEW: View<'static> = View { manager: "m", owner: "us", now: Timestamp::UNIX_EPOCH };

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn owned(kind: &str, name: &str, owner: &str, more: &Value) -> (Identity, DynamicObject) {
        let mut value = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "uid": name,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "x", "name": "x", "uid": owner}]}});
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        (Identity::new("apps", kind, Some("n"), name), object(value))
    }

    #[test]
    fn a_node_has_health_and_drift() {
        let identity = Identity::new("apps", "Deployment", Some("n"), "d");
        let entry = Entry { uid: "u".to_owned(), fingerprint: "f".to_owned(), ..Entry::default() };
        let told = |found: ReadResult| {
            let node = VIEW.node(&identity, Role::Object, Some(&entry), &found);
            (node.health, node.drift)
        };
        let live = |uid: &str, status: Value| {
            ReadResult::Live(Box::new(object(json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "d", "uid": uid}, "spec": {"replicas": 1}, "status": status}))))
        };
        assert_eq!(told(live("u", json!({}))), ("InProgress", Some("changed")));
        let failed = json!({"conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]});
        assert_eq!(told(live("v", failed)), ("Failed", Some("recreated")));
        assert_eq!(told(ReadResult::Nothing), (NOT_FOUND, Some("deleted")));
        assert_eq!(told(ReadResult::Unknown("forbidden".to_owned())), ("Unknown", None));
    }

    #[test]
    fn owned_objects_are_below_their_owner_without_old_revisions() {
        let identity = Identity::new("apps", "Deployment", Some("n"), "d");
        let deployment = object(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "uid": "d"}}));
        let mut nodes =
            vec![VIEW.node(&identity, Role::Object, None, &ReadResult::Live(Box::new(deployment)))];
        let all = [
            owned("Pod", "p2", "new", &json!({})),
            owned("Pod", "p1", "new", &json!({})),
            owned("Pod", "stray", "somebody", &json!({})),
            owned("ReplicaSet", "new", "d", &json!({"spec": {"replicas": 2}})),
            owned("ReplicaSet", "old", "d", &json!({"spec": {"replicas": 0}})),
        ];
        VIEW.grow(&mut nodes, &all);
        let names = |nodes: &[Node]| -> Vec<String> { nodes.iter().map(|node| node.name.clone()).collect() };
        assert_eq!(names(&nodes[0].children), ["new"]);
        assert_eq!(names(&nodes[0].children[0].children), ["p1", "p2"]);
    }

    #[test]
    fn objects_that_own_each_other_are_not_followed_for_ever() {
        let identity = Identity::new("", "Pod", Some("n"), "a");
        let (_, a) = owned("Pod", "a", "b", &json!({}));
        let mut nodes = vec![VIEW.node(&identity, Role::Object, None, &ReadResult::Live(Box::new(a)))];
        VIEW.grow(&mut nodes, &[owned("Pod", "a", "b", &json!({})), owned("Pod", "b", "a", &json!({}))]);
        let mut depth = 0;
        let mut level = &nodes[0];
        while let Some(child) = level.children.first() {
            (depth, level) = (depth + 1, child);
        }
        assert_eq!(depth, MAX_DEPTH);
    }
}
