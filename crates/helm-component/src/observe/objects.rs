//! Desired objects, each with its observed state.

use kyma_api::{HelmComponentSpec, ObjectSelector};
use kyma_health::HealthStatus;
use kyma_object_set::drift;
use kyma_object_set::{Identity, Kinds};

use super::health::HealthContext;
use super::{health, is_manager};
use crate::actions::rollback;
use crate::expressions;
use crate::pass::Pass;
use crate::plan::{Content, ObjectState};
use crate::target_cache::{Snapshot, health_counts};

/// Observed state of the target at this point of a reconcile.
pub(super) struct ObservedTarget<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// Whether the watches have delivered their lists.
    pub(super) watched: bool,
    /// Whether the target went back to an older version than the applied one, or the user requested a complete apply.
    pub(super) set_back: bool,
}

/// Returns the desired objects; for recorded content, those of the inventory.
pub(super) fn objects(pass: &Pass<'_>, look: &ObservedTarget<'_>, content: Content) -> Vec<ObjectState> {
    let ObservedTarget { snapshot, watched, set_back } = *look;
    let recorded = &pass.state.recorded;
    let now = jiff::Timestamp::now().as_second();
    let spec = &pass.context.resource.spec;
    let health_context = HealthContext::of(pass);
    let is_rolled_back = rollback::active_target(pass).is_some();
    let build = |identity: Identity, version: &str, served: bool, changed: bool| {
        let seen = snapshot.objects.get(&identity);
        let entry = recorded.inventory.get(&identity);
        let drift = entry.filter(|_| watched && is_watched(&identity, &pass.kinds));
        let is_done = seen.is_none() && entry.is_some_and(|entry| entry.finished);
        let health = seen.and_then(|seen| health_context.observed_health(seen).status);
        let health = health.or(is_done.then_some(HealthStatus::Current));
        let drift =
            drift.map(|entry| drift::compare(entry, seen.map(|seen| &seen.observed), &pass.key.owner));
        // A rollback leaves existing CRDs as the newer release applied them, so that they lose no versions.
        let stays = is_rolled_back && identity.is_crd() && entry.is_some();
        ObjectState {
            changed: changed && !stays,
            served,
            lacks_version: None,
            drift: drift.filter(|drift| !stays || *drift == drift::Drift::Gone),
            health,
            why: health::why(pass, &identity, seen, health),
            health_is_old: snapshot.unreported.contains(&identity),
            counts: counts(spec, &identity, version),
            flapping: pass
                .state
                .flaps
                .get(&identity)
                .is_some_and(|flaps| flaps.fighting(now, pass.shared.flap_limit)),
            waiting: pass.done.waiting.get(&identity).cloned(),
            fault: pass.done.faults.get(&identity).cloned(),
            identity,
        }
    };
    if let (Some(loaded), Content::Loaded) = (&pass.state.loaded, content) {
        let changed = !recorded.is(loaded) || set_back;
        let objects = loaded.prepared.objects.iter();
        return objects
            .map(|object| {
                let identity = object.identity();
                // A kind of a group that does not answer may exist: the apply decides.
                let served =
                    pass.served.get(&object.gvk()).is_some() || pass.kinds.is_unknown(&identity.group);
                let in_others = !served && pass.served.preferred(&identity.group_kind()).is_some();
                let lacks_version = in_others.then(|| object.version().to_owned());
                ObjectState { lacks_version, ..build(identity, object.version(), served, changed) }
            })
            .collect();
    }
    let served = |identity: &Identity| {
        pass.served.preferred(&identity.group_kind()).is_some() || pass.kinds.is_unknown(&identity.group)
    };
    let applied = recorded.inventory.iter();
    applied
        .map(|(identity, entry)| build(identity.clone(), &entry.version, served(identity), false))
        .collect()
}

/// Reports whether watches show the object. Namespaces carry no owner label, since they are not owned; kinds without
/// the verb `watch` are not shown.
fn is_watched(identity: &Identity, kinds: &Kinds) -> bool {
    !identity.is_namespace()
        && kinds.preferred(&identity.group_kind()).is_some_and(|mapping| mapping.can("watch"))
}

/// Reports whether the health of an object counts: if `spec.manager` is set, only that object's; otherwise that of
/// all kinds whose health is known, built in or by an expression, and not ignored.
fn counts(spec: &HelmComponentSpec, identity: &Identity, version: &str) -> bool {
    if let Some(manager) = &spec.manager {
        return is_manager(manager, identity);
    }
    let mut ignored = spec.health.iter().flat_map(|health| health.ignore.iter().flatten());
    let kind = identity.group_kind();
    let known = health_counts(&kind) || expressions::names(spec, &kind);
    known && !ignored.any(|one| selects(one, identity, version))
}

/// Reports whether the selector matches an object; fields that are not set match any value.
fn selects(selector: &ObjectSelector, identity: &Identity, version: &str) -> bool {
    let ObjectSelector { group, version: of, kind, namespace, name } = selector;
    let fits = |expected: &Option<String>, is: &str| expected.as_ref().is_none_or(|expected| expected == is);
    fits(group, &identity.group)
        && fits(of, version)
        && fits(kind, &identity.kind)
        && fits(namespace, identity.namespace.as_deref().unwrap_or_default())
        && fits(name, &identity.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::tests::deployment;

    #[test]
    fn an_ignored_object_does_not_count_unless_it_is_the_manager() {
        let counted = |more: &serde_json::Value| {
            let ignore = json!([{"kind": "Job"}, {"group": "apps", "version": "v1", "name": "d", "namespace": "here"}]);
            let mut spec = json!({"source": {}, "health": {"ignore": ignore}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let spec: HelmComponentSpec = serde_json::from_value(spec).unwrap();
            let job = Identity::new("batch", "Job", Some("here"), "j");
            let other = Identity::new("apps", "Deployment", Some("there"), "d");
            let older = ("v1beta1", deployment());
            let all = [("v1", deployment()), ("v1", job), ("v1", other), older];
            all.map(|(version, identity)| counts(&spec, &identity, version))
        };
        assert_eq!(counted(&json!({})), [false, false, true, true]);
        let manager =
            json!({"group": "apps", "version": "v1", "kind": "Deployment", "name": "d", "namespace": "here"});
        assert_eq!(counted(&json!({"manager": manager})), [true, false, false, true]);
    }

    #[test]
    fn a_kind_with_an_expression_counts_unless_it_is_ignored() {
        let lamp = Identity::new("example.org", "Lamp", None, "l");
        let counted = |health: &serde_json::Value| {
            let spec = serde_json::from_value(json!({"source": {}, "health": health})).unwrap();
            counts(&spec, &lamp, "v1")
        };
        let expressions = json!([{"apiVersion": "example.org/v1", "kind": "Lamp", "current": "true"}]);
        assert!(!counted(&json!({})));
        assert!(counted(&json!({"expressions": expressions})));
        assert!(!counted(&json!({"expressions": expressions, "ignore": [{"kind": "Lamp"}]})));
    }
}
