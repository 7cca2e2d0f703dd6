//! Access to one object on the target.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DynamicObject, PartialObjectMeta, Patch, PatchParams};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::cluster::discovery::{Mapping, serving_pauses};
use crate::error::{Action, CallError, Failure};
use crate::object::{Gvk, Identity};

/// Maximum number of tries to move field ownership while controllers write to a new object.
pub(super) const MAX_MANAGED_FIELDS_TRIES: usize = 5;

/// One object on the target. It may not exist.
#[derive(Clone, Copy)]
pub(super) struct TargetObject<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) identity: &'a Identity,
    pub(super) mapping: &'a Mapping,
    /// Kinds that CRDs of the same set define.
    pub(super) own_kinds: &'a BTreeSet<Gvk>,
}

impl<'a> TargetObject<'a> {
    /// Returns the same object in another API version.
    pub(super) fn in_version(self, mapping: &'a Mapping) -> Self {
        Self { mapping, ..self }
    }

    pub(super) fn api(&self) -> Api<DynamicObject> {
        self.mapping.api(&self.cluster.client, self.identity.namespace.as_deref())
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.cluster.dry_run.is_some()
    }

    /// Reports whether a CRD of the set defines the kind.
    pub(super) fn has_own_kind(&self) -> bool {
        self.own_kinds.contains(&self.mapping.gvk())
    }

    /// Returns the error of a failed call.
    pub(super) fn error(&self, action: Action, error: kube::Error) -> CallError {
        CallError::new(action, Some(self.identity), error)
    }

    /// Reads the metadata; `None` after every 404.
    pub(super) async fn metadata(&self) -> Result<Option<ObjectMeta>, CallError> {
        let found = self.cluster.metadata(self.mapping, self.identity).await?;
        Ok(found.map(|found| found.metadata))
    }

    /// Reads the object. Returns its metadata, and the whole object.
    pub(super) async fn read(&self) -> Result<Option<(ObjectMeta, Value)>, CallError> {
        let found = self.api().get_opt(&self.identity.name).await;
        let found = found.map_err(|error| self.error(Action::Get, error))?;
        Ok(found.map(|found| (found.metadata.clone(), serde_json::to_value(found).unwrap_or_default())))
    }

    /// Sends a server-side apply. Retries if the kind's CRD was just established and is not served yet.
    pub(super) async fn apply(&self, params: &PatchParams, body: &Value) -> Result<ObjectMeta, CallError> {
        let api = self.api();
        let patch = Patch::Apply(body);
        if let Some(dry_run) = &self.cluster.dry_run {
            return Ok(dry_run.patch(&api, self.identity, params, &patch).await?.metadata);
        }
        let mut pauses = serving_pauses();
        loop {
            let answer: kube::Result<PartialObjectMeta<DynamicObject>> =
                api.patch_metadata(&self.identity.name, params, &patch).await;
            let mut error = match answer {
                Ok(found) => return Ok(found.metadata),
                Err(error) => uid_refusal_as_conflict(self.error(Action::Apply, error)),
            };
            if !(error.is_missing_kind() && self.has_own_kind()) {
                return Err(error);
            }
            error.failure = Failure::NotServedYet;
            let Some(pause) = pauses.next() else { return Err(error) };
            // No event announces that the API server serves a kind whose CRD was just established.
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends a patch of `managedFields`, which tests the resourceVersion. A refusal is [`Failure::Conflict`]: another
    /// writer came first.
    pub(super) async fn patch_managed_fields(
        &self,
        manager: &str,
        patch: json_patch::Patch,
    ) -> Result<ObjectMeta, CallError> {
        let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let patch = Patch::<Value>::Json(patch);
        let mut error = match self.api().patch_metadata(&self.identity.name, &params, &patch).await {
            Ok(patched) => return Ok(patched.metadata),
            Err(error) => self.error(Action::Patch, error),
        };
        if matches!(error.failure, Failure::Refused(_)) {
            error.failure = Failure::Conflict;
        }
        Err(error)
    }
}

/// Precondition of a request: the object that it may change.
#[derive(Clone, Copy)]
pub(super) enum Precondition<'a> {
    /// Only the object with this uid.
    Uid(&'a str),
    /// No existing object: the name was free when it was read.
    New,
    /// No existing object: the request can only create, and an object of that name stays unchanged.
    CreateOnly,
}

impl<'a> Precondition<'a> {
    pub(super) fn of(uid: Option<&'a str>) -> Self {
        uid.map_or(Self::New, Self::Uid)
    }
}

/// Reports whether the object may have changed since it was read: a patch whose test fails is refused without any path.
pub(super) fn may_have_changed(error: &CallError) -> bool {
    match &error.failure {
        Failure::Conflict => true,
        Failure::Refused(paths) => paths.is_empty(),
        _ => false,
    }
}

/// Turns the refusal of a uid into a conflict: the object was deleted and created again meanwhile.
fn uid_refusal_as_conflict(mut error: CallError) -> CallError {
    if let Failure::Immutable(paths) | Failure::Refused(paths) = &error.failure
        && paths.iter().any(|path| path.starts_with("metadata.uid"))
    {
        error.failure = Failure::Conflict;
    }
    error
}
