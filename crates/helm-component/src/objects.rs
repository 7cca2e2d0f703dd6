//! Prepares parsed documents for the apply: separates hooks, sets namespaces, and adds the operator's metadata.

use kyma_api::{annotations, labels};
use kyma_helm::hooks::{HOOK, Hook};
use kyma_object_set::{Kinds, Object, ObjectSet, normalise};

use crate::workloads::Workloads;

/// Note for users who edit objects on a target.
const DISCLAIMER: &str = "DO NOT EDIT - This resource is managed by Kyma.\nAny modifications are discarded and the \
                          resource is reverted to the original state.";
/// Workloads that carry the module's version.
const WORKLOADS: &[&str] = &["Deployment", "StatefulSet", "DaemonSet"];

/// Metadata of every object of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Hash of the component, value of the owner label.
    pub owner: String,
    /// `namespace/name` of the component if a Kyma owns it; such objects carry KLM's metadata too.
    pub kyma: Option<String>,
    /// Version of the module.
    pub version: Option<String>,
}

/// The objects of a component, and its hooks.
#[derive(Debug, Clone, Default)]
pub(crate) struct PreparedObjects {
    /// The objects to apply.
    pub objects: Vec<Object>,
    /// Objects that run at an event of the release.
    pub hooks: Vec<Hook>,
    /// Corrections while reading, for messages.
    pub warnings: Vec<String>,
}

impl PreparedObjects {
    /// Returns the objects of hooks.
    pub(crate) fn hook_objects(&self) -> impl Iterator<Item = &Object> {
        self.hooks.iter().map(|hook| &hook.object)
    }
}

/// Prepares a parsed set for a target that serves `kinds`. Only charts have hooks: in plain manifests the annotation
/// has no effect, as with kubectl and KLM.
pub(crate) fn prepare(
    set: ObjectSet,
    is_chart: bool,
    kinds: &Kinds,
    namespace: &str,
    marks: &Marks,
    workloads: &Workloads,
) -> PreparedObjects {
    let mut warnings: Vec<String> = set.warnings().iter().map(ToString::to_string).collect();
    warnings.extend(workloads.warnings());
    let is_hook = |object: &Object| is_chart && object.annotation(HOOK).is_some();
    let (hooks, mut objects): (Vec<Object>, Vec<Object>) = set.into_objects().into_iter().partition(is_hook);
    let mut hooks = read_hooks(hooks, &mut warnings);
    for hook in &mut hooks {
        let scoped = kinds.scoped(&hook.object.identity(), namespace);
        hook.object.set_namespace(scoped.namespace.as_deref());
        hook.object.set_label(labels::HOOK_OF, &marks.owner);
        workloads.change(&mut hook.object);
        warnings.extend(normalise(&mut hook.object).iter().map(ToString::to_string));
    }
    let has_workloads = objects.iter().any(|object| WORKLOADS.contains(&object.kind()));
    for object in &mut objects {
        let scoped = kinds.scoped(&object.identity(), namespace);
        object.set_namespace(scoped.namespace.as_deref());
        mark(object, marks, has_workloads);
        workloads.change(object);
        // The apply corrects this; here only the warnings are needed.
        warnings.extend(normalise(&mut object.clone()).iter().map(ToString::to_string));
    }
    // Objects that differ only in whether they name their namespace are the same object.
    let objects = ObjectSet::new(objects).into_objects();
    PreparedObjects { objects, hooks, warnings }
}

/// Reads hooks. Hooks with unknown events are skipped with a warning; Helm skips them too.
fn read_hooks(objects: Vec<Object>, warnings: &mut Vec<String>) -> Vec<Hook> {
    let mut read = |object: Object| {
        let identity = object.identity();
        let events = object.annotation(HOOK).map(str::to_owned);
        let hook = Hook::of(object);
        match &hook {
            None => {
                let events = events.as_deref().unwrap_or_default();
                warnings.push(format!(
                    "{identity}: helm.sh/hook names an unknown event ({events}), so it is ignored"
                ));
            }
            Some(hook) => warnings.extend(hook.warnings().iter().map(|text| format!("{identity}: {text}"))),
        }
        hook
    };
    objects.into_iter().filter_map(&mut read).collect()
}

fn mark(object: &mut Object, marks: &Marks, has_workloads: bool) {
    object.set_label(labels::OWNER, &marks.owner);
    let Some(owned_by) = &marks.kyma else { return };
    object.set_label(labels::MANAGED_BY, labels::MANAGED_BY_KYMA);
    object.set_annotation(annotations::OWNED_BY, owned_by);
    object.set_annotation(annotations::DISCLAIMER, DISCLAIMER);
    // KLM annotates workloads; without workloads, other objects must show the installed version.
    let bears_version = WORKLOADS.contains(&object.kind()) || !has_workloads;
    if let Some(version) = marks.version.as_ref().filter(|_| bears_version) {
        object.set_annotation(annotations::MODULE_VERSION, version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(kyma: Option<&str>) -> Marks {
        Marks { owner: "abc".to_owned(), kyma: kyma.map(str::to_owned), version: Some("1.2.3".to_owned()) }
    }

    fn prepared(text: &str, marks: &Marks) -> PreparedObjects {
        let set = ObjectSet::parse(text, &kyma_object_set::Limits::default()).unwrap();
        prepare(set, true, &Kinds::default(), "here", marks, &Workloads::default())
    }

    const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: there}\n";

    #[test]
    fn every_object_has_the_owner_and_kyma_objects_also_klm_marks() {
        let alone = prepared(DEPLOYMENT, &marks(None)).objects;
        assert_eq!(alone[0].label(labels::OWNER), Some("abc"));
        assert_eq!(alone[0].label(labels::MANAGED_BY), None);
        assert_eq!(alone[0].annotation(annotations::MODULE_VERSION), None);
        let managed = prepared(DEPLOYMENT, &marks(Some("kcp-system/c"))).objects;
        assert_eq!(managed[0].label(labels::MANAGED_BY), Some("kyma"));
        assert_eq!(managed[0].annotation(annotations::OWNED_BY), Some("kcp-system/c"));
        assert_eq!(managed[0].annotation(annotations::MODULE_VERSION), Some("1.2.3"));
    }

    #[test]
    fn the_version_is_on_workloads_and_without_any_on_everything() {
        let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n";
        let versions = |text: &str| -> Vec<bool> {
            let objects = prepared(text, &marks(Some("kcp-system/c"))).objects;
            objects.iter().map(|object| object.annotation(annotations::MODULE_VERSION).is_some()).collect()
        };
        assert_eq!(versions(config), [true]);
        assert_eq!(versions(&format!("{DEPLOYMENT}---\n{config}")), [true, false]);
    }

    #[test]
    fn plain_manifests_have_no_hooks() {
        let text = DEPLOYMENT.replace("{name", "{annotations: {helm.sh/hook: test}, name");
        let set = ObjectSet::parse(&text, &kyma_object_set::Limits::default()).unwrap();
        let plain = prepare(set, false, &Kinds::default(), "here", &marks(None), &Workloads::default());
        assert_eq!((plain.objects.len(), plain.hooks.len()), (1, 0));
    }

    #[test]
    fn hooks_are_set_apart_with_a_mark_of_their_own() {
        let hook = |event: &str| {
            format!(
                "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: j\n  annotations: {{helm.sh/hook: {event}}}\n"
            )
        };
        let text =
            format!("{DEPLOYMENT}---\n{}---\n{}---\n{}", hook("pre-install"), hook("test"), hook("later"));
        let prepared = prepared(&text, &marks(None));
        assert_eq!(prepared.objects.len(), 1);
        assert_eq!(prepared.hooks.len(), 2, "two moments may have objects of one name");
        let object = &prepared.hooks[0].object;
        assert_eq!((object.label(labels::HOOK_OF), object.label(labels::OWNER)), (Some("abc"), None));
        assert_eq!(prepared.warnings.len(), 1, "{:?}", prepared.warnings);
    }
}
