//! Key of a component in caches and watches. Pure.

use std::sync::Arc;

use kyma_api::names;

/// Namespace, name and owner hash of a component. Cheap to clone: each stream has a list of its subscribers, which is
/// copied when one is added.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ComponentKey {
    /// Namespace on the hub.
    pub namespace: Arc<str>,
    /// Name on the hub.
    pub name: Arc<str>,
    /// Value of the owner label.
    pub owner: Arc<str>,
}

impl ComponentKey {
    /// Returns the key of the component with this name.
    pub(crate) fn of(namespace: &str, name: &str) -> Self {
        let owner = names::owner_hash(namespace, name).into();
        Self { namespace: namespace.into(), name: name.into(), owner }
    }
}
