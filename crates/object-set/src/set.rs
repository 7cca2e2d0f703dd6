//! A set of objects, and the corrections of its input.

use std::collections::BTreeMap;

use crate::object::{Identity, Object};

/// A correction of the input that its author should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The set contains the object more than once; the last one counts.
    Duplicate {
        /// The object with the problem.
        object: Identity,
    },
    /// A list that the API server merges by a key contains that key more than once; the last item counts.
    DuplicateListKey {
        /// The object with the problem.
        object: Identity,
        /// Path, such as `spec.template.spec.containers[0].env`.
        path: String,
        /// Key, such as `name=PATH`.
        key: String,
    },
    /// A patch selects none of the objects.
    PatchWithoutObject {
        /// Index of the patch, from 0.
        patch: usize,
    },
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Duplicate { object } => write!(f, "{object} occurs more than once; the last one is used"),
            Self::DuplicateListKey { object, path, key } => {
                write!(f, "{object}: {path} has {key} more than once; the last one is used")
            }
            Self::PatchWithoutObject { patch } => write!(f, "patches[{patch}] matches no object"),
        }
    }
}

/// Helm's annotation that makes an object a hook instead of a part of the release.
const HOOK_ANNOTATION: &str = "helm.sh/hook";

/// Objects that belong together, each identity once, in the order of the input.
#[derive(Clone, Debug, Default)]
pub struct ObjectSet {
    objects: Vec<Object>,
    warnings: Vec<Warning>,
}

impl ObjectSet {
    /// Returns a set of these objects. Of equal identities the last object counts, at the place of the first. Helm
    /// hooks of different events may have the same identity, since they do not exist at the same time.
    pub fn new(objects: Vec<Object>) -> Self {
        let mut places: BTreeMap<(Identity, Option<String>), usize> = BTreeMap::new();
        let mut set = Self::default();
        for object in objects {
            let identity = object.identity();
            let key = (identity.clone(), object.annotation(HOOK_ANNOTATION).map(str::to_owned));
            if let Some(&place) = places.get(&key) {
                set.objects[place] = object;
                set.warnings.push(Warning::Duplicate { object: identity });
            } else {
                places.insert(key, set.objects.len());
                set.objects.push(object);
            }
        }
        set
    }

    /// The objects in the order of the input.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Returns the objects for changes. Their identities must stay.
    pub fn objects_mut(&mut self) -> &mut [Object] {
        &mut self.objects
    }

    /// The objects in the order of the input.
    pub fn into_objects(self) -> Vec<Object> {
        self.objects
    }

    /// Returns the warnings about corrections during parsing.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Reports whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The `CustomResourceDefinition`s of the set.
    pub fn crds(&self) -> impl Iterator<Item = &Object> {
        self.objects.iter().filter(|object| object.identity().is_crd())
    }

    /// Returns the set with other objects and further warnings.
    pub(crate) fn with_objects(self, objects: Vec<Object>, more: Vec<Warning>) -> Self {
        let mut warnings = self.warnings;
        warnings.extend(more);
        Self { objects, warnings }
    }

    /// Returns the set with further objects, which replace those of the same identity.
    pub fn with(self, more: Vec<Object>) -> Self {
        let Self { mut objects, mut warnings } = self;
        objects.extend(more);
        let mut set = Self::new(objects);
        warnings.append(&mut set.warnings);
        set.warnings = warnings;
        set
    }
}
