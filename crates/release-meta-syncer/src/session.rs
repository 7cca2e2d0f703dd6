//! A session with one target: whose it is has been proven, the catalogue's CRDs are there, it is being watched.
//!
//! Kept until the access Secret changes or a call fails, so that a reconcile with nothing to do makes no call.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};
use kyma_api::{Kyma, Reason, SecretKeyRef, TargetIdentity, labels};
use kyma_object_set::drift::fingerprint;
use kyma_sdk::{
    Content, Failure, Interest, KymaAccess, Proof, Sighting, fence_of, is_on_record, prove_known,
};
use kyma_targets::Target;

use crate::copy::{Key, Kind};
use crate::memory::{Mark, Memory, Thing};
use crate::state::{KymaKey, State, lock};
use crate::{FIELD_MANAGER, ground, hub};

/// Share of the resync after which a target is read again although its watches saw nothing.
const VERIFY_AT: f64 = 0.8;

/// An open session.
pub(crate) struct Session {
    pub(crate) access: SecretKeyRef,
    pub(crate) target: Target,
    /// The connection that was proven.
    connection: u64,
    /// What it was proven to be.
    identity: TargetIdentity,
    memory: Mutex<Memory>,
    verified: Mutex<Option<Instant>>,
}

impl Session {
    pub(crate) fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    /// The target has just been read whole.
    pub(crate) fn is_verified(&self) {
        *lock(&self.verified) = Some(Instant::now());
    }

    /// Whether what is known may be relied on.
    pub(crate) fn is_fresh(&self, state: &State) -> bool {
        let longest = state.runtime.settings.resync.mul_f64(VERIFY_AT);
        let age = lock(&self.verified).map_or(Duration::MAX, |verified| verified.elapsed());
        age < longest && state.watches.is_healthy(&self.target, interests(state))
    }
}

/// The session of a Kyma with its target; opened if there is none, or if another server may answer by now.
pub(crate) async fn of(state: &State, kyma: &Kyma) -> Result<Arc<Session>, Failure> {
    let key = KymaKey::of(kyma);
    let access = access_of(state, kyma)?;
    state.is_accessible(&key);
    let proven = |session: &Arc<Session>| {
        session.access == access
            && session.connection == session.target.connection()
            && is_on_record(kyma, &session.identity)
    };
    if let Some(session) = state.session(&key).filter(proven) {
        return Ok(session);
    }
    state.end_session(&key);
    let target = state.runtime.access.target(&access).await?;
    let connection = target.connection();
    let identity = prove(state, kyma, &target).await?;
    let target = target.fenced(fence_of(&state.runtime, kyma, &identity));
    let (memory, verified) = (Mutex::default(), Mutex::default());
    let session = Arc::new(Session { access, target, connection, identity, memory, verified });
    state.begin_session(&key, &session);
    Ok(session)
}

/// The target of a Kyma that is being deleted; nothing is written to it on the way.
pub(crate) async fn to_clean(state: &State, kyma: &Kyma) -> Result<Target, Failure> {
    let access = access_of(state, kyma)?;
    let target = state.runtime.access.target(&access).await?;
    let known = prove_known(&state.runtime, kyma, &target).await?;
    Ok(target.fenced(fence_of(&state.runtime, kyma, &known)))
}

/// The Secret that leads to a Kyma's target: the one it names, else the one that names it.
fn access_of(state: &State, kyma: &Kyma) -> Result<SecretKeyRef, Failure> {
    let key = KymaKey::of(kyma);
    let access = KymaAccess::known(&state.runtime.access, kyma);
    state.depends_on_secrets(&key, access.secrets);
    access.chosen
}

/// Is it the cluster that it was, and nobody else's?
async fn prove(state: &State, kyma: &Kyma, target: &Target) -> Result<TargetIdentity, Failure> {
    let Proof { identity, stamp, found, .. } = kyma_sdk::prove(&state.runtime, kyma, target).await?;
    if let Some(stamp) = stamp {
        // The stamp of a Kyma that goes has just been taken away by kyma-operator.
        hub::ensure_wanted(state, kyma).await?;
        ground::namespace(target, kyma_targets::STAMP_NAMESPACE).await?;
        target.put_stamp(&stamp, &found).await?;
    }
    Ok(identity)
}

/// What is watched on a target: metadata of the catalogue's kinds and of their CRDs.
fn interests(state: &State) -> [Interest; 3] {
    let namespace = state.runtime.settings.target_namespace.clone();
    let copies = Kind::BOTH.map(|kind| Interest {
        namespace: Some(namespace.clone()),
        content: Content::Metadata,
        ..Interest::in_kind(&kind.resource())
    });
    let [templates, releases] = copies;
    let crds = Interest {
        labels: Some(format!("{}={}", labels::MANAGED_BY, labels::MANAGED_BY_KYMA)),
        content: Content::Metadata,
        ..Interest::in_kind(&ApiResource::erase::<CustomResourceDefinition>(&()))
    };
    [templates, releases, crds]
}

/// Opens what is not being watched yet.
pub(crate) fn watch(state: &State, key: &KymaKey, target: &Target) -> Result<(), Failure> {
    let wanted = state.watches.want(target, key, interests(state));
    wanted.map_err(|limit| Failure::new(Reason::Internal, limit.to_string()))
}

/// A watch saw something. True if the target has to be read again.
pub(crate) fn saw(session: &Session, interest: &Interest, sighting: &Sighting) -> bool {
    let kind = Kind::BOTH.into_iter().find(|kind| kind.resource().plural == interest.plural);
    let thing = |object: &DynamicObject| {
        let name = object.name_any();
        kind.map_or_else(|| Thing::Crd(name.clone()), |kind| Thing::Copy(Key { kind, name: name.clone() }))
    };
    let mut memory = session.memory();
    match sighting {
        // Other operators' CRDs carry the same label.
        Sighting::Applied(object) => memory.saw(thing(object), Some(mark(object))),
        Sighting::Deleted(object) => memory.saw(thing(object), None),
        Sighting::Listed { objects, .. } => {
            let seen = objects.iter().map(|object| (thing(object), mark(object))).collect();
            memory.listed(seen, kind)
        }
    }
}

pub(crate) fn mark(object: &DynamicObject) -> Mark {
    Mark { uid: object.uid().unwrap_or_default(), fingerprint: fingerprint(&object.metadata, FIELD_MANAGER) }
}
