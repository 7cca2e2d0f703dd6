//! Whether the image-pull Secret on a target stays as it is.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};
use kyma_sdk::{Interest, KymaKey, Sighting};

use crate::state::State;

/// What is watched of it on a target: that it stays as it is.
pub(crate) fn interest(state: &State) -> Option<Interest> {
    let name = state.args.pull_secret()?;
    Some(Interest {
        namespace: Some(state.runtime.settings.target_namespace.clone()),
        fields: Some(format!("metadata.name={name}")),
        ..Interest::in_kind(&ApiResource::erase::<Secret>(&()))
    })
}

/// Whether a watch is of the copy.
pub(crate) fn is_of(interest: &Interest) -> bool {
    interest.kind == "Secret"
}

/// A target's watch told something of the copy. False if that is no news.
pub(crate) fn saw(state: &State, kyma: &KymaKey, sighting: &Sighting) -> bool {
    let name = state.args.pull_secret();
    // A target may tell of what nobody asked for.
    let is_it = |object: &DynamicObject| object.metadata.name.as_deref() == name;
    let version = |object: &DynamicObject| object.resource_version().and_then(|version| version.parse().ok());
    match sighting {
        Sighting::Listed { objects, .. } => {
            let listed = objects.iter().find(|object| is_it(object)).and_then(version);
            state.pull_secrets().listed(kyma, listed)
        }
        Sighting::Applied(object) | Sighting::Deleted(object) => {
            is_it(object) && state.pull_secrets().changed(kyma, version(object).unwrap_or(u64::MAX))
        }
    }
}
