//! Verifies that the target is the recorded one of a component.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, ResourceExt, api::Patch};
use kyma_api::{finalizers, kyma_owner, labels};
use kyma_controller::{Failure, KymaLedger, LocalTarget, Operator, Runtime, hub_apply, verdict_failure};
use kyma_targets::{
    Claim, Fence, KymaId, Ledger, LiveIdentity, Target, TargetRecord, Verdict, compare, record, recorded,
};
use serde_json::json;

use crate::contract::{ComponentResource, Contract};

/// Returns the claim of a component and its recorded target, for the comparison. Pure.
///
/// Components only check the stamp; the operators that reconcile Kymas write it. A takeover of a target raises the
/// epoch of the Kyma's components too, so a component with an older epoch than the stamp is an outdated copy.
fn sides<R: ComponentResource>(
    hub_uid: &str,
    operator: Operator,
    resource: &R,
    found: &LiveIdentity,
) -> (Claim, TargetRecord) {
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

/// A target whose identity was verified.
pub(crate) struct VerifiedTarget {
    /// The target, whose writes are fenced by the stamp.
    pub(crate) target: Target,
    /// Metadata of the component after the first contact was recorded.
    pub(crate) recorded: Option<ObjectMeta>,
}

/// Compares the target with the record, and records it on first contact, before anything is written there. The same
/// write adds the contract's finalizer if it is missing.
///
/// # Errors
/// The target is another cluster, belongs to another Kyma or hub, or is the hub: nothing may be written or deleted
/// there.
pub(crate) async fn prove<R: ComponentResource>(
    runtime: &Runtime,
    resource: &R,
    target: &Target,
) -> Result<VerifiedTarget, Failure> {
    if target.is_local() {
        let recorded = record_local(runtime, resource).await?;
        return Ok(VerifiedTarget { target: target.clone(), recorded });
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
    Ok(VerifiedTarget { target: target.fenced(fence), recorded: written })
}

/// Records the hub as the component's target at the first contact. [`is_local_component`] has checked before that no other
/// cluster is recorded.
async fn record_local<R: ComponentResource>(
    runtime: &Runtime,
    resource: &R,
) -> Result<Option<ObjectMeta>, Failure> {
    if had_contact(resource) {
        return Ok(None);
    }
    let first =
        TargetRecord { target_uid: Some(runtime.hub_uid.to_string()), epoch: 1, fencing_generation: None };
    write_record(runtime, resource, &first).await.map(Some)
}

/// Compares the target with the record without recording anything, for callers that only read.
///
/// # Errors
/// The target is another cluster, belongs to another Kyma or hub, is the hub, or does not answer.
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
        refused => Err(verdict_failure(&refused)),
    }
}

/// Reports whether this component ever had contact with a target.
pub(crate) fn had_contact<R: ComponentResource>(resource: &R) -> bool {
    recorded_uid(resource).is_some()
}

/// Returns the uid of the recorded target of the component.
pub(crate) fn recorded_uid<R: ComponentResource>(resource: &R) -> Option<String> {
    recorded(Some(resource.annotations())).target_uid
}

async fn write_record<R: ComponentResource>(
    runtime: &Runtime,
    resource: &R,
    first: &TargetRecord,
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
    // Has its own field manager: an apply under the operator's would remove the fields that it owns.
    let manager = format!("{}-identity", runtime.operator.name);
    let written = api.patch_metadata(&name, &hub_apply(&manager), &Patch::Apply(&patch)).await;
    written
        .map(|component| component.metadata)
        .map_err(|error| Failure::hub(&format!("record the target on {namespace}/{name}"), &error))
}

/// Reports whether the hub is the target of a component. `recorded` is the uid recorded for its target.
///
/// # Errors
/// A flag says so, and the component or its Kyma has an access Secret (`AccessInvalid`), or the component is recorded with
/// another cluster (`TargetChanged`).
pub(crate) fn is_local_component<R: ComponentResource>(
    runtime: &Runtime,
    resource: &R,
    contract: &Contract,
    recorded: Option<&str>,
) -> Result<bool, Failure> {
    let kyma = resource.labels().get(labels::KYMA_NAME).map_or("", String::as_str);
    if !runtime.settings.is_local(kyma) {
        return Ok(false);
    }
    let named = contract.spec.target.kubeconfig_secret_ref.as_ref();
    let labelled = if kyma.is_empty() { vec![] } else { runtime.access.labelled(kyma) };
    let target = LocalTarget {
        subject: format!("{} {}", R::kind(&()), resource.name_any()),
        named: named.map(|named| named.name.as_str()),
        labelled: &labelled,
        recorded,
    };
    target.check(&runtime.hub_uid).map(|()| true)
}
