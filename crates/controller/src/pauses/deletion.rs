//! Decides whether the deletion of a Pause was requested.
//!
//! A Pause that disappears with its namespace or its CRD, or by the garbage collector, stays in force. Such a deletion of
//! a brake's Pause does not confirm the deletions that the brake stopped.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use kyma_api::{Backoff, Pause};

use super::cache::Pauses;
use super::names::braked_operator;
use super::snapshot::PauseSnapshot;
use crate::calls::objects::{find_metadata, live_metadata};
use crate::deletion::cause::{exists_since, is_deleted_alone};
use crate::deletion::request::may_be_garbage;
use crate::failure::cause::describe_cause;
use crate::reconciler::backoff::JITTER_SHARE;
use crate::reconciler::jitter::jitter;

/// Delays before the hub is read again after it did not answer. No event announces that it answers, or that its roles
/// permit the reads.
const RETRY_BACKOFF: Backoff =
    Backoff::new(Duration::from_secs(5), Duration::from_mins(1)).with_jitter(JITTER_SHARE);

/// Returns a Pause that a DELETE event removed, and whether its deletion was requested. Retries after growing delays until
/// the hub answers.
pub(super) async fn judge_deletion(hub: &Client, namespace: &str, pause: Arc<Pause>) -> (Arc<Pause>, bool) {
    let mut failures = 0;
    loop {
        match is_deletion_requested(hub, namespace, &pause).await {
            Ok(is_requested) => return (pause, is_requested),
            Err(error) => {
                let (name, error) = (pause.name_any(), describe_cause(&error));
                tracing::warn!(
                    error,
                    pause = name,
                    "the hub does not show why this Pause was deleted; it stays in force until the hub does"
                );
                failures += 1;
                // No event announces that the hub answers again.
                tokio::time::sleep(RETRY_BACKOFF.jittered_delay(failures, jitter())).await;
            }
        }
    }
}

/// Reports whether the deletion of a Pause was requested: its namespace and the CRD are older than the Pause and are
/// not being deleted, and the garbage collector did not delete it. Reads live.
async fn is_deletion_requested(hub: &Client, namespace: &str, pause: &Pause) -> kube::Result<bool> {
    if may_be_garbage(&pause.metadata) {
        return Ok(false);
    }
    let created = pause.metadata.creation_timestamp.as_ref().map(|time| time.0);
    Ok(is_deleted_alone(created, intact_since(hub, namespace).await?))
}

/// Returns since when the namespace and the CRD of Pauses both exist; `None` if one of them is absent or being
/// deleted.
async fn intact_since(hub: &Client, namespace: &str) -> kube::Result<Option<Timestamp>> {
    let namespaces: Api<Namespace> = Api::all(hub.clone());
    let found = find_metadata(&namespaces, namespace).await?;
    let Some(since) = found.and_then(|found| exists_since(&found.metadata)) else { return Ok(None) };
    let definitions: Api<CustomResourceDefinition> = Api::all(hub.clone());
    // The roles of components' operators permit to list this CRD, but not to get it.
    let found = live_metadata(&definitions, Pause::crd_name()).await?;
    let of_crd = found.and_then(|found| exists_since(&found.metadata));
    Ok(of_crd.map(|of_crd| of_crd.max(since)))
}

impl Pauses {
    /// Processes a DELETE event whose cause is known. A Pause whose deletion was not requested counts as missing, as
    /// one that a list lacks.
    pub(super) fn process_deletion(&self, pause: &Pause, is_requested: bool) {
        let name = pause.name_any();
        let snapshot = self.snapshot.borrow().clone();
        let Some(held) = snapshot.pauses.get(&name) else {
            // A list that lacked the brake's own Pause dropped it before the cause was known.
            if is_requested && braked_operator(&name, &pause.spec).is_some() {
                self.snapshot.send_modify(PauseSnapshot::confirm_brakes);
            }
            return;
        };
        if held.uid() != pause.uid() {
            // A Pause of this name was created since.
            return;
        }
        if is_requested {
            self.gone(&name);
        } else {
            let is_present = |held: &String| *held != name && !snapshot.missing.contains(held);
            let present: BTreeSet<String> = snapshot.pauses.into_keys().filter(is_present).collect();
            self.keep(&present);
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{StatusCode, Uri};
    use axum::{Json, Router};
    use kyma_api::{HelmComponent, HelmComponentSpec, PauseScope, PauseSpec, annotations};
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> String {
        Timestamp::from_second(second).unwrap().to_string()
    }

    fn created(second: i64) -> Value {
        json!({"name": "any", "creationTimestamp": at(second)})
    }

    fn terminating(second: i64) -> Value {
        json!({"name": "any", "creationTimestamp": at(second), "deletionTimestamp": at(99)})
    }

    /// Returns a Pause that was created in second 20.
    fn pause(owners: &Value, annotations: &Value) -> Pause {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "Pause",
            "metadata": {"name": "maintenance", "namespace": "hub", "creationTimestamp": at(20),
                "ownerReferences": owners, "annotations": annotations},
            "spec": {},
        }))
        .unwrap()
    }

    fn partial(metadata: &Value) -> Value {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
    }

    /// Returns a client for a hub with a namespace and CRDs of this metadata.
    fn hub(namespace: &Value, crds: &[Value]) -> Client {
        let items: Vec<Value> = crds.iter().map(partial).collect();
        let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {},
            "items": items});
        let namespace = partial(namespace);
        let answer = move |uri: Uri| {
            let is_list = uri.path().ends_with("/customresourcedefinitions");
            let answer = if is_list { list.clone() } else { namespace.clone() };
            async move { (StatusCode::OK, Json(answer)) }
        };
        let server: Router = Router::new().fallback(answer);
        Client::new(server, "default")
    }

    #[tokio::test]
    async fn only_a_deletion_by_itself_is_requested() {
        let user = pause(&json!([]), &json!({}));
        let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u"}]);
        let with_owner = pause(&owner, &json!({}));
        let confirmed = pause(&owner, &json!({ annotations::DELETION_CONFIRMED: "true" }));
        let rows = [
            ("by a user", &user, created(10), vec![created(10)], true),
            ("in the second of the CRD", &user, created(10), vec![created(20)], true),
            ("with its namespace", &user, terminating(10), vec![created(10)], false),
            ("with its CRD", &user, created(10), vec![terminating(10)], false),
            ("with a CRD that is gone", &user, created(10), vec![], false),
            ("with a CRD that was recreated", &user, created(10), vec![created(21)], false),
            ("with a namespace that was recreated", &user, created(21), vec![created(10)], false),
            ("by the garbage collector", &with_owner, created(10), vec![created(10)], false),
            ("with a confirmation", &confirmed, created(10), vec![created(10)], true),
        ];
        for (name, pause, namespace, crds, expected) in rows {
            let hub = hub(&namespace, &crds);
            assert_eq!(is_deletion_requested(&hub, "hub", pause).await.unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn delays_grow_while_the_hub_does_not_answer() {
        let delays = [1, 2, 3, 100].map(|failures| RETRY_BACKOFF.jittered_delay(failures, 1.0).as_secs());
        assert_eq!(delays, [5, 10, 20, 60]);
    }

    fn with_uid(name: &str, spec: PauseSpec, uid: &str) -> Pause {
        let mut pause = Pause::new(name, spec);
        pause.metadata.uid = Some(uid.to_owned());
        pause
    }

    #[tokio::test]
    async fn pause_whose_deletion_was_not_requested_stays_in_force() {
        let pauses = Pauses::new("x");
        let component = HelmComponent::new("c", HelmComponentSpec::default());
        let writes = || pauses.paused_operations(&component).writes().map(ToOwned::to_owned);
        let former = with_uid("maintenance", PauseSpec::default(), "former");
        pauses.applied(Box::new(former.clone()));
        pauses.process_deletion(&former, false);
        assert!(writes().is_some_and(|why| why.contains("the hub lacks it")));
        let new = with_uid("maintenance", PauseSpec::default(), "new");
        pauses.applied(Box::new(new.clone()));
        pauses.process_deletion(&former, true);
        assert_eq!(
            writes().as_deref(),
            Some("Pause maintenance is in force"),
            "another one was created since"
        );
        pauses.process_deletion(&new, true);
        assert_eq!(writes(), None);
    }

    /// Returns the Pause of an operator's brake.
    fn of_brake(operator: &str) -> Pause {
        let (scope, operators) = (PauseScope::Deletes, vec![operator.to_owned()]);
        let spec = PauseSpec { scope, operators, ..PauseSpec::default() };
        with_uid(&format!("brake-{operator}"), spec, operator)
    }

    #[tokio::test]
    async fn brake_is_confirmed_also_if_a_list_came_before_the_cause() {
        for (is_requested, released) in [(true, 1), (false, 0)] {
            let pauses = Pauses::new("x");
            let pause = of_brake("x");
            pauses.applied(Box::new(pause.clone()));
            pauses.keep(&BTreeSet::new());
            assert!(pauses.all().is_empty(), "the list dropped the brake's own Pause");
            pauses.process_deletion(&pause, is_requested);
            assert_eq!((pauses.released(), pauses.lost()), (released, 1));
        }
    }

    #[tokio::test]
    async fn brake_whose_pause_went_with_its_crd_was_not_confirmed() {
        let pauses = Pauses::new("x");
        for operator in ["x", "y"] {
            let pause = of_brake(operator);
            pauses.applied(Box::new(pause.clone()));
            pauses.process_deletion(&pause, false);
        }
        assert_eq!((pauses.released(), pauses.lost()), (0, 1), "the brake creates its Pause again");
    }
}
