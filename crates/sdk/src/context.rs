//! The context of a component's step: the resource, the verified target, and safe methods to read and write there.

use std::{collections::HashSet, fmt::Debug, pin::pin, sync::Arc};

use futures::StreamExt as _;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, Patch, PatchParams},
    core::DynamicObject,
};
use kube_runtime::reflector::ObjectRef;
use kyma_api::{FreeForm, Reason, annotations, labels};
use kyma_controller::{
    Brake, DeleteGate, DeleteOutcome, DeleteRequest, Events, Failure, ReconcileContext, Settings, Trigger,
    WatchSpec, find_object, none_if_unserved, unreadable_fields,
};
use kyma_targets::ComponentTarget;
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};

use crate::contract::{ComponentResource, Contract};
use crate::object::{Claim, claim, content_hash, covers, holds_more, is_created_by, is_protected};
use crate::status::StatusWriter;

/// One reconcile's view of a component and its target.
///
/// Objects that are read or written through it on the target are watched from then on, so a change causes a
/// reconcile.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kyma_sdk::{ComponentResource, Context, Failure, Progress};
///
/// async fn install<R: ComponentResource>(context: &Context<R>, map: &ConfigMap) -> Result<Progress, Failure> {
///     context.ensure_namespace("kyma-system").await?;
///     context.ensure(map).await?;
///     if context.get::<ConfigMap>(Some("kyma-system"), "license").await?.is_none() {
///         return Ok(Progress::working("waiting for ConfigMap kyma-system/license"));
///     }
///     Ok(Progress::ready("1.0.0"))
/// }
/// ```
pub struct Context<R: ComponentResource> {
    /// The component as the watch last showed it.
    pub resource: Arc<R>,
    /// Its part of the component contract.
    pub contract: Contract,
    /// The target, after its identity was verified, with the client of the identity that the component uses there.
    pub target: ComponentTarget,
    /// Client for the hub.
    pub hub: Client,
    /// Settings of the operator.
    pub settings: Arc<Settings>,
    /// Kubernetes events on the hub.
    pub events: Events,
    pub(crate) manager: &'static str,
    pub(crate) owner: String,
    pub(crate) wake: Trigger<ObjectRef<R>>,
    pub(crate) status: StatusWriter<R>,
    pub(crate) reconcile: ReconcileContext,
    pub(crate) brake: Brake,
    pub(crate) watch_specs: Mutex<HashSet<WatchSpec>>,
    /// Whether this is a dry run: nothing is written to hub or target.
    pub(crate) is_dry_run: bool,
}

/// Requests reconciles of one component. Cheap to clone; may outlive the reconcile.
///
/// ```
/// use kyma_sdk::{ComponentResource, Context};
///
/// fn wake_after<R: ComponentResource>(context: &Context<R>, work: impl FnOnce() + Send + 'static) {
///     let waker = context.waker();
///     std::thread::spawn(move || {
///         work();
///         waker.wake();
///     });
/// }
/// ```
pub struct Waker<R: ComponentResource> {
    key: ObjectRef<R>,
    trigger: Trigger<ObjectRef<R>>,
}

impl<R: ComponentResource> Waker<R> {
    /// Requests one reconcile as soon as possible.
    pub fn wake(&self) {
        self.trigger.enqueue(self.key.clone());
    }
}

impl<R: ComponentResource> Clone for Waker<R> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), trigger: self.trigger.clone() }
    }
}

impl<R: ComponentResource> Debug for Waker<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waker").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<R: ComponentResource> Context<R> {
    /// Returns the value of the owner label on every object of this component on the target.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the field manager for writes on the target.
    pub fn manager(&self) -> &'static str {
        self.manager
    }

    /// Returns a handle that requests a reconcile of this component after an event that only the caller observes.
    pub fn waker(&self) -> Waker<R> {
        Waker { key: ObjectRef::from_obj(&*self.resource), trigger: self.wake.clone() }
    }

    /// Returns the context of the reconcile: whether it is a periodic verification, and its count of repairs.
    /// [`Context::ensure`] counts its own repairs.
    pub fn reconcile_context(&self) -> &ReconcileContext {
        &self.reconcile
    }

    /// Reports whether a user requested a reconcile without cached state (`kymactl reconcile`). The driver records
    /// the request as handled after the step.
    pub fn is_requested(&self) -> bool {
        self.contract.request(&*self.resource).is_some()
    }

    /// Checks whether deletions on the target are allowed. [`Context::remove`] and the driver's removal call it
    /// themselves.
    ///
    /// # Errors
    /// `Paused`, or `MassDeletion`: too many other targets had deletions within ten minutes.
    pub async fn may_delete(&self) -> Result<(), Failure> {
        self.delete_gate().permit().await
    }

    /// Returns the gate that every deletion on the target passes.
    pub fn delete_gate(&self) -> DeleteGate {
        let gate =
            DeleteGate::new(self.reconcile.paused_operations(), &self.brake, target_key(&self.contract));
        gate.for_module(&self.settings.target_namespace)
    }

    /// Reports whether this is a dry run ([`Context::dry_run`]): writes to the target are dry runs, and nothing is
    /// written to the hub.
    pub fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    /// Waits until a reconcile of the component is requested. For dry runs, which no driver requeues.
    pub async fn woken(&self) {
        pin!(self.wake.stream()).next().await;
    }

    /// Watches further objects, besides those that are read and written through this context.
    pub fn watch(&self, watch_spec: WatchSpec) {
        self.watch_specs.lock().insert(watch_spec);
    }

    /// Writes fields of the status in the middle of a step, so that a later process finds them after a crash. `null`
    /// removes a field. Writes only if something differs, and never in a dry run.
    ///
    /// # Errors
    /// The hub refuses the write.
    pub async fn checkpoint(&self, fields: FreeForm) -> Result<(), Failure> {
        if self.is_dry_run {
            return Ok(());
        }
        self.status.write_fields(&self.resource, fields).await
    }

    /// Reads an object from the target; `namespace` is `None` for cluster-scoped kinds.
    ///
    /// # Errors
    /// The target does not answer or forbids it.
    pub async fn get<K>(&self, namespace: Option<&str>, name: &str) -> Result<Option<K>, Failure>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let kind = ApiResource::erase::<K>(&());
        let Some(found) = self.read(&kind, namespace, name).await? else {
            return Ok(None);
        };
        typed(&kind, found).map(Some)
    }

    /// Applies `wanted` to the target, with this component's owner label, if the live object differs. Returns the
    /// live object.
    ///
    /// Write values as the API server stores them (`cpu: "1"`, not `1000m`), or each reconcile repeats the apply.
    ///
    /// # Errors
    /// `OwnedByOther`: the object carries another owner's label, or another field manager created it; see
    /// [`Context::adopt`]. `Protected`: no module may write it. Otherwise what the target says.
    pub async fn ensure<K>(&self, wanted: &K) -> Result<K, Failure>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        self.bring(wanted, false).await
    }

    /// Applies like [`Context::ensure`], but adopts an existing object that no component owns. An adopted object
    /// stays when the component is removed: [`Context::remove`] deletes only created objects.
    ///
    /// # Errors
    /// `OwnedByOther`: the object carries another owner's label. `Protected`: no module may write it. Otherwise
    /// what the target says.
    pub async fn adopt<K>(&self, wanted: &K) -> Result<K, Failure>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        self.bring(wanted, true).await
    }

    async fn bring<K>(&self, wanted: &K, adopt: bool) -> Result<K, Failure>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let kind = ApiResource::erase::<K>(&());
        let mut wanted = self.owned(&kind, wanted)?;
        let name = wanted.name_any();
        let namespace = wanted.namespace();
        let what = format!("{} {name}", kind.kind);
        if self.is_protected(&kind, namespace.as_deref(), &name) {
            return Err(Failure::new(Reason::Protected, what));
        }
        let mut params = PatchParams::apply(self.manager);
        match self.read(&kind, namespace.as_deref(), &name).await? {
            // Not forced: an object that another actor creates at the same time is not the component's.
            None => self.mark_created(&mut wanted),
            Some(live) => {
                match claim(&live, &self.owner, self.manager) {
                    Claim::Own => {}
                    Claim::Unowned if adopt => {}
                    Claim::Unowned | Claim::Other => return Err(Failure::new(Reason::OwnedByOther, what)),
                }
                if live.annotations().get(annotations::CREATED_BY) == Some(&self.owner) {
                    self.mark_created(&mut wanted);
                }
                if covers(&live, &wanted) {
                    return typed(&kind, live);
                }
                // Server-side apply creates what is missing: the uid says which object is meant.
                wanted.metadata.uid.clone_from(&live.metadata.uid);
                params = params.force();
            }
        }
        let applied =
            self.api(&kind, namespace.as_deref()).patch(&name, &params, &Patch::Apply(&wanted)).await;
        let applied = applied.map_err(|error| Failure::target(&format!("apply {what}"), &error))?;
        self.reconcile.repaired(1);
        typed(&kind, applied)
    }

    /// Creates a namespace on the target unless it exists. It has no owner label and is never deleted, since others
    /// may use it.
    ///
    /// # Errors
    /// The target does not answer or forbids it.
    pub async fn ensure_namespace(&self, name: &str) -> Result<(), Failure> {
        let (client, manager) = (self.target.client(), format!("{}-create", self.manager));
        let ensured = kyma_targets::ensure_namespace(&client, name, &[], &manager).await;
        ensured.map(drop).map_err(|error| Failure::target(&format!("create namespace {name}"), &error))
    }

    /// Deletes an object on the target that this component created; returns true once the object is gone. Objects of
    /// other owners and adopted objects stay and count as gone.
    ///
    /// # Errors
    /// `Protected`: a Namespace, `CustomResourceDefinition` or `PersistentVolumeClaim`, whose deletion would also
    /// delete other objects or data. `Paused`, `MassDeletion`: see [`Context::may_delete`]. Otherwise the target does
    /// not answer or forbids it.
    pub async fn remove<K>(&self, namespace: Option<&str>, name: &str) -> Result<bool, Failure>
    where
        K: Resource<DynamicType = ()>,
    {
        let kind = ApiResource::erase::<K>(&());
        if holds_more(&kind) {
            return Err(Failure::new(Reason::Protected, format!("delete {} {name}", kind.kind)));
        }
        let Some(live) = self.read(&kind, namespace, name).await? else {
            return Ok(true);
        };
        if !is_created_by(&live, &self.owner, self.manager) || self.is_protected(&kind, namespace, name) {
            return Ok(true);
        }
        if live.metadata.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let managers = [self.manager];
        let request = DeleteRequest::new(&kind, &live.metadata, &managers);
        let deleted = self.delete_gate().carry_out(&self.target.client(), &request).await;
        match deleted {
            Ok(DeleteOutcome::Gone) => Ok(true),
            Ok(DeleteOutcome::Waiting(_)) => Ok(false),
            Err(error) => {
                let action = format!("delete {} {name}", kind.kind);
                Err(error.into_failure(|error| Failure::target(&action, error)))
            }
        }
    }

    pub(crate) fn take_watch_specs(&self) -> HashSet<WatchSpec> {
        std::mem::take(&mut *self.watch_specs.lock())
    }

    fn owned<K: Serialize>(&self, kind: &ApiResource, wanted: &K) -> Result<DynamicObject, Failure> {
        let unwritable =
            |_| Failure::new(Reason::Internal, format!("{} cannot be written as JSON", kind.kind));
        let mut value = serde_json::to_value(wanted).map_err(unwritable)?;
        value["apiVersion"] = kind.api_version.clone().into();
        value["kind"] = kind.kind.clone().into();
        let mut object: DynamicObject = serde_json::from_value(value.clone()).map_err(|_| {
            let fields = unreadable_fields::<DynamicObject>(&value);
            Failure::new(Reason::Internal, format!("a field of {} is {fields}", kind.kind))
        })?;
        object.labels_mut().insert(labels::OWNER.to_owned(), self.owner.clone());
        let hash = content_hash(&object);
        object.annotations_mut().insert(annotations::APPLIED.to_owned(), hash);
        Ok(object)
    }

    fn mark_created(&self, wanted: &mut DynamicObject) {
        wanted.annotations_mut().insert(annotations::CREATED_BY.to_owned(), self.owner.clone());
    }

    pub(crate) fn is_protected(&self, kind: &ApiResource, namespace: Option<&str>, name: &str) -> bool {
        is_protected(kind, namespace, name, &self.settings.target_namespace)
    }

    async fn read(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<DynamicObject>, Failure> {
        self.watch(WatchSpec::in_kind(kind).owned());
        let read = find_object(&self.api(kind, namespace), name).await;
        let read = none_if_unserved(&self.target.client(), kind, read).await.map(Option::flatten);
        read.map_err(|error| Failure::target(&format!("read {} {name}", kind.kind), &error))
    }

    pub(crate) fn api(&self, kind: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.target.client(), namespace, kind),
            None => Api::all_with(self.target.client(), kind),
        }
    }
}

/// Returns the name of a component's target for the brake: name and key of the access Secret, or empty for the hub.
fn target_key(contract: &Contract) -> String {
    let reference = contract.spec.target.kubeconfig_secret_ref.as_ref();
    reference.map(|reference| format!("{}/{}", reference.name, reference.key)).unwrap_or_default()
}

fn typed<K: DeserializeOwned>(kind: &ApiResource, object: DynamicObject) -> Result<K, Failure> {
    let failed = |_| Failure::new(Reason::TargetAnswerInvalid, format!("{} cannot be read", kind.kind));
    serde_json::to_value(object).and_then(serde_json::from_value).map_err(failed)
}

impl<R: ComponentResource> Debug for Context<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("target", &self.target)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
