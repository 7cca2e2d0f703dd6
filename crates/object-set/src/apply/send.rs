//! Sends the apply of one object.

use json_patch::jsonptr::PointerBuf;
use json_patch::{PatchOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, PartialObjectMeta, Patch, PatchParams, ValidationDirective};
use serde_json::Value;

use super::Run;
use super::as_written::{has_fixed_template, leave_out, may_have_changed};
use super::leftovers::{emptied, has_empty, without_defaults, without_nulls, without_storage_request};
use crate::cluster::discovery::{Mapping, serving_pauses};
use crate::error::{Action, CallError, Failure};
use crate::normalise::keyed_lists::take_lists_as_written;
use crate::object::{Identity, Object, map_at};
use crate::order::is_builtin;

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

/// A resourceVersion that no object has: etcd counts revisions from 1, and the first write makes 2. An API server
/// checks it if the object exists, and ignores it if an apply creates the object.
const ABSENT_RESOURCE_VERSION: &str = "1";

impl<'a> Precondition<'a> {
    pub(super) fn of(uid: Option<&'a str>) -> Self {
        uid.map_or(Self::New, Self::Uid)
    }
}

impl Run<'_> {
    /// Sends one object. With a uid, the request changes only that object and creates none; without one, it takes no
    /// field of an object that another manager created meanwhile.
    pub(super) async fn send(
        &self,
        object: &Object,
        identity: &Identity,
        mapping: &Mapping,
        precondition: Precondition<'_>,
    ) -> Result<ObjectMeta, CallError> {
        let mut body = object.body().clone();
        let mut params = PatchParams::apply(&self.options.ownership.manager);
        let lists = take_lists_as_written(&mut body, &identity.group, &identity.kind);
        // A dry run creates nothing, and only compares the lists of an existing object.
        let is_permitted = matches!(precondition, Precondition::Uid(_)) || self.cluster.dry_run.is_none();
        let is_fixed = !lists.is_empty() && has_fixed_template(identity) && is_permitted;
        let fixed = if is_fixed {
            self.ensure_fixed_lists(object, &lists, identity, mapping, precondition).await?
        } else {
            None
        };
        let precondition = fixed.as_deref().map_or(precondition, Precondition::Uid);
        let condition = match precondition {
            Precondition::Uid(uid) => Some(("uid", uid)),
            Precondition::New => None,
            Precondition::CreateOnly => Some(("resourceVersion", ABSENT_RESOURCE_VERSION)),
        };
        if let Some((field, value)) = condition {
            map_at(&mut body, "metadata").insert(field.to_owned(), value.into());
        }
        params.force = matches!(precondition, Precondition::Uid(_));
        params.field_validation =
            Some(if self.options.strict { ValidationDirective::Strict } else { ValidationDirective::Ignore });
        let mut body = Value::Object(body);
        if fixed.is_some() {
            for list in &lists {
                leave_out(&mut body, list);
            }
            return self.send_corrected(identity, mapping, &params, body).await;
        }
        let sent = self.send_corrected(identity, mapping, &params, body).await?;
        if lists.is_empty() || self.cluster.dry_run.is_some() {
            return Ok(sent);
        }
        self.restore_lists(&lists, identity, mapping, sent.uid.as_deref()).await
    }

    /// Sends a server-side apply, and removes fields of earlier applies and defaults that it cannot remove itself. A claim
    /// that another manager enlarged keeps its size.
    async fn send_corrected(
        &self,
        identity: &Identity,
        mapping: &Mapping,
        params: &PatchParams,
        body: Value,
    ) -> Result<ObjectMeta, CallError> {
        if params.force && !is_builtin(&identity.group) && has_empty(&body) && self.cluster.dry_run.is_none()
        {
            self.empty_fields(identity, mapping, &body).await?;
        }
        let error = match self.patch(identity, mapping, params, &body).await {
            Err(error) if matches!(error.failure, Failure::Refused(_)) => error,
            result => return result,
        };
        let refused = error.refused_fields();
        if let Some(corrected) = without_nulls(&body, &refused) {
            return self.patch(identity, mapping, params, &corrected).await;
        }
        if !params.force || !is_builtin(&identity.group) {
            return Err(error);
        }
        let Ok(Some((metadata, live))) = self.read_live(identity, mapping).await else { return Err(error) };
        let manager = &self.options.ownership.manager;
        if let Some(corrected) = without_storage_request(&body, identity, &metadata, manager, &refused) {
            return self.patch(identity, mapping, params, &corrected).await;
        }
        let Some(corrected) = without_defaults(&body, &live, &metadata, manager, &refused) else {
            return Err(error);
        };
        match self.remove_defaults(identity, mapping, &corrected).await {
            Ok(sent) if self.cluster.dry_run.is_some() => return Ok(sent),
            Ok(_) => {}
            Err(left) => return Err(narrow_refusal(error, left)),
        }
        let sent = self.patch(identity, mapping, params, &body).await?;
        // The fields of the patch become those of the apply.
        self.restore_lists(&[], identity, mapping, sent.uid.as_deref()).await
    }

    /// Sends an object in which defaults are null as a strategic merge patch: an apply with null keeps maps with entries.
    async fn remove_defaults(
        &self,
        identity: &Identity,
        mapping: &Mapping,
        corrected: &Value,
    ) -> Result<ObjectMeta, CallError> {
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        let manager = self.options.ownership.lists_manager();
        let params = PatchParams { field_manager: Some(manager), ..PatchParams::default() };
        let patch = Patch::Strategic(corrected);
        if let Some(dry_run) = &self.cluster.dry_run {
            return Ok(dry_run.patch(&api, identity, &params, &patch).await?.metadata);
        }
        let sent = api.patch_metadata(&identity.name, &params, &patch).await;
        sent.map(|found| found.metadata).map_err(|error| CallError::new(Action::Patch, Some(identity), error))
    }

    /// Empties maps and lists of a custom resource that are desired empty. If an apply removes their last entry, API
    /// servers set them to null, which schemas refuse or which has another meaning.
    async fn empty_fields(
        &self,
        identity: &Identity,
        mapping: &Mapping,
        body: &Value,
    ) -> Result<(), CallError> {
        let Some((metadata, live)) = self.read_live(identity, mapping).await? else { return Ok(()) };
        let manager = &self.options.ownership.manager;
        let changes = emptied(body, &live, &metadata, manager);
        let is_same_object = body.pointer("/metadata/uid") == live.pointer("/metadata/uid");
        if changes.is_empty() || !is_same_object {
            return Ok(());
        }
        let version = metadata.resource_version.unwrap_or_default();
        let field = PointerBuf::from_tokens(["metadata", "resourceVersion"]);
        let test = PatchOperation::Test(TestOperation { path: field, value: version.clone().into() });
        let patch = json_patch::Patch([vec![test], changes].concat());
        let params = PatchParams { field_manager: Some(manager.clone()), ..PatchParams::default() };
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        let sent = api.patch_metadata(&identity.name, &params, &Patch::<Value>::Json(patch)).await;
        let Err(error) = sent else { return Ok(()) };
        let mut error = CallError::new(Action::Apply, Some(identity), error);
        if may_have_changed(&error) {
            let now = self.read_live(identity, mapping).await?;
            if now.is_none_or(|(now, _)| now.resource_version.as_ref() != Some(&version)) {
                error.failure = Failure::Conflict;
            }
        }
        Err(error)
    }

    /// Reads the live object.
    pub(super) async fn read_live(
        &self,
        identity: &Identity,
        mapping: &Mapping,
    ) -> Result<Option<(ObjectMeta, Value)>, CallError> {
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        let found = api.get_opt(&identity.name).await;
        let found = found.map_err(|error| CallError::new(Action::Get, Some(identity), error))?;
        Ok(found.map(|found| (found.metadata.clone(), serde_json::to_value(found).unwrap_or_default())))
    }

    /// Sends a server-side apply. Retries if the kind's CRD was just established and is not served yet.
    pub(super) async fn patch(
        &self,
        identity: &Identity,
        mapping: &Mapping,
        params: &PatchParams,
        body: &Value,
    ) -> Result<ObjectMeta, CallError> {
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        let patch = Patch::Apply(body);
        if let Some(dry_run) = &self.cluster.dry_run {
            return Ok(dry_run.patch(&api, identity, params, &patch).await?.metadata);
        }
        let mut pauses = serving_pauses();
        loop {
            let answer: kube::Result<PartialObjectMeta<DynamicObject>> =
                api.patch_metadata(&identity.name, params, &patch).await;
            let mut error = match answer {
                Ok(found) => return Ok(found.metadata),
                Err(error) => uid_refusal_as_conflict(CallError::new(Action::Apply, Some(identity), error)),
            };
            if !(error.is_missing_kind() && self.is_new(mapping)) {
                return Err(error);
            }
            error.failure = Failure::NotServedYet;
            let Some(pause) = pauses.next() else { return Err(error) };
            // No event announces that the API server serves a kind whose CRD was just established.
            tokio::time::sleep(pause).await;
        }
    }
}

/// Returns the refusal that remains without defaults, if its paths are among those of the first refusal: the others were
/// the defaults, which are no cause. Otherwise the first refusal; but the failure of the second call if that is none,
/// since it leaves open whether defaults were the only cause.
fn narrow_refusal(first: CallError, mut left: CallError) -> CallError {
    if !matches!(left.failure, Failure::Refused(_) | Failure::Immutable(_)) {
        return left;
    }
    let (all, paths) = (first.refused_fields(), left.refused_fields());
    if !paths.is_empty() && paths.iter().all(|path| all.contains(path)) {
        left.action = first.action;
        return left;
    }
    first
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

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_causes_that_remain_without_defaults_are_named() {
        let answer = |action: Action, fields: &[&str], message: &str| {
            let cause =
                |field: &&str| json!({"reason": "FieldValueInvalid", "message": message, "field": field});
            let causes: Vec<Value> = fields.iter().map(cause).collect();
            let status =
                json!({"code": 422, "message": "", "reason": "Invalid", "details": {"causes": causes}});
            let status: Status = serde_json::from_value(status).unwrap();
            CallError::new(action, None, kube::Error::Api(status.boxed()))
        };
        let refused = |action: Action, fields: &[&str]| answer(action, fields, "");
        let first = || refused(Action::Apply, &["spec.strategy.rollingUpdate", "spec.replicas"]);
        let named = |left: CallError| {
            let error = narrow_refusal(first(), left);
            assert_eq!(error.action, Action::Apply);
            error.refused_fields()
        };
        assert_eq!(named(refused(Action::Patch, &["spec.replicas"])), ["spec.replicas"]);
        let fixed = answer(Action::Patch, &["spec.replicas"], "Invalid value: 1: field is immutable");
        assert_eq!(
            narrow_refusal(first(), fixed).failure,
            Failure::Immutable(vec!["spec.replicas".to_owned()])
        );
        let others: [&[&str]; 3] = [&[], &["spec.other"], &["spec.replicas", "spec.other"]];
        for other in others {
            assert_eq!(named(refused(Action::Patch, other)), first().refused_fields(), "{other:?}");
        }
        let status: Status =
            serde_json::from_value(json!({"code": 429, "message": "", "reason": "TooManyRequests"})).unwrap();
        let busy = || CallError::new(Action::Patch, None, kube::Error::Api(status.clone().boxed()));
        assert_eq!(
            narrow_refusal(first(), busy()).failure,
            busy().failure,
            "an overloaded server refuses nothing"
        );
    }
}
