//! A single read of the Pauses, for commands of users.

use std::sync::Arc;

use jiff::Timestamp;
use kube::api::{ApiResource, ListParams};
use kube::{Api, Client, Resource, ResourceExt};
use kyma_api::Pause;

use super::snapshot::{PauseSnapshot, PauseSubject, PausedOperations};
use crate::calls::served::none_if_unserved;

/// Reads the Pauses on the hub and returns the operations that they forbid for an object, for a command of a user.
/// Selectors of Pauses count as matching.
///
/// # Errors
/// The hub does not answer or forbids to list Pauses. A hub without the CRD of Pauses has none.
pub async fn read_paused_operations<K: Resource<DynamicType = ()>>(
    hub: &Client,
    namespace: &str,
    command: &str,
    object: &K,
) -> kube::Result<PausedOperations> {
    let api: Api<Pause> = Api::namespaced(hub.clone(), namespace);
    let listed = api.list(&ListParams::default()).await;
    let listed = none_if_unserved(hub, &ApiResource::erase::<Pause>(&()), listed).await?;
    let pauses = listed.into_iter().flat_map(|listed| listed.items);
    let pauses = pauses.map(|pause| (pause.name_any(), Arc::new(pause))).collect();
    let snapshot = PauseSnapshot { pauses, ..PauseSnapshot::default() };
    Ok(snapshot.paused_operations(command, PauseSubject::of(object), Timestamp::now()))
}

#[cfg(test)]
mod tests {
    use kyma_api::{HelmComponent, HelmComponentSpec};

    use super::*;
    use crate::calls::served::tests::{absent, cluster, page, present};

    const CRD: &str = "pauses.operator.kyma-project.io";

    #[tokio::test]
    async fn only_a_hub_without_the_crd_of_pauses_has_none() {
        let component = HelmComponent::new("c", HelmComponentSpec::default());
        let read = async |hub: Client| read_paused_operations(&hub, "hub", "kymactl", &component).await;
        assert!(read(cluster(absent())).await.is_ok_and(|paused| paused.writes().is_none()));
        for (name, answer) in [("proxy", page()), ("CRD that is not served yet", present(CRD))] {
            let failed = read(cluster(answer)).await;
            assert!(matches!(failed, Err(kube::Error::Api(status)) if status.code == 404), "{name}");
        }
    }
}
