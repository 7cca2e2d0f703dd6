//! Component kinds on the hub: CRDs of the allowed groups, and whether their components are indexed.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::hub::component::ComponentKind;
use crate::hub::component_crd;

/// Group and kind.
pub(crate) type GroupKind = (String, String);

/// State of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KindStatus {
    /// The hub has no CRD for the kind.
    Missing,
    /// Its CRD violates the component contract.
    Violated(Vec<String>),
    /// Its components are not all indexed yet.
    Starting,
    /// Its components are indexed.
    Ready {
        /// Plural of the resource.
        plural: String,
    },
}

/// The kinds by group and kind.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    kinds: HashMap<GroupKind, IndexedKind>,
}

/// A kind on the hub.
#[derive(Debug)]
struct IndexedKind {
    crd: Arc<CustomResourceDefinition>,
    synced: bool,
}

impl Kinds {
    /// Adds or replaces a CRD.
    pub(crate) fn apply(&mut self, crd: CustomResourceDefinition) {
        let key = (crd.spec.group.clone(), crd.spec.names.kind.clone());
        let crd = Arc::new(crd);
        let synced = self.kinds.get(&key).is_some_and(|indexed| indexed.synced);
        self.kinds.insert(key, IndexedKind { crd, synced });
    }

    /// Removes a kind whose CRD is gone.
    pub(crate) fn remove(&mut self, group: &str, kind: &str) -> bool {
        self.kinds.remove(&(group.to_owned(), kind.to_owned())).is_some()
    }

    /// Sets whether the components of the kind are indexed.
    pub(crate) fn set_synced(&mut self, group: &str, kind: &str, synced: bool) {
        if let Some(indexed) = self.kinds.get_mut(&(group.to_owned(), kind.to_owned())) {
            indexed.synced = synced;
        }
    }

    /// Returns the CRD of a kind.
    pub(crate) fn crd(&self, kind: &ComponentKind) -> Option<&Arc<CustomResourceDefinition>> {
        self.get(kind).map(|indexed| &indexed.crd)
    }

    /// Returns the CRDs of all kinds.
    pub(crate) fn crds(&self) -> impl Iterator<Item = &CustomResourceDefinition> {
        self.kinds.values().map(|indexed| indexed.crd.as_ref())
    }

    /// Returns the status of a kind: whether its components can be written, and otherwise the reason.
    pub(crate) fn status(&self, kind: &ComponentKind) -> KindStatus {
        let Some(indexed) = self.get(kind) else {
            return KindStatus::Missing;
        };
        let violations = component_crd::violations(&indexed.crd, kind);
        if !violations.is_empty() {
            return KindStatus::Violated(violations);
        }
        if indexed.synced {
            KindStatus::Ready { plural: indexed.crd.spec.names.plural.clone() }
        } else {
            KindStatus::Starting
        }
    }

    fn get(&self, kind: &ComponentKind) -> Option<&IndexedKind> {
        self.kinds.get(&(kind.group().to_owned(), kind.kind.clone()))
    }
}
