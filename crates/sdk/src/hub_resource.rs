//! The kinds in the hub namespace, and objects of them that cannot be read.

use std::fmt::Debug;

use kube::{
    Resource,
    core::{DeserializeGuard, NamespaceResourceScope},
};
use serde::de::DeserializeOwned;

/// A kind in the hub namespace. Every such type is one.
pub trait HubResource:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> HubResource for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// An object of the hub, unless it cannot be read, which is logged. What was known of it should stay as it is.
/// The decoder's own words are not logged: they quote values.
pub fn readable<K: Resource<DynamicType = ()>>(guard: DeserializeGuard<K>) -> Option<K> {
    let log = |invalid: &kube::core::error_boundary::InvalidObject| {
        let name = invalid.metadata.name.as_deref().unwrap_or_default();
        tracing::error!(
            kind = %K::kind(&()),
            name,
            "object cannot be read and is left as it is: a field is not as its CRD wants it"
        );
    };
    guard.0.inspect_err(log).ok()
}
