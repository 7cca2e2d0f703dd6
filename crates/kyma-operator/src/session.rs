//! A session with one target: whose it is has been proven, our CRD is there, its Kyma is being watched.
//!
//! Opened once for each access Secret and kept until that changes or a call through it fails, so that a
//! reconcile in between makes no call to the target.

use std::sync::Arc;
use std::time::Instant;

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use kyma_api::{Kyma, Reason, SecretKeyRef, TargetIdentity};
use kyma_sdk::{Content, Failure, Interest};
use kyma_targets::{Claim, Found, KymaId, Mismatch, Recorded, Target, Verdict, compare};
use serde_json::json;

use crate::FIELD_MANAGER;
use crate::state::{State, key_of};
use crate::target_kyma;

mod ground;

pub(crate) use ground::{birth, clean, finalizer_patch, gone_is_fine, is_conflict, of_uid};

/// An open session.
#[derive(Debug)]
pub(crate) struct Session {
    /// The access Secret it goes through.
    pub(crate) access: SecretKeyRef,
    /// The target.
    pub(crate) target: Target,
    /// What the hub recorded about it.
    pub(crate) identity: TargetIdentity,
    /// When it was opened.
    pub(crate) opened: Instant,
}

/// The session of a Kyma with its target; opened if there is none.
pub(crate) async fn of(
    state: &State,
    kyma: &Arc<Kyma>,
    access: SecretKeyRef,
) -> Result<Arc<Session>, Failure> {
    let key = key_of(kyma);
    if let Some(session) = state.sessions().get(&key).filter(|session| session.access == access) {
        return Ok(Arc::clone(session));
    }
    // What was seen through another access says nothing about this one.
    state.end_session(&key);
    let ended = state.ended(&key);
    let session = Arc::new(open(state, kyma, access).await?);
    if state.ended(&key) != ended {
        state.end_session(&key);
        return Err(Failure::new(
            Reason::TargetAnswerInvalid,
            "the access to the target changed while it was read",
        ));
    }
    state.sessions().insert(key, Arc::clone(&session));
    Ok(session)
}

/// The Secret that leads to a Kyma's target: the one it names, else the one that names it.
pub(crate) fn access_of(state: &State, kyma: &Kyma) -> Result<SecretKeyRef, Failure> {
    let key = key_of(kyma);
    if let Some(named) = &kyma.spec.kubeconfig_secret_ref {
        state.depends_on_secret(&key, Some(named.name.clone()));
        return Ok(named.clone());
    }
    let labelled = state.runtime.access.labelled(&key.name);
    state.depends_on_secret(&key, labelled.first().cloned());
    match labelled.as_slice() {
        [name] => Ok(SecretKeyRef { name: name.clone(), key: "config".to_owned() }),
        [] => Err(Failure::new(
            Reason::AwaitingAccess,
            format!(
                "no access Secret for Kyma {key}: create one labelled {}={}",
                kyma_api::labels::KYMA_NAME,
                key.name
            ),
        )),
        several => Err(Failure::new(
            Reason::AccessAmbiguous,
            format!("{} Secrets are labelled for Kyma {key}: {}", several.len(), several.join(", ")),
        )),
    }
}

async fn open(state: &State, kyma: &Arc<Kyma>, access: SecretKeyRef) -> Result<Session, Failure> {
    let target = state.runtime.access.target(&access).await?;
    let found = target.identify().await?;
    let proven = prove(state, kyma, &target, &found).await;
    let identity = proven.inspect_err(|_| look_again(state, &target))?;
    ground::prepare(state, kyma, &target).await?;
    watch(state, kyma, &target)?;
    Ok(Session { access, target, identity, opened: Instant::now() })
}

/// A target tells who it is once for each connection; after a refusal, or once its stamp is gone, it is asked anew.
pub(crate) fn look_again(state: &State, target: &Target) {
    if let Some(place) = target.key() {
        state.runtime.targets.forget(place);
    }
}

/// Is it the cluster that it was, and nobody else's? Records the first contact on the hub before anything is
/// written on the target.
async fn prove(
    state: &State,
    kyma: &Arc<Kyma>,
    target: &Target,
    found: &Found,
) -> Result<TargetIdentity, Failure> {
    let known = kyma.status.as_ref().and_then(|status| status.target.clone());
    let recorded = Recorded {
        target_uid: known.as_ref().map(|known| known.cluster_uid.clone()).filter(|uid| !uid.is_empty()),
        epoch: known
            .as_ref()
            .and_then(|known| known.epoch)
            .and_then(|epoch| u64::try_from(epoch).ok())
            .unwrap_or(0),
    };
    let (identity, write) = match compare(&claim(state, kyma), &recorded, found) {
        Verdict::Match { write } => (known.unwrap_or_default(), write),
        Verdict::FirstContact { record, write } => {
            let identity = TargetIdentity {
                cluster_uid: record.target_uid.unwrap_or_default(),
                epoch: i64::try_from(record.epoch).ok(),
            };
            remember(state, kyma, &identity).await?;
            (identity, write)
        }
        refusal => return Err(refused(&refusal)),
    };
    if let Some(stamp) = write {
        ground::namespace(state, target).await?;
        target.put_stamp(&stamp, found).await?;
    }
    Ok(identity)
}

fn claim(state: &State, kyma: &Kyma) -> Claim {
    let key = key_of(kyma);
    Claim {
        hub_uid: state.runtime.hub_uid.to_string(),
        kyma: Some(KymaId { namespace: key.namespace, name: key.name, uid: kyma.uid().unwrap_or_default() }),
        operator: state.runtime.operator.name.to_owned(),
        version: state.runtime.operator.version.to_owned(),
    }
}

async fn remember(state: &State, kyma: &Kyma, identity: &TargetIdentity) -> Result<(), Failure> {
    let key = key_of(kyma);
    let api: Api<Kyma> = Api::namespaced(state.runtime.hub.clone(), &key.namespace);
    let body = json!({
        "apiVersion": Kyma::api_version(&()), "kind": Kyma::kind(&()),
        "metadata": { "uid": kyma.uid() }, "status": { "target": identity },
    });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let written = api.patch_status(&key.name, &params, &Patch::Merge(&body)).await;
    let written =
        written.map_err(|error| Failure::hub(&format!("record the target of Kyma {key}"), &error))?;
    state.wrote(written);
    Ok(())
}

fn refused(verdict: &Verdict) -> Failure {
    match verdict {
        Verdict::TargetChanged { .. } => Failure::new(
            Reason::TargetChanged,
            "the access Secret leads to another cluster than before: nothing is written or deleted there until \
             `kymactl target adopt`",
        ),
        Verdict::StampMismatch(Mismatch::NewerOperator) => {
            Failure::new(Reason::StampMismatch, "a newer version of this operator has worked on the target")
        }
        Verdict::StampMismatch(_) => Failure::new(
            Reason::StampMismatch,
            "the target was last managed by another hub or by a later state of this one",
        ),
        Verdict::TargetInUse { kyma, other_hub } => Failure::new(
            Reason::TargetInUse,
            format!("the target belongs to Kyma {kyma}{}", if *other_hub { " of another hub" } else { "" }),
        ),
        _ => Failure::new(
            Reason::TargetIsHub,
            "the access Secret leads to the hub itself: use --local-kyma or single-cluster mode if that is meant",
        ),
    }
}

/// What is watched on a target: its own Kyma.
pub(crate) fn interest(state: &State) -> Interest {
    Interest {
        namespace: Some(state.runtime.settings.target_namespace.clone()),
        fields: Some(format!("metadata.name={}", target_kyma::NAME)),
        content: Content::Whole,
        ..Interest::in_kind(&kube::api::ApiResource::erase::<Kyma>(&()))
    }
}

fn watch(state: &State, kyma: &Kyma, target: &Target) -> Result<(), Failure> {
    let wanted = state.watches.want(target, &key_of(kyma), [interest(state)]);
    wanted.map_err(|limit| Failure::new(Reason::Internal, limit.to_string()))
}
