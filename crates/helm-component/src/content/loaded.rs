//! Loaded content.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kyma_api::{InstalledValues, ReleaseRevision, annotations};
use kyma_object_set::{Identity, Kinds, Object};

use crate::objects::PreparedObjects;

/// Loaded content of a component.
#[derive(Debug, Clone)]
pub(crate) struct LoadedContent {
    /// Digest of the inputs.
    pub inputs: String,
    /// Digest of the target's kinds, if the chart reads them.
    pub kinds: Option<String>,
    /// Digest of the artifact.
    pub source: String,
    /// Digest of the values.
    pub values: String,
    /// Optional entries of `valuesFrom` whose values it has.
    pub values_from: Vec<InstalledValues>,
    /// Digest of the artifact, values, name and namespace, which identify the release. For a rollback or a retry it
    /// also covers the attempt, so that hooks run again.
    pub release: String,
    /// Digest of the render, if its results vary.
    pub render: Option<String>,
    /// Digest of all objects.
    pub rendered: String,
    /// The objects and hooks, with warnings.
    pub prepared: Arc<PreparedObjects>,
    /// CRDs that are created if they are missing, and never updated.
    pub made_once: BTreeSet<Identity>,
    /// Whether the objects come from the source directly, not from a render.
    pub raw: bool,
    /// Name and version of the chart, if the source is one.
    pub chart: Option<(String, String)>,
    /// Version of the application, as the chart states.
    pub app_version: String,
    /// Whether the chart calls `lookup`, which finds nothing.
    pub uses_lookup: bool,
    /// Why a nondeterministic render could not be stored.
    pub store_failure: Option<String>,
    /// Whether another render would give other tests, and this one is not kept.
    pub tests_vary: bool,
    /// Revision of the release, if the chart reads it.
    pub revision: Option<ReleaseRevision>,
}

impl LoadedContent {
    /// Returns the module's version by object, for those that carry it.
    pub(crate) fn versions(&self) -> BTreeMap<Identity, String> {
        let objects = self.prepared.objects.iter();
        let marked = objects.filter_map(|one| {
            Some((one.identity(), one.annotation(annotations::MODULE_VERSION)?.to_owned()))
        });
        marked.collect()
    }

    /// Sets namespaces of objects whose kind the target has begun to serve since they were prepared.
    pub(crate) fn rescope(&mut self, kinds: &Kinds, namespace: &str) {
        let scoped = |object: &Object| kinds.scoped(&object.identity(), namespace).namespace;
        let fits = |object: &Object| object.namespace() == scoped(object).as_deref();
        if self.prepared.objects.iter().chain(self.prepared.hook_objects()).all(fits) {
            return;
        }
        let PreparedObjects { objects, hooks, .. } = Arc::make_mut(&mut self.prepared);
        for object in objects.iter_mut().chain(hooks.iter_mut().map(|hook| &mut hook.object)) {
            let namespace = scoped(object);
            object.set_namespace(namespace.as_deref());
        }
    }
}
