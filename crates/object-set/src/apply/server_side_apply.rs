//! Sends the server-side apply of one object.

use json_patch::jsonptr::PointerBuf;
use json_patch::{PatchOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, ValidationDirective};
use serde_json::Value;

use super::context::DesiredObject;
use super::target_object::{Precondition, TargetObject, may_have_changed};
use crate::error::{Action, CallError, Failure};
use crate::normalise::keyed_lists::{ListAsWritten, take_lists_as_written};
use crate::object::{Object, map_at};
use crate::order::is_builtin;
use crate::ownership::Ownership;

mod leftovers;
mod lists;

use leftovers::{emptied, has_empty, without_defaults, without_nulls, without_storage_request};
use lists::{ListRestoration, has_fixed_template, leave_out};

/// A resourceVersion that no object has: etcd counts revisions from 1, and the first write makes 2. An API server
/// checks it if the object exists, and ignores it if an apply creates the object.
const ABSENT_RESOURCE_VERSION: &str = "1";

/// Server-side apply of one object by the operator's field manager.
#[derive(Clone, Copy)]
pub(super) struct ServerSideApply<'a> {
    target: TargetObject<'a>,
    ownership: &'a Ownership,
    /// Whether unknown and duplicate fields are errors.
    strict: bool,
}

impl<'a> ServerSideApply<'a> {
    pub(super) fn of(desired: &DesiredObject<'a>) -> Self {
        Self { target: desired.target, ownership: desired.options.ownership, strict: desired.options.strict }
    }

    /// Sends one object. With a uid, the request changes only that object and creates none; without one, it takes no
    /// field of an object that another manager created meanwhile.
    pub(super) async fn send(
        &self,
        object: &Object,
        precondition: Precondition<'_>,
    ) -> Result<ObjectMeta, CallError> {
        let mut body = object.body().clone();
        let identity = self.target.identity;
        let mut params = PatchParams::apply(&self.ownership.manager);
        let lists = take_lists_as_written(&mut body, &identity.group, &identity.kind);
        let restoration = self.restoration(&lists);
        // A dry run creates nothing, and only compares the lists of an existing object.
        let is_permitted = matches!(precondition, Precondition::Uid(_)) || !self.target.is_dry_run();
        let is_fixed = !lists.is_empty() && has_fixed_template(identity) && is_permitted;
        let fixed = if is_fixed { restoration.ensure(object, precondition).await? } else { None };
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
            Some(if self.strict { ValidationDirective::Strict } else { ValidationDirective::Ignore });
        let mut body = Value::Object(body);
        if fixed.is_some() {
            for list in &lists {
                leave_out(&mut body, list);
            }
            return self.send_corrected(&params, body).await;
        }
        let sent = self.send_corrected(&params, body).await?;
        if lists.is_empty() || self.target.is_dry_run() {
            return Ok(sent);
        }
        restoration.restore(sent.uid.as_deref()).await
    }

    fn restoration<'l>(&'l self, lists: &'l [ListAsWritten]) -> ListRestoration<'l> {
        ListRestoration { lists, target: self.target, ownership: self.ownership }
    }

    /// Sends a server-side apply, and removes fields of earlier applies and defaults that it cannot remove itself. A claim
    /// that another manager enlarged keeps its size.
    async fn send_corrected(&self, params: &PatchParams, body: Value) -> Result<ObjectMeta, CallError> {
        let target = self.target;
        let identity = target.identity;
        if params.force && !is_builtin(&identity.group) && has_empty(&body) && !target.is_dry_run() {
            self.empty_fields(&body).await?;
        }
        let error = match target.apply(params, &body).await {
            Err(error) if matches!(error.failure, Failure::Refused(_)) => error,
            result => return result,
        };
        let refused = error.refused_fields();
        if let Some(corrected) = without_nulls(&body, &refused) {
            return target.apply(params, &corrected).await;
        }
        if !params.force || !is_builtin(&identity.group) {
            return Err(error);
        }
        let Ok(Some((metadata, live))) = target.read().await else { return Err(error) };
        let manager = &self.ownership.manager;
        if let Some(corrected) = without_storage_request(&body, identity, &metadata, manager, &refused) {
            return target.apply(params, &corrected).await;
        }
        let Some(corrected) = without_defaults(&body, &live, &metadata, manager, &refused) else {
            return Err(error);
        };
        match self.remove_defaults(&corrected).await {
            Ok(sent) if target.is_dry_run() => return Ok(sent),
            Ok(_) => {}
            Err(left) => return Err(narrow_refusal(error, left)),
        }
        let sent = target.apply(params, &body).await?;
        // The fields of the patch become those of the apply.
        self.restoration(&[]).restore(sent.uid.as_deref()).await
    }

    /// Sends an object in which defaults are null as a strategic merge patch: an apply with null keeps maps with entries.
    async fn remove_defaults(&self, corrected: &Value) -> Result<ObjectMeta, CallError> {
        let TargetObject { cluster, identity, .. } = self.target;
        let api = self.target.api();
        let manager = self.ownership.lists_manager();
        let params = PatchParams { field_manager: Some(manager), ..PatchParams::default() };
        let patch = Patch::Strategic(corrected);
        if let Some(dry_run) = &cluster.dry_run {
            return Ok(dry_run.patch(&api, identity, &params, &patch).await?.metadata);
        }
        let sent = api.patch_metadata(&identity.name, &params, &patch).await;
        sent.map(|found| found.metadata).map_err(|error| self.target.error(Action::Patch, error))
    }

    /// Empties maps and lists of a custom resource that are desired empty. If an apply removes their last entry, API
    /// servers set them to null, which schemas refuse or which has another meaning.
    async fn empty_fields(&self, body: &Value) -> Result<(), CallError> {
        let target = self.target;
        let Some((metadata, live)) = target.read().await? else { return Ok(()) };
        let manager = &self.ownership.manager;
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
        let patch = Patch::<Value>::Json(patch);
        let sent = target.api().patch_metadata(&target.identity.name, &params, &patch).await;
        let Err(error) = sent else { return Ok(()) };
        let mut error = target.error(Action::Apply, error);
        if may_have_changed(&error) {
            let now = target.read().await?;
            if now.is_none_or(|(now, _)| now.resource_version.as_ref() != Some(&version)) {
                error.failure = Failure::Conflict;
            }
        }
        Err(error)
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
