//! Changes that an apply or a prune would make, determined by dry runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::Value;

use crate::error::{Action, CallError, Failure};
use crate::object::{Identity, Object};
use crate::order;

/// Collects the objects that would be sent, and their state afterwards. For [`crate::Cluster::rehearsal`].
#[derive(Debug, Default)]
pub struct Rehearsal {
    held: Mutex<RehearsalState>,
}

#[derive(Debug, Default)]
struct RehearsalState {
    objects: BTreeMap<Identity, Rehearsed>,
    namespaces: BTreeSet<String>,
    /// Objects that would get this owner's marks, with the metadata after that.
    claimed: BTreeMap<Identity, ObjectMeta>,
}

/// An object that would be sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rehearsed {
    /// Live object; `None` if it does not exist.
    pub before: Option<Value>,
    /// Object after the change: the API server's answer to the dry run, or the object to send if no dry run was
    /// possible.
    pub after: Value,
    /// Why no dry run was possible; `None` if there was one.
    pub untried: Option<Untried>,
    /// Whether fields that other tools applied would move to the operator's field manager first. The apply then
    /// removes those that the set lacks, which no dry run shows.
    pub takes_over: bool,
}

/// Why no dry run of an object was possible, although nothing shows that it would be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Untried {
    /// Its Namespace is created by the same set.
    Namespace(String),
    /// Its kind is defined by a CRD of the same set.
    Kind,
    /// An immutable field would change: the object would be deleted and created again.
    Anew,
    /// A webhook has side effects, so API servers refuse dry runs; its name.
    Webhook(String),
    /// Some of its fields were written in a removed API version, which an apply corrects first.
    Version(String),
}

/// Metadata that only API servers write.
const KEPT: [&str; 8] = [
    "managedFields",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "uid",
    "selfLink",
];

impl Rehearsed {
    /// Reports whether the object would change, apart from status and metadata of the API server.
    pub fn changes(&self) -> bool {
        self.takes_over
            || matches!(self.untried, Some(Untried::Webhook(_)))
            || self.before.as_ref().map(content) != Some(content(&self.after))
    }
}

/// Returns an object without its status and the metadata that API servers write, for comparisons.
pub fn content(object: &Value) -> Value {
    let mut content = object.clone();
    if let Value::Object(body) = &mut content {
        body.remove("status");
        if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
            metadata.retain(|key, _| !KEPT.contains(&key.as_str()));
        }
    }
    content
}

impl std::fmt::Display for Untried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "namespace {name} does not exist yet"),
            Self::Kind => f.write_str("its kind does not exist yet"),
            Self::Anew => f.write_str("it would be deleted and made anew"),
            Self::Webhook(name) => write!(f, "webhook {name} does not support dry runs"),
            Self::Version(version) => write!(f, "its fields are on record in {version}, which is gone"),
        }
    }
}

impl Rehearsal {
    /// Adds a Namespace that would be created: objects in it are not refused because it is missing.
    pub fn brings(&self, namespace: &str) {
        self.held().namespaces.insert(namespace.to_owned());
    }

    /// Returns the changes in the order in which they would be sent.
    pub fn found(&self) -> Vec<(Identity, Rehearsed)> {
        let held = self.held();
        let mut found: Vec<_> =
            held.objects.iter().map(|(identity, one)| (identity.clone(), one.clone())).collect();
        found.sort_by_cached_key(|(identity, _)| order::stage(&identity.group_kind()));
        found
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
        self.note(identity, |one| {
            one.before = before.and_then(|before| serde_json::to_value(before).ok());
            one.after = serde_json::to_value(&after).unwrap_or_default();
        });
        Ok(after)
    }

    /// Records an object that would get this owner's marks.
    pub(crate) fn claims(&self, identity: &Identity, marked: ObjectMeta) {
        self.held().claimed.insert(identity.clone(), marked);
    }

    /// Returns the metadata of an object that would get this owner's marks; `None` if they would not change.
    pub(crate) fn claimed(&self, identity: &Identity) -> Option<ObjectMeta> {
        self.held().claimed.get(identity).cloned()
    }

    /// Records an object that would be created.
    pub(crate) fn created(&self, identity: &Identity, after: Value) {
        self.note(identity, |one| one.after = after);
    }

    /// Records that fields of other tools would move to the operator's field manager.
    pub(crate) fn takes_over(&self, identity: &Identity) {
        self.note(identity, |one| one.takes_over = true);
    }

    /// Returns why a failed dry run does not count; `None` if it does. `is_new`: whether a CRD of the set defines the
    /// kind.
    pub(crate) fn excuse(&self, error: &CallError, is_new: bool) -> Option<Untried> {
        match &error.failure {
            Failure::NamespaceMissing(name) if self.held().namespaces.contains(name) => {
                Some(Untried::Namespace(name.clone()))
            }
            Failure::NoDryRun(webhook) => Some(Untried::Webhook(webhook.clone())),
            Failure::VersionGone(version) => Some(Untried::Version(version.clone())),
            Failure::NotFound | Failure::NotServedYet if is_new => Some(Untried::Kind),
            _ => None,
        }
    }

    /// Records an object that would be sent, for which no dry run was possible.
    pub(crate) fn untried(&self, object: &Object, before: Option<DynamicObject>, why: Untried) {
        self.note(&object.identity(), |one| {
            one.before = before.and_then(|before| serde_json::to_value(before).ok());
            one.after = Value::Object(object.body().clone());
            one.untried = Some(why);
        });
    }

    fn note(&self, identity: &Identity, change: impl FnOnce(&mut Rehearsed)) {
        change(self.held().objects.entry(identity.clone()).or_default());
    }

    fn held(&self) -> MutexGuard<'_, RehearsalState> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_not_the_servers_own_counts_as_a_change() {
        let object = |value: &str, version: &str| {
            json!({"metadata": {"name": "a", "uid": version, "resourceVersion": version, "generation": version,
                "managedFields": [version]}, "spec": value, "status": version})
        };
        let rehearsed =
            |before: Option<Value>, after: Value| Rehearsed { before, after, ..Rehearsed::default() };
        assert!(!rehearsed(Some(object("s", "1")), object("s", "2")).changes());
        assert!(rehearsed(Some(object("s", "1")), object("t", "1")).changes());
        assert!(rehearsed(None, object("s", "1")).changes());
        let same = || rehearsed(Some(object("s", "1")), object("s", "2"));
        assert!(Rehearsed { takes_over: true, ..same() }.changes());
        let webhook = Untried::Webhook("w".to_owned());
        assert!(Rehearsed { untried: Some(webhook), ..same() }.changes(), "it cannot be told");
    }

    #[test]
    fn only_what_the_same_set_brings_excuses_a_failure() {
        let failed = |code: u16, message: &str| {
            let status = kube::core::Status { code, ..kube::core::Status::failure(message, "") };
            let object = Identity::new("", "ConfigMap", Some("new"), "a");
            CallError::new(Action::Apply, Some(&object), kube::Error::Api(status.boxed()))
        };
        let rehearsal = Rehearsal::default();
        let mut missing = failed(404, "namespace");
        missing.failure = Failure::NamespaceMissing("new".to_owned());
        assert_eq!(rehearsal.excuse(&missing, false), None);
        rehearsal.brings("new");
        assert_eq!(rehearsal.excuse(&missing, false), Some(Untried::Namespace("new".to_owned())));
        assert_eq!(rehearsal.excuse(&failed(404, "gone"), false), None);
        assert_eq!(rehearsal.excuse(&failed(404, "gone"), true), Some(Untried::Kind));
        assert_eq!(rehearsal.excuse(&failed(403, "no"), true), None);
        let gone = failed(500, "request to convert CR to an invalid group/version: g/v1beta1");
        assert_eq!(rehearsal.excuse(&gone, false), Some(Untried::Version("g/v1beta1".to_owned())));
    }
}
