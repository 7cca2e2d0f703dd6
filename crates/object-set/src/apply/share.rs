//! An owner's share in an object that several owners use: a label, applied by a field manager of that owner
//! alone, so that owners neither see nor undo each other's.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PatchParams;
use serde_json::{Map, Value, json};

use super::target_object::TargetObject;
use crate::error::{CallError, Failure};
use crate::object::map_at;
use crate::ownership::Ownership;

/// Labels and annotations that go with a share.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    pub(super) labels: Map<String, Value>,
    pub(super) annotations: Map<String, Value>,
}

impl Share {
    /// Marks an owner's share under a field manager of its own. Values that another manager set differently stay
    /// unchanged.
    pub(super) async fn mark(
        mut self,
        target: &TargetObject<'_>,
        uid: &str,
        owner: &str,
        manager: &str,
    ) -> Result<ObjectMeta, CallError> {
        self.labels.insert(Ownership::share_label(owner), "".into());
        let params = PatchParams::apply(manager);
        let first = target.apply(&params, &self.body(target, uid)).await;
        match first {
            Err(error) if error.failure == Failure::Conflict && self.give_way(&error) => {
                target.apply(&params, &self.body(target, uid)).await
            }
            other => other,
        }
    }

    /// Drops fields that conflict with other managers. Returns whether there were any.
    fn give_way(&mut self, error: &CallError) -> bool {
        let kube::Error::Api(status) = error.cause() else { return false };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let mut dropped = false;
        for cause in causes.filter(|cause| cause.reason == "FieldManagerConflict") {
            if let Some(key) = cause.field.strip_prefix(".metadata.labels.") {
                dropped |= self.labels.remove(key).is_some();
            } else if let Some(key) = cause.field.strip_prefix(".metadata.annotations.") {
                dropped |= self.annotations.remove(key).is_some();
            }
        }
        dropped
    }

    fn body(&self, target: &TargetObject<'_>, uid: &str) -> Value {
        let mut body = json!({
            "apiVersion": target.mapping.resource.api_version,
            "kind": target.identity.kind,
            "metadata": {"name": target.identity.name, "uid": uid},
        });
        if let Value::Object(body) = &mut body {
            let metadata = map_at(body, "metadata");
            metadata.insert("labels".to_owned(), Value::Object(self.labels.clone()));
            if !self.annotations.is_empty() {
                metadata.insert("annotations".to_owned(), Value::Object(self.annotations.clone()));
            }
        }
        body
    }
}
