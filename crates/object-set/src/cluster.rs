//! Access to a cluster.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta, PropagationPolicy};
use kyma_api::DeleteProof;
use lockable::LockPool;

use crate::error::{Action, CallError, Failure};
use crate::object::Identity;

pub mod discovery;
pub(crate) mod dry_run;

use discovery::{Discovery, Mapping, serving_pauses};
use dry_run::DryRun;

/// Access to one cluster, as one user of it.
#[derive(Clone)]
pub struct Cluster {
    /// The client, which enforces deadlines and limits.
    pub client: Client,
    /// Cached discovery of the cluster, shared by all users of it.
    pub discovery: Arc<Discovery>,
    /// Locks for single objects, shared by all users of the cluster.
    pub object_locks: Arc<ObjectLocks>,
    /// If set, nothing is changed: applies are dry runs, deletions are not sent, and their effects are recorded here.
    /// The client must refuse all other writes.
    pub dry_run: Option<Arc<DryRun>>,
    /// Sends the DELETEs. Without one nothing is deleted.
    pub deleter: Option<Arc<dyn Deleter>>,
}

/// A deletion that the rules of this crate allow.
#[derive(Clone, Debug)]
pub struct Deletion<'a> {
    /// The object.
    pub identity: &'a Identity,
    /// Its kind and API version.
    pub resource: &'a ApiResource,
    /// Its metadata as read from the cluster.
    pub live: &'a ObjectMeta,
    /// Field managers of which one has an entry in its `managedFields`.
    pub managers: &'a [&'a str],
    /// Evidence for kinds that hold data or other objects.
    pub proof: DeleteProof,
    /// Propagation to dependents.
    pub propagation: PropagationPolicy,
}

/// Sends DELETEs: the delete gate of the operator that uses this crate.
pub trait Deleter: Send + Sync {
    /// Checks whether deletions are allowed now, before a step that prepares one.
    fn permit<'a>(&'a self, object: &'a Identity) -> BoxFuture<'a, Result<(), CallError>>;

    /// Deletes an object; true if it no longer exists. A replaced or changed object is [`Failure::Conflict`], and a
    /// refusal of the gate is [`CallError::halted`].
    fn carry_out<'a>(
        &'a self,
        client: &'a Client,
        deletion: Deletion<'a>,
    ) -> BoxFuture<'a, Result<bool, CallError>>;
}

/// Locks by object: an apply that finds no object creates it before the next one reads.
#[derive(Default)]
pub struct ObjectLocks(LockPool<Identity>);

impl std::fmt::Debug for ObjectLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ObjectLocks")
    }
}

impl ObjectLocks {
    /// Waits for the lock of this object, which is held until the guard is dropped.
    pub(crate) async fn lock(&self, object: &Identity) -> impl Sized + use<'_> {
        self.0.async_lock(object.clone()).await
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cluster")
    }
}

impl Cluster {
    /// Returns a cluster without cached discovery.
    pub fn new(client: Client) -> Self {
        Self { client, discovery: Arc::default(), object_locks: Arc::default(), dry_run: None, deleter: None }
    }

    /// Returns the same cluster with a delete gate.
    #[must_use]
    pub fn deleting_by(self, deleter: Arc<dyn Deleter>) -> Self {
        Self { deleter: Some(deleter), ..self }
    }

    /// Reads the metadata of an object before it is applied; `None` after every 404. If another server sent it, the
    /// apply fails: it only creates.
    pub(crate) async fn metadata(
        &self,
        mapping: &Mapping,
        object: &Identity,
    ) -> Result<Option<PartialObjectMeta<DynamicObject>>, CallError> {
        let api = mapping.api(&self.client, object.namespace.as_deref());
        match api.get_metadata(&object.name).await {
            Ok(found) => Ok(Some(found)),
            Err(error) => match CallError::new(Action::Get, Some(object), error) {
                error if error.failure == Failure::NotFound => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Reads the metadata of an object; `None` only if the target says that the object does not exist or that its kind
    /// is not served.
    pub(crate) async fn proven_metadata(
        &self,
        mapping: &Mapping,
        object: &Identity,
    ) -> Result<Option<PartialObjectMeta<DynamicObject>>, CallError> {
        let api = mapping.api(&self.client, object.namespace.as_deref());
        let error = match api.get_metadata(&object.name).await {
            Ok(found) => return Ok(Some(found)),
            Err(error) => CallError::new(Action::Get, Some(object), error),
        };
        let is_gone = error.is_absence(mapping) || self.is_unserved(mapping, &error).await?;
        if is_gone { Ok(None) } else { Err(error) }
    }

    /// Reports whether a call failed because the target no longer serves the kind in any version. The answer alone does
    /// not prove that, since a proxy may have sent it: discovery is repeated, for two seconds while it lists the kind.
    pub(crate) async fn is_unserved(&self, mapping: &Mapping, error: &CallError) -> Result<bool, CallError> {
        if !error.is_about_no_object() {
            return Ok(false);
        }
        let mut pauses = serving_pauses();
        loop {
            self.discovery.invalidate().await;
            let kinds = self.discovery.kinds(&self.client).await?;
            if kinds.is_unknown(&mapping.resource.group) {
                return Ok(false);
            }
            if kinds.preferred(&mapping.gvk().group_kind()).is_none() {
                return Ok(true);
            }
            // No event announces that discovery lacks the kind of a CRD that was removed a moment ago.
            match pauses.next() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Ok(false),
            }
        }
    }
}
