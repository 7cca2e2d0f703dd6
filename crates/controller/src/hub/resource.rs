//! Kinds in the hub namespace, and the decoding of their objects.

use std::fmt::Debug;

use kube::{
    Resource,
    core::{DeserializeGuard, NamespaceResourceScope},
};
use serde::de::DeserializeOwned;

/// A namespaced kind on the hub. Implemented for every suitable type.
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

/// Returns the decoded object, or logs that it cannot be decoded and returns `None`; callers then keep its previous
/// state. The decoder's message is not logged, since it quotes values.
pub fn decode_or_log<K: Resource<DynamicType = ()>>(guard: DeserializeGuard<K>) -> Option<K> {
    let log = |invalid: &kube::core::error_boundary::InvalidObject| {
        let name = invalid.metadata.name.as_deref().unwrap_or_default();
        tracing::error!(
            kind = %K::kind(&()),
            name,
            "an object cannot be read and is not changed: a field does not match its CRD"
        );
    };
    guard.0.inspect_err(log).ok()
}
