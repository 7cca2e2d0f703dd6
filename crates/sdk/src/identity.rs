//! Whether the target is the one that a component worked on before.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, ResourceExt, api::Patch};
use kyma_api::{finalizers, kyma_owner};
use kyma_targets::{
    Claim, Fence, Found, KymaId, Ledger, Recorded, Target, TargetError, Verdict, compare, record, recorded,
};
use serde_json::json;

use crate::{ComponentResource, Failure, Operator, Runtime, hub_apply, kyma::KymaLedger};

/// What a component claims and remembers, for the comparison. Pure.
///
/// The stamp is kyma-operator's: a component of a Kyma checks it and never writes it. Who takes a target over for the
/// Kyma raises the epoch of its components too, so one that lags behind the stamp is an old copy's.
fn sides<R: ComponentResource>(
    hub_uid: &str,
    operator: Operator,
    resource: &R,
    found: &Found,
) -> (Claim, Recorded) {
    let owners = resource.owner_references();
    let kyma = kyma_owner(owners).map(|owner| KymaId {
        namespace: resource.namespace().unwrap_or_default(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    });
    let claim = Claim {
        hub_uid: hub_uid.to_owned(),
        kyma,
        operator: operator.name.to_owned(),
        version: operator.version.to_owned(),
    };
    let mut known = recorded(Some(resource.annotations()));
    if known.target_uid.is_some() && known.epoch == 0 {
        known.epoch = found.stamp.as_ref().map_or(1, |stamp| stamp.epoch);
    }
    (claim, known)
}

/// A target that is the one it was.
pub(crate) struct Proven {
    /// Written to only as long as it stays so.
    pub(crate) target: Target,
    /// What the component became by the record of a first contact.
    pub(crate) recorded: Option<ObjectMeta>,
}

/// Compares the target with what is on record, and records it on first contact, before anything is written there. The
/// contract's finalizer comes with the record where it is not there yet: one write for both.
///
/// # Errors
/// It is another cluster, or another's, or the hub: nothing may be written or deleted there.
pub(crate) async fn prove<R: ComponentResource>(
    runtime: &Runtime,
    resource: &R,
    target: &Target,
) -> Result<Proven, Failure> {
    if target.is_local() {
        let recorded = record_local(runtime, resource).await?;
        return Ok(Proven { target: target.clone(), recorded });
    }
    let found = target.identify().await?;
    let (claim, recorded) = sides(&runtime.hub_uid, runtime.operator, resource, &found);
    let ledger = claim.kyma.as_ref().map(|kyma| KymaLedger::new(runtime, &kyma.namespace, &kyma.name));
    let ledger = ledger.map(|ledger| Arc::new(ledger) as Arc<dyn Ledger>);
    let mut fence = Fence { claim, recorded, ledger };
    let mut written = None;
    match target.judge(&fence, &found).await? {
        Verdict::Match { .. } => {}
        Verdict::FirstContact { record: first, .. } => {
            written = Some(write_record(runtime, resource, &first).await?);
            fence.recorded = first;
        }
        refused => return Err(target.refuse(refused).await.into()),
    }
    Ok(Proven { target: target.fenced(fence), recorded: written })
}

/// Records the hub as the component's target at the first contact. [`crate::local`] has checked before that no other
/// cluster is recorded.
async fn record_local<R: ComponentResource>(
    runtime: &Runtime,
    resource: &R,
) -> Result<Option<ObjectMeta>, Failure> {
    if had_contact(resource) {
        return Ok(None);
    }
    let first = Recorded { target_uid: Some(runtime.hub_uid.to_string()), epoch: 1, turn: None };
    write_record(runtime, resource, &first).await.map(Some)
}

/// The same comparison where nothing is recorded, for who only reads.
///
/// # Errors
/// It is another cluster, or another's, or the hub; it does not answer.
pub(crate) async fn compared<R: ComponentResource>(
    hub_uid: &str,
    operator: Operator,
    resource: &R,
    target: &Target,
) -> Result<(), Failure> {
    if target.is_local() {
        return Ok(());
    }
    let found = target.identify().await?;
    let (claim, recorded) = sides(hub_uid, operator, resource, &found);
    match compare(&claim, &recorded, &found) {
        Verdict::Match { .. } | Verdict::FirstContact { .. } => Ok(()),
        refused => Err(refusal(&refused)),
    }
}

/// Whether this component ever had contact with a target.
pub(crate) fn had_contact<R: ComponentResource>(resource: &R) -> bool {
    recorded_uid(resource).is_some()
}

/// The uid of the cluster that is recorded as the component's target.
pub(crate) fn recorded_uid<R: ComponentResource>(resource: &R) -> Option<String> {
    recorded(Some(resource.annotations())).target_uid
}

/// What a verdict means that forbids to write.
pub fn refusal(verdict: &Verdict) -> Failure {
    TargetError::Refused(Box::new(verdict.clone())).into()
}

async fn write_record<R: ComponentResource>(
    runtime: &Runtime,
    resource: &R,
    first: &Recorded,
) -> Result<ObjectMeta, Failure> {
    let (name, namespace) = (resource.name_any(), resource.namespace().unwrap_or_default());
    let patch = json!({
        "apiVersion": R::api_version(&()),
        "kind": R::kind(&()),
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": resource.uid(),
            "annotations": record(first),
            "finalizers": [finalizers::COMPONENT],
        },
    });
    let api: Api<R> = Api::namespaced(runtime.hub.clone(), &namespace);
    // A manager of its own: an apply under the operator's would give up what that one owns.
    let manager = format!("{}-identity", runtime.operator.name);
    let written = api.patch_metadata(&name, &hub_apply(&manager), &Patch::Apply(&patch)).await;
    written
        .map(|component| component.metadata)
        .map_err(|error| Failure::hub(&format!("record the target on {namespace}/{name}"), &error))
}
