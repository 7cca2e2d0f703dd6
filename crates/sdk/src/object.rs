//! Checks of one object on a target: whether it matches the desired state, and whether it may be changed. Pure.

use std::hash::Hasher;

use kube::{ResourceExt, api::ApiResource, core::DynamicObject};
use kyma_api::{annotations, labels, names};
use kyma_targets::{STAMP_NAME, STAMP_NAMESPACE};
use serde_json::Value;

/// Returns the hash of the desired object for the annotation `applied`. Another hash shows that an apply has to
/// remove fields that are no longer desired. Stable across processes and Rust versions.
pub(crate) fn content_hash(object: &DynamicObject) -> String {
    let text = serde_json::to_string(object).unwrap_or_default();
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hasher.write(text.as_bytes());
    format!("{:016x}", hasher.finish())
}

/// FNV-1a, 64 bit: the standard library's hasher may change between versions.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Reports whether an apply of `wanted` over `live` would change nothing: the same content was applied before, and
/// each of its values is still present.
pub(crate) fn covers(live: &DynamicObject, wanted: &DynamicObject) -> bool {
    let applied = |object: &DynamicObject| object.annotations().get(annotations::APPLIED).cloned();
    let has_all = |live, wanted| match (serde_json::to_value(live), serde_json::to_value(wanted)) {
        (Ok(live), Ok(wanted)) => includes(&live, &wanted),
        _ => false,
    };
    applied(live) == applied(wanted) && has_all(live, wanted)
}

fn includes(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| match live.get(key) {
                Some(held) => includes(held, value),
                None => value.is_null(),
            })
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| includes(live, wanted))
        }
        _ => live == wanted,
    }
}

/// Ownership of an object on a target, relative to one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The object carries this owner's label, or this owner's field manager wrote it and the label was lost.
    Own,
    /// No component owns it: it has no owner label, and another owner created it or another field manager wrote it.
    Unowned,
    /// Another owner owns the object.
    Other,
}

/// Returns the ownership of this object for the owner with this field manager.
pub(crate) fn claim(live: &DynamicObject, owner: &str, manager: &str) -> Claim {
    match live.labels().get(labels::OWNER) {
        Some(held) if held == owner => Claim::Own,
        Some(_) => Claim::Other,
        None => match live.annotations().get(annotations::CREATED_BY) {
            Some(creator) if creator != owner => Claim::Unowned,
            _ if is_written_by(live, manager) => Claim::Own,
            _ => Claim::Unowned,
        },
    }
}

/// Reports whether this owner created the object and still owns it, by label, creator annotation and field manager.
pub(crate) fn is_created_by(live: &DynamicObject, owner: &str, manager: &str) -> bool {
    let is_ours = |held: Option<&String>| held.is_some_and(|held| held == owner);
    is_ours(live.labels().get(labels::OWNER))
        && is_ours(live.annotations().get(annotations::CREATED_BY))
        && is_written_by(live, manager)
}

fn is_written_by(live: &DynamicObject, manager: &str) -> bool {
    live.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some(manager))
}

/// Reports whether a deletion of this kind also deletes other objects or data.
pub(crate) fn holds_more(kind: &ApiResource) -> bool {
    kyma_api::needs_delete_proof(&kind.group, &kind.kind)
}

/// Reports whether the object is protected from apply and delete by modules. Includes the Kyma in `target_namespace`,
/// in which users choose modules.
pub(crate) fn is_protected(
    kind: &ApiResource,
    namespace: Option<&str>,
    name: &str,
    target_namespace: &str,
) -> bool {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => name == "default" || name == STAMP_NAMESPACE || name.starts_with("kube-"),
        ("", "ConfigMap") => name == STAMP_NAME && namespace == Some(STAMP_NAMESPACE),
        ("operator.kyma-project.io", "Kyma") => {
            name == names::TARGET_KYMA && namespace == Some(target_namespace)
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            name.ends_with(".operator.kyma-project.io") || name.ends_with(".component.kyma-project.io")
        }
        ("rbac.authorization.k8s.io", _) => name.starts_with("system:"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim};
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kyma_api::Kyma;
    use serde_json::json;

    use super::*;

    fn object(hash: &str, mut value: Value) -> DynamicObject {
        value["metadata"]["annotations"][annotations::APPLIED] = hash.into();
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn defaults_of_the_server_are_no_difference() {
        let wanted = object("1", json!({"metadata": {"name": "a"}, "data": {"x": "1"}, "list": [{"n": 1}]}));
        let live = object(
            "1",
            json!({"metadata": {"name": "a", "uid": "u"}, "data": {"x": "1", "y": "2"}, "list": [{"n": 1, "d": 2}]}),
        );
        assert!(covers(&live, &wanted));
    }

    #[test]
    fn other_values_missing_ones_and_withdrawn_ones_are() {
        let live =
            object("1", json!({"metadata": {"name": "a"}, "data": {"x": "1", "old": "1"}, "list": [1, 2]}));
        for wanted in [
            object("1", json!({"metadata": {"name": "a"}, "data": {"x": "2"}})),
            object("1", json!({"metadata": {"name": "a"}, "data": {"z": "1"}})),
            object("1", json!({"metadata": {"name": "a"}, "list": [1]})),
            object("2", json!({"metadata": {"name": "a"}, "data": {"x": "1"}})),
        ] {
            assert!(!covers(&live, &wanted), "{wanted:?}");
        }
    }

    #[test]
    fn the_hash_is_the_same_in_every_process() {
        let object: DynamicObject =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "data": {"b": 1}})).unwrap();
        assert_eq!(content_hash(&object), "97702e9ed47e86eb");
    }

    #[test]
    fn what_belongs_to_the_cluster_or_to_us_is_protected() {
        let namespace = ApiResource::erase::<Namespace>(&());
        let config_map = ApiResource::erase::<ConfigMap>(&());
        let is_protected = |kind, namespace, name| is_protected(kind, namespace, name, "kyma-system");
        assert!(is_protected(&namespace, None, "kube-system") && is_protected(&namespace, None, "default"));
        assert!(is_protected(&namespace, None, "kyma-system") && !is_protected(&namespace, None, "modules"));
        assert!(is_protected(&config_map, Some("kyma-system"), STAMP_NAME));
        assert!(!is_protected(&config_map, Some("kube-system"), "anything"));
    }

    #[test]
    fn the_users_kyma_is_protected_where_it_is() {
        let kyma = ApiResource::erase::<Kyma>(&());
        assert!(is_protected(&kyma, Some("modules"), "default", "modules"));
        assert!(!is_protected(&kyma, Some("kyma-system"), "default", "modules"));
        assert!(!is_protected(&kyma, Some("modules"), "another", "modules"));
    }

    /// Returns a live object with this owner label, creator and manager.
    fn live(owner: Option<&str>, creator: Option<&str>, manager: &str) -> DynamicObject {
        let labels = owner.map(|owner| json!({ labels::OWNER: owner }));
        let notes = creator.map(|creator| json!({ annotations::CREATED_BY: creator }));
        serde_json::from_value(json!({"metadata": {"name": "a", "labels": labels, "annotations": notes,
            "managedFields": [{"manager": manager, "operation": "Apply"}]}}))
        .unwrap()
    }

    #[test]
    fn owner_is_read_from_the_label_or_else_from_the_writer() {
        for (owner, creator, manager, expected) in [
            (Some("me"), None, "kubectl", Claim::Own),
            (Some("you"), Some("me"), "mine", Claim::Other),
            (None, None, "mine", Claim::Own),
            (None, Some("me"), "mine", Claim::Own),
            (None, Some("you"), "mine", Claim::Unowned),
            (None, None, "kubectl", Claim::Unowned),
        ] {
            let found = claim(&live(owner, creator, manager), "me", "mine");
            assert_eq!(found, expected, "{owner:?} {creator:?} {manager}");
        }
    }

    #[test]
    fn only_what_its_owner_created_may_be_deleted() {
        let may = |owner, creator, manager| is_created_by(&live(owner, creator, manager), "me", "mine");
        assert!(may(Some("me"), Some("me"), "mine"));
        assert!(!may(Some("me"), None, "mine"), "adopted");
        assert!(!may(Some("me"), Some("you"), "mine"), "made by another one");
        assert!(!may(None, Some("me"), "mine"), "its label was taken away");
        assert!(!may(Some("me"), Some("me"), "kubectl"), "a copy that somebody else wrote");
    }

    #[test]
    fn kinds_that_hold_more_than_themselves() {
        assert!(holds_more(&ApiResource::erase::<Namespace>(&())));
        assert!(holds_more(&ApiResource::erase::<PersistentVolumeClaim>(&())));
        assert!(holds_more(&ApiResource::erase::<CustomResourceDefinition>(&())));
        assert!(!holds_more(&ApiResource::erase::<ConfigMap>(&())));
    }
}
