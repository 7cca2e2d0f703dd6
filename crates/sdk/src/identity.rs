//! Whether the target is the one that a component worked on before.

use kube::{Api, ResourceExt, api::Patch};
use kyma_api::Reason;
use kyma_targets::{Claim, Found, KymaId, Mismatch, Recorded, Target, Verdict, compare, record, recorded};
use serde_json::json;

use crate::{ComponentResource, Failure, Runtime, hub_apply};

/// What a component claims and remembers, for the comparison. Pure.
///
/// The stamp is kyma-operator's: a component of a Kyma checks it and never writes it, and takes the epoch from it,
/// since taking a target over is decided for the Kyma as a whole.
fn sides<R: ComponentResource>(runtime: &Runtime, resource: &R, found: &Found) -> (Claim, Recorded) {
    let owners = resource.owner_references();
    let kyma = owners.iter().find(|owner| owner.kind == "Kyma").map(|owner| KymaId {
        namespace: resource.namespace().unwrap_or_default(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    });
    let claim = Claim {
        hub_uid: runtime.hub_uid.to_string(),
        kyma,
        operator: runtime.operator.name.to_owned(),
        version: runtime.operator.version.to_owned(),
    };
    let mut known = recorded(Some(resource.annotations()));
    if known.target_uid.is_some() {
        known.epoch = known.epoch.max(found.stamp.as_ref().map_or(1, |stamp| stamp.epoch));
    }
    (claim, known)
}

/// Compares the target with what is on record, and records it on first contact, before anything is written there.
///
/// # Errors
/// It is another cluster, or another's, or the hub: nothing may be written or deleted there.
pub(crate) async fn prove<R: ComponentResource>(
    runtime: &Runtime,
    resource: &R,
    target: &Target,
) -> Result<(), Failure> {
    if target.is_local() {
        return Ok(());
    }
    let found = target.identify().await?;
    let (claim, known) = sides(runtime, resource, &found);
    match compare(&claim, &known, &found) {
        Verdict::Match { .. } => Ok(()),
        Verdict::FirstContact { record: first, .. } => write_record(runtime, resource, &first).await,
        refused => Err(refusal(&refused)),
    }
}

/// Whether this component ever had contact with a target.
pub(crate) fn had_contact<R: ComponentResource>(resource: &R) -> bool {
    recorded(Some(resource.annotations())).target_uid.is_some()
}

fn refusal(verdict: &Verdict) -> Failure {
    match verdict {
        Verdict::TargetChanged { recorded, found } => Failure::new(
            Reason::TargetChanged,
            format!("the access Secret leads to cluster {found} instead of {recorded}"),
        ),
        Verdict::StampMismatch(mismatch) => Failure::new(
            Reason::StampMismatch,
            match mismatch {
                Mismatch::TakenOver => "another hub took the target over",
                Mismatch::LaterEpoch => "the target was taken over later than this hub knows",
                Mismatch::NewerOperator => "a newer version of this operator worked on the target",
            },
        ),
        Verdict::TargetInUse { kyma, other_hub } => {
            let place = if *other_hub { " on another hub" } else { "" };
            Failure::new(Reason::TargetInUse, format!("the target belongs to Kyma {kyma}{place}"))
        }
        Verdict::TargetIsHub | Verdict::Match { .. } | Verdict::FirstContact { .. } => {
            Failure::new(Reason::TargetIsHub, "the access Secret leads to the hub itself")
        }
    }
}

async fn write_record<R: ComponentResource>(
    runtime: &Runtime,
    resource: &R,
    first: &Recorded,
) -> Result<(), Failure> {
    let (name, namespace) = (resource.name_any(), resource.namespace().unwrap_or_default());
    let patch = json!({
        "apiVersion": R::api_version(&()),
        "kind": R::kind(&()),
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": resource.uid(),
            "annotations": record(first),
        },
    });
    let api: Api<R> = Api::namespaced(runtime.hub.clone(), &namespace);
    // A manager of its own: an apply under the operator's would give up what that one owns.
    let manager = format!("{}-identity", runtime.operator.name);
    let written = api.patch_metadata(&name, &hub_apply(&manager), &Patch::Apply(&patch)).await;
    written
        .map(drop)
        .map_err(|error| Failure::hub(&format!("record the target on {namespace}/{name}"), &error))
}
