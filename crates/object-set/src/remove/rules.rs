//! Rules by which an object allows or blocks its deletion and that of its Namespace.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::cluster::discovery::{Kinds, Mapping};
use crate::inventory::{Entry, Inventory};
use crate::managed_fields::entries::applied_entry;
use crate::object::{GroupKind, Identity};
use crate::ownership::{CREATED_BY, Guard, OWNER_LABEL, Ownership, Protection, sharers};
use crate::prune::{KeepReason, holds_data};

/// Helm's annotation for objects that outlive their release.
const RESOURCE_POLICY: &str = "helm.sh/resource-policy";

/// Purpose of a removal, which decides on its rules and propagation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Prune,
    Uninstall,
    Replace,
}

/// The rules of one removal, with their inputs.
pub(super) struct Rules<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) ownership: &'a Ownership,
    pub(super) protection: &'a Protection,
    pub(super) purpose: Purpose,
    /// Objects that are deleted too, and so do not keep their Namespace. Empty for an uninstallation, which deletes
    /// all owned objects.
    pub(super) going: BTreeSet<Identity>,
}

impl Rules<'_> {
    /// Returns the reason to keep an object, by its protection and its metadata.
    pub(super) fn stays(&self, identity: &Identity, entry: &Entry, live: &ObjectMeta) -> Option<KeepReason> {
        if let Some(reason) = self.guarded(identity, entry).or_else(|| self.not_ours(identity, live)) {
            return Some(reason);
        }
        let annotation = |key: &str| live.annotations.as_ref().and_then(|all| all.get(key));
        if annotation(RESOURCE_POLICY).is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep")) {
            return Some(KeepReason::ResourcePolicy);
        }
        let foundation = identity.is_namespace() || identity.is_crd();
        let is_older =
            foundation && annotation(CREATED_BY).is_none() || holds_data(identity) && !entry.created;
        is_older.then_some(KeepReason::NotCreatedByUs)
    }

    fn guarded(&self, identity: &Identity, entry: &Entry) -> Option<KeepReason> {
        match self.protection.guard(identity) {
            Some(Guard::Always) => Some(KeepReason::Protected),
            Some(Guard::UnlessCreated) if !entry.created => Some(KeepReason::Protected),
            _ => None,
        }
    }

    /// Returns the reason to keep an object that its labels and `managedFields` do not assign to this owner.
    fn not_ours(&self, identity: &Identity, live: &ObjectMeta) -> Option<KeepReason> {
        let no_labels = BTreeMap::new();
        let labels = live.labels.as_ref().unwrap_or(&no_labels);
        let us = &self.ownership.owner;
        if sharers(labels.keys()).iter().any(|owner| owner != us) {
            return Some(KeepReason::OtherOwner);
        }
        if identity.is_namespace() {
            let ours = labels.contains_key(&Ownership::share_label(us));
            return (!ours).then_some(KeepReason::MarkLost);
        }
        match labels.get(OWNER_LABEL) {
            Some(owner) if owner != us => Some(KeepReason::OtherOwner),
            Some(_) if applied_entry(live, &self.ownership.manager).is_some() => None,
            // This owner has a share in a CRD that this operator never wrote.
            None if labels.contains_key(&Ownership::share_label(us)) && !is_of_ours(live) => {
                Some(KeepReason::NotCreatedByUs)
            }
            _ => Some(KeepReason::MarkLost),
        }
    }

    /// Returns the reason to keep the Namespace of an object; `None` if it may be deleted with it. An uninstallation
    /// deletes all owned objects with it, a prune only those of its plan and nothing that holds data.
    pub(super) fn held_by(&self, kinds: &Kinds, kind: &GroupKind, live: &ObjectMeta) -> Option<KeepReason> {
        if live.deletion_timestamp.is_some() {
            return None;
        }
        // The label alone proves nothing, since operators copy labels to their own objects.
        let applied = applied_entry(live, &self.ownership.manager).is_some();
        let owner = live.labels.as_ref().and_then(|labels| labels.get(OWNER_LABEL));
        let ours = applied && owner == Some(&self.ownership.owner);
        if self.purpose == Purpose::Uninstall {
            let is_controlled = controller(live).is_some_and(|owner| self.explains(kinds, owner));
            let is_foreign = !is_trace(kind, live) && !ours && !is_controlled;
            return is_foreign.then_some(KeepReason::ForeignObjects);
        }
        if is_trace(kind, live) && !applied {
            return None;
        }
        let name = live.name.as_deref().unwrap_or_default();
        let identity = Identity::new(&kind.group, &kind.kind, live.namespace.as_deref(), name);
        if holds_data(&identity) {
            return Some(KeepReason::HoldsData);
        }
        if self.goes(&identity, live) || self.goes_with_controller(kinds, live) {
            return None;
        }
        Some(if ours { KeepReason::WantedObjects } else { KeepReason::ForeignObjects })
    }

    /// Reports whether an object is in the plan and may be deleted by its own metadata.
    fn goes(&self, identity: &Identity, live: &ObjectMeta) -> bool {
        let entry = self.inventory.get(identity).filter(|_| self.going.contains(identity));
        entry.is_some_and(|entry| {
            live.uid.as_deref() == Some(entry.uid.as_str()) && self.stays(identity, entry, live).is_none()
        })
    }

    /// Reports whether an object is covered by its controller: one in the same Namespace is checked itself, and one
    /// outside of Namespaces or its CRD is being deleted.
    fn goes_with_controller(&self, kinds: &Kinds, live: &ObjectMeta) -> bool {
        let Some(controller) = controller(live) else { return false };
        let outside = outside(controller);
        let is_inside = kinds.preferred(&outside.group_kind()).is_some_and(is_looked_at);
        is_inside || self.going.contains(&outside) || self.removes_kind(controller)
    }

    /// Reports whether the controller of an object is known: its kind is served, or its CRD is removed by this owner.
    /// A controller of any other kind may return with its CRD, so its objects are foreign.
    fn explains(&self, kinds: &Kinds, controller: &OwnerReference) -> bool {
        kinds.preferred(&outside(controller).group_kind()).is_some() || self.removes_kind(controller)
    }

    /// Reports whether a CRD of the controller's API group is being removed.
    fn removes_kind(&self, controller: &OwnerReference) -> bool {
        let group = outside(controller).group;
        let is_of_group = |object: &Identity| {
            object.is_crd() && object.name.split_once('.').is_some_and(|(_, of)| of == group)
        };
        match self.purpose {
            Purpose::Uninstall => self.inventory.iter().any(|(object, _)| is_of_group(object)),
            Purpose::Prune | Purpose::Replace => self.going.iter().any(is_of_group),
        }
    }

    /// Returns an object's cluster-scoped controller and its uid. It has to be gone before an uninstallation deletes
    /// the object with its Namespace.
    pub(super) fn hangs_on<'k>(
        &self,
        kinds: &'k Kinds,
        live: &ObjectMeta,
    ) -> Option<(&'k Mapping, Identity, String)> {
        let is_going = self.purpose != Purpose::Uninstall || live.deletion_timestamp.is_some();
        let controller = controller(live).filter(|_| !is_going)?;
        let outside = outside(controller);
        let mapping = kinds.preferred(&outside.group_kind()).filter(|mapping| !is_looked_at(mapping))?;
        Some((mapping, outside, controller.uid.clone()))
    }
}

/// Reports whether an owner created it.
fn is_of_ours(live: &ObjectMeta) -> bool {
    live.annotations.as_ref().is_some_and(|all| all.contains_key(CREATED_BY))
}

/// Reports whether a Namespace is searched for objects of a kind before its deletion.
pub(super) fn is_looked_at(mapping: &Mapping) -> bool {
    mapping.namespaced && mapping.can("list") && mapping.can("delete")
}

/// Reports whether Kubernetes creates an object for every Namespace, or as a record of events there.
fn is_trace(kind: &GroupKind, live: &ObjectMeta) -> bool {
    let name = live.name.as_deref().unwrap_or_default();
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "ConfigMap") => name == "kube-root-ca.crt",
        ("", "ServiceAccount") => name == "default",
        // Leases, events and endpoints are records without other content. Kinds of the same name in other groups may
        // hold data.
        ("" | "events.k8s.io", "Event")
        | ("", "Endpoints")
        | ("discovery.k8s.io", "EndpointSlice")
        | ("coordination.k8s.io", "Lease") => true,
        _ => false,
    }
}

/// Returns the identity of a controller as a cluster-scoped object.
fn outside(controller: &OwnerReference) -> Identity {
    let group = controller.api_version.split_once('/').map_or("", |(group, _)| group);
    Identity::new(group, &controller.kind, None, &controller.name)
}

/// Returns the owner reference to an object's controller.
fn controller(live: &ObjectMeta) -> Option<&OwnerReference> {
    live.owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::object::Object;

    fn metadata(value: &serde_json::Value) -> ObjectMeta {
        serde_json::from_value(value.clone()).unwrap()
    }

    fn us() -> Ownership {
        Ownership { manager: "m".into(), owner: "us".into(), version: String::new() }
    }

    #[test]
    fn kubernetes_and_own_objects_allow_namespace_deletion() {
        let crd = Identity::new("apiextensions.k8s.io", "CustomResourceDefinition", None, "as.removed.io");
        let inventory: Inventory = [(crd, Entry::default())].into_iter().collect();
        let (us, protection) = (us(), Protection::of_kubernetes());
        let rules = Rules {
            inventory: &inventory,
            ownership: &us,
            protection: &protection,
            purpose: Purpose::Uninstall,
            going: BTreeSet::new(),
        };
        let applied = json!([{"manager": "m", "operation": "Apply"}]);
        let of = |api_version: &str, kind: &str| json!([{"apiVersion": api_version, "kind": kind, "name": "a", "uid": "u", "controller": true}]);
        let (controlled, unserved) = (of("x.io/v1", "In"), of("unserved.io/v1", "A"));
        let of_removed_crd = of("removed.io/v1", "A");
        let owned = json!([{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"}]);
        let cases = [
            ("ConfigMap", json!({"name": "kube-root-ca.crt"}), false),
            ("ConfigMap", json!({"name": "users"}), true),
            ("ServiceAccount", json!({"name": "default"}), false),
            ("ServiceAccount", json!({"name": "builder"}), true),
            ("Event", json!({"name": "e"}), false),
            ("Event.events.k8s.io", json!({"name": "e"}), false),
            ("Event.calendar.example.org", json!({"name": "e"}), true),
            ("Endpoints", json!({"name": "e"}), false),
            ("EndpointSlice.discovery.k8s.io", json!({"name": "e"}), false),
            ("EndpointSlice.cilium.example.org", json!({"name": "e"}), true),
            ("Lease.coordination.k8s.io", json!({"name": "leader"}), false),
            ("Lease.flats.example.org", json!({"name": "leader"}), true),
            ("ConfigMap.example.org", json!({"name": "kube-root-ca.crt"}), true),
            ("Pod", json!({"name": "p", "ownerReferences": controlled}), false),
            ("Pod", json!({"name": "p", "ownerReferences": unserved}), true),
            ("Secret", json!({"name": "s", "ownerReferences": of_removed_crd}), false),
            ("Pod", json!({"name": "p", "ownerReferences": owned}), true),
            ("Secret", json!({"name": "s", "labels": {OWNER_LABEL: "us"}, "managedFields": applied}), false),
            ("Secret", json!({"name": "copied", "labels": {OWNER_LABEL: "us"}}), true),
            ("Secret", json!({"name": "s", "labels": {OWNER_LABEL: "them"}}), true),
            ("Secret", json!({"name": "s", "deletionTimestamp": "2026-01-01T00:00:00Z"}), false),
        ];
        for (kind, value, foreign) in cases {
            let (name, group) = kind.split_once('.').unwrap_or((kind, ""));
            let held = rules.held_by(&kinds(), &GroupKind::new(group, name), &metadata(&value));
            assert_eq!(held, foreign.then_some(KeepReason::ForeignObjects), "{kind} {value}");
        }
    }

    #[test]
    fn an_unserved_controller_kind_keeps_the_namespace() {
        let crd = Identity::new("apiextensions.k8s.io", "CustomResourceDefinition", None, "as.removed.io");
        let inventory: Inventory = [(crd.clone(), Entry::default())].into_iter().collect();
        let (us, protection) = (us(), Protection::of_kubernetes());
        let rules = |purpose: Purpose| Rules {
            inventory: &inventory,
            ownership: &us,
            protection: &protection,
            purpose,
            going: if purpose == Purpose::Prune { BTreeSet::from([crd.clone()]) } else { BTreeSet::new() },
        };
        let cases = [
            ("x.io/v1", "In", false),
            // Any served version of the kind shows its controller.
            ("x.io/v9", "In", false),
            ("removed.io/v1", "A", false),
            // The group is served, the kind is not.
            ("x.io/v1", "Gone", true),
            ("unserved.io/v1", "In", true),
            ("v1", "In", true),
            ("sub.removed.io/v1", "A", true),
        ];
        for (api_version, kind, stays) in cases {
            let controller = json!({"apiVersion": api_version, "kind": kind, "name": "a", "uid": "u",
                "controller": true});
            let object = metadata(&json!({"name": "o", "namespace": "n", "ownerReferences": [controller]}));
            let expected = stays.then_some(KeepReason::ForeignObjects);
            for purpose in [Purpose::Uninstall, Purpose::Prune] {
                let held = rules(purpose).held_by(&kinds(), &GroupKind::new("", "Secret"), &object);
                assert_eq!(held, expected, "{api_version} {kind}");
            }
        }
    }

    /// An object in the Namespace `n` that the owner applied, with the fields in `change`.
    fn applied(name: &str, change: &serde_json::Value) -> serde_json::Value {
        let mut object = json!({"name": name, "namespace": "n", "uid": name, "labels": {OWNER_LABEL: "us"},
            "managedFields": [{"manager": "m", "operation": "Apply"}]});
        for (field, value) in change.as_object().unwrap() {
            object[field] = value.clone();
        }
        object
    }

    /// A kind `In` whose objects are in Namespaces, and a kind `Out`.
    fn kinds() -> Arc<Kinds> {
        let crds = [("Namespaced", "In", "ins"), ("Cluster", "Out", "outs")].map(|(scope, kind, plural)| {
            Object::from_value(json!({"apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.x.io")},
                "spec": {"group": "x.io", "scope": scope, "names": {"kind": kind, "plural": plural},
                    "versions": [{"name": "v1", "served": true}]}}))
            .unwrap()
        });
        Arc::new(Kinds::default()).with_crds(&crds)
    }

    #[test]
    fn a_prune_deletes_a_namespace_only_with_dependent_objects() {
        let in_n = |kind: &str, name: &str| Identity::new("", kind, Some("n"), name);
        let going = BTreeSet::from([
            in_n("Secret", "goes"),
            in_n("Secret", "kept"),
            in_n("Secret", "another"),
            in_n("PersistentVolumeClaim", "goes"),
            Identity::new("x.io", "Out", None, "goes"),
        ]);
        let entry = |name: &str| Entry { uid: name.to_owned(), created: true, ..Entry::default() };
        let mut inventory: Inventory = going.iter().map(|id| (id.clone(), entry(&id.name))).collect();
        inventory.insert(in_n("Secret", "wanted"), entry("wanted"));
        let (us, protection) = (us(), Protection::of_kubernetes());
        let rules = |purpose: Purpose| Rules {
            inventory: &inventory,
            ownership: &us,
            protection: &protection,
            purpose,
            going: if purpose == Purpose::Prune { going.clone() } else { BTreeSet::new() },
        };
        let none = json!({});
        let of = |kind: &str, name: &str| {
            json!({"labels": {}, "managedFields": [], "ownerReferences":
                [{"apiVersion": "x.io/v1", "kind": kind, "name": name, "uid": "u", "controller": true}]})
        };
        let keep = json!({"annotations": {"helm.sh/resource-policy": "keep"}});
        let (wanted, foreign) = (Some(KeepReason::WantedObjects), Some(KeepReason::ForeignObjects));
        let cases = [
            ("Secret", applied("goes", &none), None),
            ("Secret", applied("wanted", &none), wanted),
            ("Secret", applied("stray", &none), wanted),
            ("Secret", applied("kept", &keep), wanted),
            ("Secret", applied("another", &json!({"uid": "anew"})), wanted),
            ("Secret", applied("goes", &json!({"labels": {OWNER_LABEL: "them"}})), foreign),
            ("Secret", applied("wanted", &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})), None),
            // The set may have one of these, too.
            ("Endpoints", json!({"name": "e"}), None),
            ("Endpoints", json!({"name": "copied", "labels": {OWNER_LABEL: "us"}}), None),
            ("Endpoints", applied("wanted", &none), wanted),
            ("ServiceAccount", applied("default", &json!({"labels": {OWNER_LABEL: "them"}})), foreign),
            // Templates of StatefulSets make claims that nothing else owns, or the StatefulSet.
            ("PersistentVolumeClaim", json!({"name": "data-0"}), Some(KeepReason::HoldsData)),
            ("PersistentVolumeClaim", applied("goes", &none), Some(KeepReason::HoldsData)),
            ("PersistentVolumeClaim", applied("data-0", &of("In", "i")), Some(KeepReason::HoldsData)),
            ("Pod", applied("p", &of("In", "i")), None),
            ("Pod", applied("p", &of("Gone", "g")), foreign),
            ("Pod", applied("p", &of("Out", "goes")), None),
            ("Pod", applied("p", &of("Out", "stays")), foreign),
        ];
        for (kind, value, expected) in cases {
            let kind = GroupKind::new("", kind);
            let held = |purpose| rules(purpose).held_by(&kinds(), &kind, &metadata(&value));
            assert_eq!(held(Purpose::Prune), expected, "{kind} {value}");
            // An object that is recreated deletes nothing that it does not create again.
            assert!(held(Purpose::Replace).is_some() || expected.is_none(), "{kind} {value}");
        }
    }
}
