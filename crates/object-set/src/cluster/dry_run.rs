//! Changes that an apply or a prune would make, determined by dry runs.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::Value;

use crate::error::{Action, CallError, Failure};
use crate::object::{Identity, Object};
use crate::order;

/// Collects the objects that would be sent, and their state afterwards. For [`crate::Cluster::dry_run`].
#[derive(Debug, Default)]
pub struct DryRun {
    state: Mutex<DryRunState>,
}

#[derive(Debug, Default)]
struct DryRunState {
    objects: BTreeMap<Identity, ObjectDiff>,
    namespaces: BTreeSet<String>,
    /// Objects that would get this owner's marks, with the metadata after that.
    marked: BTreeMap<Identity, ObjectMeta>,
}

/// An object that would be sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectDiff {
    /// Live object; `None` if it does not exist.
    pub before: Option<Value>,
    /// Object after the change: the response to the dry run, or the object to send if no dry run was
    /// possible.
    pub after: Value,
    /// Reason for which no dry run was possible; `None` if there was one.
    pub no_dry_run: Option<NoDryRunReason>,
    /// Whether fields that other tools applied would move to the operator's field manager first. The apply then
    /// removes those that the set lacks, which no dry run shows.
    pub takes_over: bool,
}

/// Reason for which no dry run of an object was possible. A real apply may succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoDryRunReason {
    /// Its Namespace is created by the same set.
    Namespace(String),
    /// Its kind is defined by a CRD of the same set.
    Kind,
    /// An immutable field would change: the object would be deleted and created again.
    Recreation,
    /// A webhook has side effects, so API servers refuse dry runs; its name.
    Webhook(String),
    /// Some of its fields were written in a removed API version, which an apply corrects first.
    Version(String),
}

/// Metadata that only API servers write.
const API_SERVER_METADATA: [&str; 8] = [
    "managedFields",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "uid",
    "selfLink",
];

impl ObjectDiff {
    /// Reports whether the object would change, apart from status and metadata of the API server.
    pub fn changes(&self) -> bool {
        self.takes_over
            || matches!(self.no_dry_run, Some(NoDryRunReason::Webhook(_)))
            || self.before.as_ref().map(content) != Some(content(&self.after))
    }
}

/// Returns an object without its status and the metadata that API servers write, for comparisons.
pub fn content(object: &Value) -> Value {
    let mut content = object.clone();
    if let Value::Object(body) = &mut content {
        body.remove("status");
        if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
            metadata.retain(|key, _| !API_SERVER_METADATA.contains(&key.as_str()));
        }
    }
    content
}

impl std::fmt::Display for NoDryRunReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "namespace {name} does not exist yet"),
            Self::Kind => f.write_str("its kind does not exist yet"),
            Self::Recreation => f.write_str("it would be deleted and recreated"),
            Self::Webhook(name) => write!(f, "webhook {name} does not support dry runs"),
            Self::Version(version) => {
                write!(f, "its managedFields have version {version}, which is no longer served")
            }
        }
    }
}

impl DryRun {
    /// Adds a Namespace that would be created: objects in it are not refused because it is missing.
    pub fn add_namespace(&self, namespace: &str) {
        self.state.lock().namespaces.insert(namespace.to_owned());
    }

    /// Returns the changes in the order in which they would be sent.
    pub fn diffs(&self) -> Vec<(Identity, ObjectDiff)> {
        let state = self.state.lock();
        let mut diffs: Vec<_> =
            state.objects.iter().map(|(identity, one)| (identity.clone(), one.clone())).collect();
        diffs.sort_by_cached_key(|(identity, _)| order::stage(&identity.group_kind()));
        diffs
    }

    /// Sends a server-side apply as a dry run and records the result.
    pub(crate) async fn patch(
        &self,
        api: &Api<DynamicObject>,
        identity: &Identity,
        params: &PatchParams,
        patch: &Patch<&Value>,
    ) -> Result<DynamicObject, CallError> {
        let failed = |action, error| CallError::new(action, Some(identity), error);
        let before = api.get_opt(&identity.name).await.map_err(|error| failed(Action::Get, error))?;
        let params = PatchParams { dry_run: true, ..params.clone() };
        let answer = api.patch(&identity.name, &params, patch).await;
        let after = answer.map_err(|error| failed(Action::Apply, error))?;
        self.record(identity, |one| {
            one.before = before.and_then(|before| serde_json::to_value(before).ok());
            one.after = serde_json::to_value(&after).unwrap_or_default();
        });
        Ok(after)
    }

    /// Records an object that would get this owner's marks.
    pub(crate) fn record_marks(&self, identity: &Identity, marked: ObjectMeta) {
        self.state.lock().marked.insert(identity.clone(), marked);
    }

    /// Returns the metadata of an object that would get this owner's marks; `None` if they would not change.
    pub(crate) fn marked_metadata(&self, identity: &Identity) -> Option<ObjectMeta> {
        self.state.lock().marked.get(identity).cloned()
    }

    /// Records an object that would be created.
    pub(crate) fn record_creation(&self, identity: &Identity, after: Value) {
        self.record(identity, |one| one.after = after);
    }

    /// Records that fields of other tools would move to the operator's field manager.
    pub(crate) fn record_take_over(&self, identity: &Identity) {
        self.record(identity, |one| one.takes_over = true);
    }

    /// Returns the reason for which a failed dry run does not count; `None` if it counts. `is_new`: whether a CRD of
    /// the set defines the kind.
    pub(crate) fn no_dry_run_reason(&self, error: &CallError, is_new: bool) -> Option<NoDryRunReason> {
        match &error.failure {
            Failure::NamespaceMissing(name) if self.state.lock().namespaces.contains(name) => {
                Some(NoDryRunReason::Namespace(name.clone()))
            }
            Failure::NoDryRun(webhook) => Some(NoDryRunReason::Webhook(webhook.clone())),
            Failure::VersionGone(version) => Some(NoDryRunReason::Version(version.clone())),
            Failure::NotFound | Failure::NotServedYet if is_new => Some(NoDryRunReason::Kind),
            _ => None,
        }
    }

    /// Records an object that would be sent, for which no dry run was possible.
    pub(crate) fn record_without_dry_run(
        &self,
        object: &Object,
        before: Option<DynamicObject>,
        why: NoDryRunReason,
    ) {
        self.record(&object.identity(), |one| {
            one.before = before.and_then(|before| serde_json::to_value(before).ok());
            one.after = Value::Object(object.body().clone());
            one.no_dry_run = Some(why);
        });
    }

    fn record(&self, identity: &Identity, change: impl FnOnce(&mut ObjectDiff)) {
        change(self.state.lock().objects.entry(identity.clone()).or_default());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_of_the_api_server_are_no_change() {
        let object = |value: &str, version: &str| {
            json!({"metadata": {"name": "a", "uid": version, "resourceVersion": version, "generation": version,
                "managedFields": [version]}, "spec": value, "status": version})
        };
        let diff =
            |before: Option<Value>, after: Value| ObjectDiff { before, after, ..ObjectDiff::default() };
        assert!(!diff(Some(object("s", "1")), object("s", "2")).changes());
        assert!(diff(Some(object("s", "1")), object("t", "1")).changes());
        assert!(diff(None, object("s", "1")).changes());
        let same = || diff(Some(object("s", "1")), object("s", "2"));
        assert!(ObjectDiff { takes_over: true, ..same() }.changes());
        let webhook = NoDryRunReason::Webhook("w".to_owned());
        assert!(
            ObjectDiff { no_dry_run: Some(webhook), ..same() }.changes(),
            "whether it changes is unknown"
        );
    }

    #[test]
    fn a_failure_counts_unless_the_set_creates_the_missing_object() {
        let failed = |code: u16, message: &str| {
            let status = kube::core::Status { code, ..kube::core::Status::failure(message, "") };
            let object = Identity::new("", "ConfigMap", Some("new"), "a");
            CallError::new(Action::Apply, Some(&object), kube::Error::Api(status.boxed()))
        };
        let dry_run = DryRun::default();
        let mut missing = failed(404, "namespace");
        missing.failure = Failure::NamespaceMissing("new".to_owned());
        assert_eq!(dry_run.no_dry_run_reason(&missing, false), None);
        dry_run.add_namespace("new");
        assert_eq!(
            dry_run.no_dry_run_reason(&missing, false),
            Some(NoDryRunReason::Namespace("new".to_owned()))
        );
        assert_eq!(dry_run.no_dry_run_reason(&failed(404, "gone"), false), None);
        assert_eq!(dry_run.no_dry_run_reason(&failed(404, "gone"), true), Some(NoDryRunReason::Kind));
        assert_eq!(dry_run.no_dry_run_reason(&failed(403, "no"), true), None);
        let gone = failed(500, "request to convert CR to an invalid group/version: g/v1beta1");
        assert_eq!(
            dry_run.no_dry_run_reason(&gone, false),
            Some(NoDryRunReason::Version("g/v1beta1".to_owned()))
        );
    }
}
