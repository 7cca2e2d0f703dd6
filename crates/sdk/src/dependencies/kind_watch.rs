//! The watch of a kind that components depend on, and the form in which the hub serves the kind.

use std::collections::BTreeSet;

use kube::Client;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use kube::discovery::pinned_kind;
use kube::error::DiscoveryError;
use kyma_api::HelmComponent;
use tokio_util::sync::CancellationToken;

use super::view::Kind;

/// A watched kind.
pub(super) struct KindWatch {
    /// The API versions in which components name it.
    pub(super) versions: BTreeSet<String>,
    pub(super) stop: CancellationToken,
}

/// Returns the kind as the hub serves it, in the first served one of these versions.
pub(super) async fn resource(
    hub: &Client,
    kind: &Kind,
    versions: &BTreeSet<String>,
) -> kube::Result<ApiResource> {
    if *kind == Kind::helm() {
        return Ok(ApiResource::erase::<HelmComponent>(&()));
    }
    let mut unserved = None;
    for version in versions.iter().filter(|version| kind.can_be(version)) {
        let version = version.rsplit_once('/').map_or(&**version, |(_, version)| version);
        let gvk = GroupVersionKind::gvk(&kind.group, version, &kind.kind);
        match pinned_kind(hub, &gvk).await {
            Ok((resource, _)) => return Ok(resource),
            Err(error) if is_missing(&error) => unserved = Some(error),
            Err(error) => return Err(error),
        }
    }
    let missing = || DiscoveryError::MissingKind(kind.kind.clone());
    Err(unserved.unwrap_or_else(|| kube::Error::Discovery(missing())))
}

pub(super) fn is_missing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 404,
        kube::Error::Discovery(_) => true,
        _ => false,
    }
}
