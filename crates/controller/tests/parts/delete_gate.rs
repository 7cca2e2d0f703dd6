//! Deletions that the delete gate allows, and deletions that it refuses.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, ObjectMeta, PostParams};
use kyma_api::{HelmComponent, HelmComponentSpec, Pause, PauseScope, PauseSpec, Reason};
use kyma_controller::{DeleteError, DeleteGate, DeleteRequest, PausedOperations};
use serde_json::json;
use testbed::{Answer, RequestMatcher, ScriptedServer, until};

use crate::{SOON, cluster, runtime};

const LIMIT: usize = 10;

fn live(name: &str) -> ObjectMeta {
    let live = json!({"name": name, "namespace": "n", "uid": "u",
        "managedFields": [{"manager": "mine", "operation": "Apply"}]});
    serde_json::from_value(live).unwrap()
}

/// Returns the reason for which the gate refuses the deletion of an object.
async fn refusal(gate: &DeleteGate, target: &ScriptedServer) -> Result<Option<Reason>> {
    let (kind, live) = (ApiResource::erase::<ConfigMap>(&()), live("a"));
    let request = DeleteRequest::new(&kind, &live, &["mine"]);
    match gate.carry_out(&target.access().client()?, &request).await {
        Ok(_) => Ok(None),
        Err(DeleteError::Refused(failure)) => Ok(Some(failure.reason)),
        Err(DeleteError::Call(error)) => Err(error.into()),
    }
}

#[tokio::test]
async fn the_eleventh_key_of_one_secret_is_a_mass_deletion() -> Result<()> {
    let hub = cluster().await?;
    let namespace = hub.namespace("gate-brake").await?;
    let runtime = runtime(&hub, &namespace).await?;
    let target = ScriptedServer::start().await?;
    let deletes = RequestMatcher::any().method("DELETE");
    target.always(
        deletes.clone(),
        Answer::json(&json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 200})),
    );
    let gate = |key: usize| {
        DeleteGate::new(&PausedOperations::default(), &runtime.brake, format!("access/key-{key}"))
    };
    for key in 0..LIMIT {
        assert_eq!(refusal(&gate(key), &target).await?, None, "{key}");
    }
    assert_eq!(refusal(&gate(LIMIT), &target).await?, Some(Reason::MassDeletion));
    assert_eq!(refusal(&gate(0), &target).await?, None, "a target that is counted goes on");
    assert_eq!(target.count(&deletes), LIMIT + 1);

    // The record is lost: a new process stops until a person confirms.
    let records: Api<ConfigMap> = Api::namespaced(hub.client()?, &namespace);
    records.delete("brake-test-operator", &DeleteParams::default()).await?;
    let again = crate::runtime(&hub, &namespace).await?;
    // Operators delete nothing before this list. A Pause that is missing in the first list was not seen to be
    // deleted.
    again.pauses.listed().await;
    let gate = DeleteGate::new(&PausedOperations::default(), &again.brake, "access/key-0");
    assert_eq!(refusal(&gate, &target).await?, Some(Reason::MassDeletion));
    let pauses: Api<Pause> = Api::namespaced(hub.client()?, &namespace);
    pauses.delete("brake-test-operator", &DeleteParams::default()).await?;
    until("the confirmation to count", SOON, || async {
        Ok(refusal(&gate, &target).await?.is_none().then_some(()))
    })
    .await
}

#[tokio::test]
async fn nothing_is_deleted_while_a_pause_holds() -> Result<()> {
    let hub = cluster().await?;
    let namespace = hub.namespace("gate-pause").await?;
    let runtime = runtime(&hub, &namespace).await?;
    let component = HelmComponent::new("c", HelmComponentSpec::default());
    let records: Api<ConfigMap> = Api::namespaced(hub.client()?, &namespace);
    until("an empty record", SOON, || async { Ok(records.get_opt("brake-test-operator").await?) }).await?;
    let pauses: Api<Pause> = Api::namespaced(hub.client()?, &namespace);
    let spec = PauseSpec { scope: PauseScope::Deletes, ..PauseSpec::default() };
    pauses.create(&PostParams::default(), &Pause::new("maintenance", spec)).await?;
    let paused_operations = until("the Pause", Duration::from_secs(20), || async {
        let paused_operations = runtime.pauses.paused_operations(&component);
        Ok(paused_operations.deletes().is_some().then_some(paused_operations))
    })
    .await?;
    let target = ScriptedServer::start().await?;
    for gate in
        [DeleteGate::new(&paused_operations, &runtime.brake, "t"), DeleteGate::uncounted(&paused_operations)]
    {
        assert_eq!(refusal(&gate, &target).await?, Some(Reason::Paused));
    }
    assert_eq!(target.count(&RequestMatcher::any().method("DELETE")), 0);
    Ok(())
}

#[tokio::test]
async fn pause_possibly_deleted_by_garbage_collector_still_holds() -> Result<()> {
    let hub = cluster().await?;
    let namespace = hub.namespace("gate-garbage").await?;
    let runtime = runtime(&hub, &namespace).await?;
    let component = HelmComponent::new("c", HelmComponentSpec::default());
    let pauses: Api<Pause> = Api::namespaced(hub.client()?, &namespace);
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "u"});
    let mut pause = Pause::new("owned", PauseSpec::default());
    pause.metadata.owner_references = Some(vec![serde_json::from_value(owner)?]);
    pauses.create(&PostParams::default(), &pause).await?;
    let holds = |words: &'static str| {
        let (pauses, component) = (runtime.pauses.clone(), component.clone());
        move || {
            let paused_operations = pauses.paused_operations(&component);
            let holds = paused_operations.writes().is_some_and(|why| why.contains(words)).then_some(());
            async move { Ok(holds) }
        }
    };
    until("the Pause", Duration::from_secs(20), holds("Pause owned is in force")).await?;
    match pauses.delete("owned", &DeleteParams::default()).await {
        // A garbage collector may have been faster.
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        deleted => drop(deleted?),
    }
    until("the Pause to be missing and in force", SOON, holds("the hub lacks it")).await
}
