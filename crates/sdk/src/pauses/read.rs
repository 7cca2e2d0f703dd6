//! A single read of the Pauses, for commands of users.

use std::sync::Arc;

use jiff::Timestamp;
use kube::api::{ApiResource, ListParams};
use kube::{Api, Client, Resource, ResourceExt};
use kyma_api::Pause;

use super::halt::{Halt, PauseSnapshot, PauseSubject};
use crate::none_if_unserved;

/// Reads the Pauses of an object from the hub, for a command of a user. Selectors of Pauses count as matching.
///
/// # Errors
/// The hub does not answer or forbids to list Pauses. A hub without the CRD of Pauses has none.
pub async fn read_halt<K: Resource<DynamicType = ()>>(
    hub: &Client,
    namespace: &str,
    command: &str,
    object: &K,
) -> kube::Result<Halt> {
    let api: Api<Pause> = Api::namespaced(hub.clone(), namespace);
    let listed = api.list(&ListParams::default()).await;
    let listed = none_if_unserved(hub, &ApiResource::erase::<Pause>(&()), listed).await?;
    let pauses = listed.into_iter().flat_map(|listed| listed.items);
    let pauses = pauses.map(|pause| (pause.name_any(), Arc::new(pause))).collect();
    let snapshot = PauseSnapshot { pauses, ..PauseSnapshot::default() };
    Ok(snapshot.halt(command, PauseSubject::of(object), Timestamp::now()))
}

#[cfg(test)]
mod tests {
    use kyma_api::{HelmComponent, HelmComponentSpec};

    use super::*;
    use crate::served::tests::{absent, cluster, page, present};

    const CRD: &str = "pauses.operator.kyma-project.io";

    #[tokio::test]
    async fn only_a_hub_without_the_crd_of_pauses_has_none() {
        let component = HelmComponent::new("c", HelmComponentSpec::default());
        let halt = async |hub: Client| read_halt(&hub, "hub", "kymactl", &component).await;
        assert!(halt(cluster(absent())).await.is_ok_and(|halt| halt.writes().is_none()));
        for (name, answer) in [("proxy", page()), ("CRD that is not served yet", present(CRD))] {
            let failed = halt(cluster(answer)).await;
            assert!(matches!(failed, Err(kube::Error::Api(status)) if status.code == 404), "{name}");
        }
    }
}
