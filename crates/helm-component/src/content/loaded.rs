//! Content at hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kyma_api::{ReleaseRevision, annotations};
use kyma_object_set::{Identity, Kinds, Object};

use crate::objects::Prepared;

/// Content at hand.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    /// Digest of the inputs that it was made from.
    pub inputs: String,
    /// Digest of the target's kinds, where the chart asks for them.
    pub kinds: Option<String>,
    /// Digest of the artifact.
    pub source: String,
    /// Digest of the values.
    pub values: String,
    /// Digest of what makes it a release of its own: artifact, values, name and namespace. Of one that is gone back to, or
    /// tried again, also which time: its hooks run anew.
    pub release: String,
    /// Digest of the render, where each would give something else.
    pub render: Option<String>,
    /// Digest of all objects.
    pub rendered: String,
    /// The objects and what was left out.
    pub prepared: Arc<Prepared>,
    /// CRDs that are made where they are missing, and left as they are where they are not.
    pub made_once: BTreeSet<Identity>,
    /// Whether the objects are as the source has them, not rendered.
    pub raw: bool,
    /// Name and version of the chart, where it is one.
    pub chart: Option<(String, String)>,
    /// Version of what the chart brings, as it says.
    pub app_version: String,
    /// Whether the chart calls `lookup`, which finds nothing.
    pub uses_lookup: bool,
    /// Why the render is not kept, where each would give something else.
    pub unfrozen: Option<String>,
    /// Whether another render would give other tests, and this one is not kept.
    pub tests_vary: bool,
    /// Revision of the release, if the chart reads it.
    pub revision: Option<ReleaseRevision>,
}

impl Loaded {
    /// The module's version on the objects that bear it.
    pub(crate) fn versions(&self) -> BTreeMap<Identity, String> {
        let objects = self.prepared.objects.iter();
        let marked = objects.filter_map(|one| {
            Some((one.identity(), one.annotation(annotations::MODULE_VERSION)?.to_owned()))
        });
        marked.collect()
    }

    /// Fills in namespaces of objects whose kind the target has come to serve since they were prepared.
    pub(crate) fn rescope(&mut self, kinds: &Kinds, namespace: &str) {
        let scoped = |object: &Object| kinds.scoped(&object.identity(), namespace).namespace;
        let fits = |object: &Object| object.namespace() == scoped(object).as_deref();
        if self.prepared.objects.iter().chain(self.prepared.hook_objects()).all(fits) {
            return;
        }
        let Prepared { objects, hooks, .. } = Arc::make_mut(&mut self.prepared);
        for object in objects.iter_mut().chain(hooks.iter_mut().map(|hook| &mut hook.object)) {
            let namespace = scoped(object);
            object.set_namespace(namespace.as_deref());
        }
    }
}
