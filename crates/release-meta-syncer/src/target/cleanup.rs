//! Deletes the copies of a deleted Kyma from its target, then removes the finalizer from the Kyma.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt};
use kyma_api::{DeleteProof, Kyma, Reason, annotations, finalizers, labels, names};
use kyma_connection::open_for_cleanup;
use kyma_controller::{
    DeleteGate, DeleteRequest, DeletionRequest, Failure, KymaKey, PausedOperations, Wait, find_object,
    is_local,
};
use kyma_object_set::CREATED_BY;
use kyma_object_set::remove::{CrdContents, block_creation, unblock_kept_crd};
use kyma_targets::Target;

use crate::copy::{Key, Kind};
use crate::names::FIELD_MANAGER;
use crate::plan::Ownership;
use crate::report::Outcome;
use crate::state::State;
use crate::{hub, observe, report, target::bootstrap, target::connection, write};

/// Runs one step of the deletion. Called until the finalizer is removed.
pub(crate) async fn step(
    state: &State,
    kyma: &Kyma,
    paused_operations: &PausedOperations,
) -> Result<Wait, Failure> {
    let key = KymaKey::of(kyma);
    if !kyma.finalizers().iter().any(|existing| existing == finalizers::CATALOG) {
        state.forget(&key);
        return Ok(Wait::Event);
    }
    if let Some(why) = paused_operations.deletes() {
        return Err(Failure::new(Reason::Paused, why));
    }
    // The deletion of the Kyma itself was not requested: the API server deletes it with its namespace or CRD.
    if hub::is_terminating(state, &["kymas.operator.kyma-project.io"]).await? {
        tracing::info!(kyma = %key, "the namespace or the CRD of the Kyma is being deleted: the copies on its target stay");
        return finish_cleanup(state, kyma).await;
    }
    if is_local(&state.runtime, kyma)? {
        return finish_cleanup(state, kyma).await;
    }
    match DeletionRequest::of(&kyma.metadata, Timestamp::now()) {
        DeletionRequest::Confirmed => {}
        DeletionRequest::Orphan => return finish_cleanup(state, kyma).await,
        DeletionRequest::Unconfirmed { until } => {
            let failure = Failure::new(Reason::DeletionUnconfirmed, DeletionRequest::message(until));
            write::report(state, kyma, &Outcome::Failed(&failure)).await?;
            let time_left = Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default();
            return Ok(Wait::Timer(time_left + Duration::from_millis(100)));
        }
    }
    match open_for_cleanup(state, kyma).await {
        Ok(target) => clean(state, kyma, &target, paused_operations).await,
        Err(failure) if failure.reason == Reason::AwaitingAccess => {
            await_access_or_finish(state, kyma, failure).await
        }
        Err(failure) => Err(failure),
    }
}

async fn finish_cleanup(state: &State, kyma: &Kyma) -> Result<Wait, Failure> {
    write::release_kyma(state, kyma).await?;
    state.forget(&KymaKey::of(kyma));
    Ok(Wait::Event)
}

/// Ends the clean-up without the target if live reads have found no access Secret for `cluster_gone_after`, or if they
/// find none and the annotation [`annotations::CLUSTER_GONE`] is `true`.
async fn await_access_or_finish(state: &State, kyma: &Kyma, awaiting: Failure) -> Result<Wait, Failure> {
    let key = KymaKey::of(kyma);
    if !is_access_gone(state, kyma, &key).await? {
        return Err(awaiting);
    }
    let is_marked_gone =
        kyma.annotations().get(annotations::CLUSTER_GONE).is_some_and(|value| value == "true");
    let now = Timestamp::now();
    let since = report::access_missing_since(state.conditions().latest(kyma).as_ref()).unwrap_or(now);
    let missing = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    if is_marked_gone || missing >= state.cluster_gone_after {
        tracing::info!(kyma = %key, "the access Secret no longer exists: nothing is removed from the cluster");
        return finish_cleanup(state, kyma).await;
    }
    write::report(state, kyma, &Outcome::AccessMissing(&awaiting)).await?;
    let rest = state.cluster_gone_after.saturating_sub(missing);
    Ok(Wait::Timer(rest.max(Duration::from_secs(1))))
}

async fn is_access_gone(state: &State, kyma: &Kyma, key: &KymaKey) -> Result<bool, Failure> {
    if let Some(named) = &kyma.spec.kubeconfig_secret_ref {
        return state.runtime.access.is_gone(&named.name).await;
    }
    let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(state.runtime.hub.clone(), &key.namespace);
    let labelled =
        ListParams::default().labels(&names::label_selector(labels::KYMA_NAME, &key.name)).limit(1);
    let listed = secrets.list_metadata(&labelled).await;
    Ok(listed.map_err(|error| Failure::hub("list access Secrets", &error))?.items.is_empty())
}

async fn clean(
    state: &State,
    kyma: &Kyma,
    target: &Target,
    paused_operations: &PausedOperations,
) -> Result<Wait, Failure> {
    let key = KymaKey::of(kyma);
    let owner = names::owner_hash(&key.namespace, &key.name);
    let gate = DeleteGate::new(paused_operations, &state.runtime.brake, key.to_string());
    gate.permit().await?;
    let mut remaining_copies = vec![];
    for kind in Kind::BOTH {
        let Some(crd) = catalogue_crd(target, kind).await? else { continue };
        // A CRD that was never established has no objects.
        if is_established(&crd) {
            remaining_copies.extend(remove_copies(state, target, kind, &owner, &gate).await?);
        }
        if remaining_copies.is_empty() {
            remove_crd(target, kind, &crd, &owner, &gate).await?;
        }
    }
    if remaining_copies.is_empty() {
        return finish_cleanup(state, kyma).await;
    }
    // The copies still have finalizers of other controllers. The watch reports when a copy is deleted.
    connection::watch(state, &key, target)?;
    let message = report::removal_message(&remaining_copies);
    write::report(state, kyma, &Outcome::Removing(&message)).await?;
    Ok(Wait::Timer(Duration::from_mins(5)))
}

async fn catalogue_crd(target: &Target, kind: Kind) -> Result<Option<DynamicObject>, Failure> {
    let crds: Api<DynamicObject> = Api::all_with(target.client(), &crd_resource());
    let name = crd_name(kind);
    let live = find_object(&crds, &name).await;
    let live = live.map_err(|error| Failure::target(&format!("read CRD {name}"), &error))?;
    Ok(live.filter(|crd| crd.metadata.deletion_timestamp.is_none()))
}

fn is_established(crd: &DynamicObject) -> bool {
    let mut conditions = crd.data["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// Returns the failure if the list of a kind is answered with 404 although its CRD is established: such a 404 does not
/// prove that no copy exists.
fn not_served(kind: Kind) -> Failure {
    let problem = format!("the target has the CRD of {}, but does not serve that kind", kind.word());
    Failure::new(Reason::TargetAnswerInvalid, problem)
}

fn crd_resource() -> ApiResource {
    ApiResource::erase::<CustomResourceDefinition>(&())
}

fn crd_name(kind: Kind) -> String {
    let [template, release] = bootstrap::catalogue_crds();
    match kind {
        Kind::Template => template.name_any(),
        Kind::Release => release.name_any(),
    }
}

/// Deletes the copies of a kind and returns those that still exist.
async fn remove_copies(
    state: &State,
    target: &Target,
    kind: Kind,
    owner: &str,
    gate: &DeleteGate,
) -> Result<Vec<Key>, Failure> {
    let namespace = &state.runtime.settings.target_namespace;
    let reduce = |object: &DynamicObject| (object.name_any(), observe::reduce(object, owner, None));
    let found = observe::list(target, namespace, kind, reduce).await?;
    for (name, existing) in found.ok_or_else(|| not_served(kind))? {
        if existing.ownership == Ownership::Ours {
            write::delete(gate, target, namespace, &Key { kind, name }, &existing.uid).await?;
        }
    }
    let remaining = observe::list(target, namespace, kind, reduce).await?;
    let remaining = remaining.ok_or_else(|| not_served(kind))?.into_iter();
    let own_copies =
        remaining.filter(|(_, existing)| matches!(existing.ownership, Ownership::Ours | Ownership::Deleting));
    Ok(own_copies.map(|(name, _)| Key { kind, name }).collect())
}

/// Deletes the CRD if this operator created it, unless an object of its kind exists or is created meanwhile.
async fn remove_crd(
    target: &Target,
    kind: Kind,
    crd: &DynamicObject,
    owner: &str,
    gate: &DeleteGate,
) -> Result<(), Failure> {
    if crd.annotations().get(CREATED_BY).map(String::as_str) != Some(owner) {
        return Ok(());
    }
    let (client, resource) = (target.client(), crd_resource());
    let failed = |error: &kube::Error| Failure::target(&format!("delete CRD {}", crd.name_any()), error);
    gate.permit().await?;
    let contents = block_creation(&client, crd, FIELD_MANAGER).await.map_err(|error| failed(&error))?;
    let CrdContents::Empty { resource_version } = contents else {
        tracing::info!("{}", report::crd_kept_message(kind));
        return Ok(());
    };
    let proof = DeleteProof::CreatedAndEmpty { resource_version };
    let request = DeleteRequest::new(&resource, &crd.metadata, &[FIELD_MANAGER]).proven(proof);
    let deleted = gate.carry_out(&client, &request).await;
    if deleted.is_err() {
        unblock_kept_crd(&client, &crd.name_any(), FIELD_MANAGER).await;
    }
    deleted.map(drop).map_err(|error| error.into_failure(failed))
}
