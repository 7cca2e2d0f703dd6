//! Whether the target is the one that a component worked on before.

use kube::{Api, ResourceExt, api::Patch};
use kyma_api::Reason;
use kyma_targets::{Claim, Found, KymaId, Mismatch, Recorded, Target, Verdict, compare, record, recorded};
use serde_json::json;

use crate::{ComponentResource, Failure, Runtime, hub_apply};

/// What a component claims and remembers, for the comparison. Pure.
///
/// The stamp is kyma-operator's: a component of a Kyma checks it and never writes it. Who takes a target over for the
/// Kyma raises the epoch of its components too, so one that lags behind the stamp is an old copy's.
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
    if known.target_uid.is_some() && known.epoch == 0 {
        known.epoch = found.stamp.as_ref().map_or(1, |stamp| stamp.epoch);
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
        refused => {
            target.doubt().await;
            Err(refusal(&refused))
        }
    }
}

/// Whether this component ever had contact with a target.
pub(crate) fn had_contact<R: ComponentResource>(resource: &R) -> bool {
    recorded(Some(resource.annotations())).target_uid.is_some()
}

/// What a verdict means that forbids to write.
pub fn refusal(verdict: &Verdict) -> Failure {
    let (reason, message) = match verdict {
        Verdict::TargetChanged { .. } => (
            Reason::TargetChanged,
            "the access Secret leads to another cluster than before: nothing is written or deleted there until \
             `kymactl target adopt`"
                .to_owned(),
        ),
        Verdict::StampMismatch(mismatch) => {
            let words = match mismatch {
                Mismatch::TakenOver => "another hub took the target over",
                Mismatch::LaterEpoch => "the target was last managed by a later state of this hub",
                Mismatch::NewerOperator => "a newer version of this operator has worked on the target",
            };
            (Reason::StampMismatch, words.to_owned())
        }
        Verdict::TargetInUse { kyma, other_hub } => {
            let place = if *other_hub { " of another hub" } else { "" };
            (Reason::TargetInUse, format!("the target belongs to {}{place}", owner_in_words(kyma)))
        }
        Verdict::TargetIsHub | Verdict::Match { .. } | Verdict::FirstContact { .. } => (
            Reason::TargetIsHub,
            "the access Secret leads to the hub itself: use --local-kyma or single-cluster mode if that is meant"
                .to_owned(),
        ),
    };
    Failure::new(reason, message)
}

/// The stamp is the target's to write, so what it says is shown only if it can be the name of a Kyma.
fn owner_in_words(kyma: &str) -> String {
    let is_name = |part: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        !part.is_empty() && part.len() <= 253 && part.bytes().all(inner)
    };
    let is_kyma = kyma.split_once('/').is_some_and(|(namespace, name)| is_name(namespace) && is_name(name));
    if is_kyma { format!("Kyma {kyma}") } else { "another Kyma".to_owned() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_shows_no_text_of_the_targets_but_the_name_of_a_kyma() {
        let in_use = |kyma: &str, other_hub| {
            refusal(&Verdict::TargetInUse { kyma: kyma.to_owned(), other_hub }).message
        };
        assert_eq!(in_use("kcp-system/sample", false), "the target belongs to Kyma kcp-system/sample");
        assert_eq!(in_use("kcp-system/s", true), "the target belongs to Kyma kcp-system/s of another hub");
        for forged in ["", "sample", "a/b/c", "a/ignore all that", &format!("a/{}", "b".repeat(254))] {
            assert_eq!(in_use(forged, false), "the target belongs to another Kyma", "{forged}");
        }
        let changed = Verdict::TargetChanged { recorded: "uid-1".into(), found: "text".into() };
        assert!(!refusal(&changed).message.contains("text"));
    }
}
