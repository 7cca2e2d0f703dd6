//! The delete gate: the only code of the operators that sends a DELETE.
//!
//! It refuses while a Pause is in force or the brake stops deletions, if the requester has no entry in the object's
//! `managedFields`, and if the kind needs a proof that is missing ([`DeleteProof`]). The uid is sent as a
//! precondition, so the API server refuses if the object was replaced.

use kube::api::{ApiResource, DeleteParams, DynamicObject, ObjectMeta, Preconditions, PropagationPolicy};
use kube::{Api, Client};
use kyma_api::{DeleteProof, Reason, names};
use kyma_targets::{STAMP_NAME, STAMP_NAMESPACE};

use crate::calls::objects::is_absent;
use crate::deletion::brake::Brake;
use crate::failure::Failure;
use crate::pauses::PausedOperations;

/// Helm's annotation on the objects of hooks.
const HELM_HOOK: &str = "helm.sh/hook";

/// Proof on an object that the requester may delete it.
#[derive(Clone, Copy, Debug)]
pub enum Authorship<'a> {
    /// One of these field managers has an entry in `metadata.managedFields` that is not about a subresource.
    Managers(&'a [&'a str]),
    /// Helm created the object for a hook of the release that the requester continues: it carries Helm's annotation.
    HelmHook,
}

/// One object to delete.
#[derive(Clone, Debug)]
pub struct DeleteRequest<'a> {
    /// Kind and API version.
    pub resource: &'a ApiResource,
    /// Metadata of the live object: name, namespace, uid and `managedFields` are required.
    pub live: &'a ObjectMeta,
    /// Proof that the requester may delete the object.
    pub authorship: Authorship<'a>,
    /// Proof for kinds that hold data or other objects.
    pub proof: DeleteProof,
    /// Propagation to dependents.
    pub propagation: PropagationPolicy,
}

impl<'a> DeleteRequest<'a> {
    /// Returns a request without proof, which deletes dependents in the background.
    ///
    /// ```
    /// use kube::api::{ApiResource, ObjectMeta};
    /// use kyma_api::DeleteProof;
    /// use kyma_controller::DeleteRequest;
    ///
    /// fn of_empty_crd<'a>(crd: &'a ApiResource, live: &'a ObjectMeta, managers: &'a [&'a str]) -> DeleteRequest<'a> {
    ///     let resource_version = live.resource_version.clone().unwrap_or_default();
    ///     DeleteRequest::new(crd, live, managers).proven(DeleteProof::CreatedAndEmpty { resource_version })
    /// }
    /// ```
    pub fn new(resource: &'a ApiResource, live: &'a ObjectMeta, managers: &'a [&'a str]) -> Self {
        Self {
            resource,
            live,
            authorship: Authorship::Managers(managers),
            proof: DeleteProof::None,
            propagation: PropagationPolicy::Background,
        }
    }

    /// Returns the same request with a proof.
    #[must_use]
    pub fn proven(self, proof: DeleteProof) -> Self {
        Self { proof, ..self }
    }

    fn name(&self) -> &'a str {
        self.live.name.as_deref().unwrap_or_default()
    }

    fn describe(&self) -> String {
        match &self.live.namespace {
            Some(namespace) => format!("{} {namespace}/{}", self.resource.kind, self.name()),
            None => format!("{} {}", self.resource.kind, self.name()),
        }
    }

    /// Returns why the object itself forbids its deletion. Pure.
    fn refusal(&self, deletes_operator_namespace: bool) -> Option<Failure> {
        let refused =
            |why: &str| Some(Failure::new(Reason::DeletionRefused, format!("{}: {why}", self.describe())));
        if self.live.uid.as_deref().unwrap_or_default().is_empty() || self.name().is_empty() {
            return refused(
                "it has no uid, so it cannot be distinguished from another object of its name; not deleted",
            );
        }
        if !self.is_authored() {
            return refused("its managedFields do not show that this operator wrote it; delete it by hand");
        }
        let is_permitted = deletes_operator_namespace && self.name() == STAMP_NAMESPACE;
        if is_system_namespace(self.resource, self.name()) && !is_permitted {
            return refused("a Namespace of the cluster is never deleted");
        }
        let why = self.proof.refusal(&self.resource.group, &self.resource.kind)?;
        refused(&format!("{why}; delete it by hand"))
    }

    fn is_authored(&self) -> bool {
        match self.authorship {
            Authorship::Managers(managers) => {
                let entries = self.live.managed_fields.iter().flatten();
                // A manager that writes only a subresource did not create the object.
                let entries =
                    entries.filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty());
                let mut authors = entries.filter_map(|entry| entry.manager.as_deref());
                authors.any(|author| managers.contains(&author))
            }
            Authorship::HelmHook => {
                self.live.annotations.as_ref().is_some_and(|all| all.contains_key(HELM_HOOK))
            }
        }
    }
}

/// Result of a DELETE.
#[derive(Clone, Debug)]
pub enum DeleteOutcome {
    /// The object no longer exists.
    Gone,
    /// Finalizers or dependents delay the deletion; the object as the API server returned it.
    Waiting(Box<DynamicObject>),
}

/// Returns the outcome for the object in the answer to a DELETE. Some kinds, such as ServiceAccounts, are returned
/// although they no longer exist.
fn outcome(answer: Option<DynamicObject>) -> DeleteOutcome {
    let terminating = answer.filter(|object| object.metadata.deletion_timestamp.is_some());
    terminating.map_or(DeleteOutcome::Gone, |object| DeleteOutcome::Waiting(Box::new(object)))
}

/// Error of a deletion.
#[derive(Debug)]
pub enum DeleteError {
    /// The gate refused it.
    Refused(Failure),
    /// The API server refused it or did not answer. A 404 that names the object is [`DeleteOutcome::Gone`], any other
    /// 404 proves nothing.
    Call(kube::Error),
}

impl DeleteError {
    /// Returns the gate's failure, or converts the API error with `classify`.
    pub fn into_failure(self, classify: impl FnOnce(&kube::Error) -> Failure) -> Failure {
        match self {
            Self::Refused(failure) => failure,
            Self::Call(error) => classify(&error),
        }
    }
}

/// Decides on deletions for one reconciled object, and carries them out.
#[derive(Clone, Debug)]
pub struct DeleteGate {
    paused: Option<String>,
    /// Brake and the target's name. `None` if the deletion removes nothing from a target or a user ordered it by a
    /// command.
    brake: Option<(Brake, String)>,
    /// Target namespace of a module: the gate then protects the stamp and the user's Kyma there.
    module: Option<String>,
    /// Whether the operators' Namespace on a target may be deleted, with the proof that every Namespace needs.
    deletes_operator_namespace: bool,
}

impl DeleteGate {
    /// Returns a gate that counts deletions for a target.
    pub fn new(paused_operations: &PausedOperations, brake: &Brake, target: impl Into<String>) -> Self {
        let brake = Some((brake.clone(), target.into()));
        Self {
            paused: paused_operations.deletes().map(ToOwned::to_owned),
            brake,
            module: None,
            deletes_operator_namespace: false,
        }
    }

    /// Returns a gate for deletions that a user orders by a command: the brake does not count them.
    pub fn uncounted(paused_operations: &PausedOperations) -> Self {
        Self {
            paused: paused_operations.deletes().map(ToOwned::to_owned),
            brake: None,
            module: None,
            deletes_operator_namespace: false,
        }
    }

    /// Returns a gate for hub objects whose deletion keeps everything on the target. Only a Pause of all writes stops
    /// it.
    pub fn releasing(paused_operations: &PausedOperations) -> Self {
        Self {
            paused: paused_operations.writes().map(ToOwned::to_owned),
            brake: None,
            module: None,
            deletes_operator_namespace: false,
        }
    }

    /// Returns the gate for the objects of a module: it protects the stamp and the user's Kyma in `target_namespace`.
    #[must_use]
    pub fn for_module(self, target_namespace: &str) -> Self {
        Self { module: Some(target_namespace.to_owned()), ..self }
    }

    /// Returns the gate for a command that removes everything that an earlier one installed: it also deletes the
    /// operators' Namespace on a target, with the proof that every Namespace needs.
    #[must_use]
    pub fn with_operator_namespace(self) -> Self {
        Self { deletes_operator_namespace: true, ..self }
    }

    /// Checks Pauses and counts the target with the brake. Deletes nothing.
    ///
    /// # Errors
    /// `Paused`. `MassDeletion`: the limit of targets with deletions within ten minutes is reached.
    pub async fn permit(&self) -> Result<(), Failure> {
        if let Some(why) = &self.paused {
            return Err(Failure::new(Reason::Paused, why.clone()));
        }
        match &self.brake {
            Some((brake, target)) => brake.permit(target).await,
            None => Ok(()),
        }
    }

    /// Deletes an object if all rules allow it. The request carries the uid, and the resourceVersion if the proof has
    /// one, as preconditions.
    ///
    /// # Errors
    /// [`DeleteError::Refused`] with `Paused`, `MassDeletion`, `DeletionRefused` or `Protected`; otherwise the answer
    /// of the API server, for example 409 if the object was replaced or changed.
    pub async fn carry_out(
        &self,
        client: &Client,
        request: &DeleteRequest<'_>,
    ) -> Result<DeleteOutcome, DeleteError> {
        let refusal = request.refusal(self.deletes_operator_namespace);
        if let Some(refusal) = refusal.or_else(|| self.protects(request)) {
            return Err(DeleteError::Refused(refusal));
        }
        self.permit().await.map_err(DeleteError::Refused)?;
        let api: Api<DynamicObject> = match request.live.namespace.as_deref() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, request.resource),
            None => Api::all_with(client.clone(), request.resource),
        };
        let params = DeleteParams {
            propagation_policy: Some(request.propagation.clone()),
            preconditions: Some(Preconditions {
                uid: request.live.uid.clone(),
                resource_version: request.proof.resource_version().map(ToOwned::to_owned),
            }),
            ..DeleteParams::default()
        };
        match api.delete(request.name(), &params).await {
            Ok(answer) => Ok(outcome(answer.left())),
            Err(error) if is_absent(&api, request.name(), &error) => Ok(DeleteOutcome::Gone),
            Err(error) => Err(DeleteError::Call(error)),
        }
    }

    fn protects(&self, request: &DeleteRequest<'_>) -> Option<Failure> {
        let target_namespace = self.module.as_deref()?;
        let (group, kind) = (request.resource.group.as_str(), request.resource.kind.as_str());
        let namespace = request.live.namespace.as_deref();
        let is_protected = match (group, kind) {
            ("", "ConfigMap") => request.name() == STAMP_NAME && namespace == Some(STAMP_NAMESPACE),
            ("operator.kyma-project.io", "Kyma") => {
                request.name() == names::TARGET_KYMA && namespace == Some(target_namespace)
            }
            _ => false,
        };
        let message = || format!("{}: no module may delete it", request.describe());
        is_protected.then(|| Failure::new(Reason::Protected, message()))
    }
}

fn is_system_namespace(resource: &ApiResource, name: &str) -> bool {
    resource.group.is_empty()
        && resource.kind == "Namespace"
        && (name == "default" || name == STAMP_NAMESPACE || name.starts_with("kube-"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Bytes;
    use axum::{Json, Router};
    use kube::core::GroupVersionKind;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;

    fn kind(group: &str, kind: &str) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
    }

    fn live(changes: &Value) -> ObjectMeta {
        let mut live = json!({"name": "a", "uid": "u", "resourceVersion": "7",
            "managedFields": [{"manager": "mine", "operation": "Apply"}]});
        for (field, value) in changes.as_object().unwrap() {
            live[field] = value.clone();
        }
        serde_json::from_value(live).unwrap()
    }

    fn refusal(resource: &ApiResource, live: &ObjectMeta, proof: DeleteProof) -> Option<Reason> {
        let request = DeleteRequest::new(resource, live, &["mine"]).proven(proof);
        request.refusal(false).map(|failure| failure.reason)
    }

    #[test]
    fn an_object_without_deletion_timestamp_in_the_answer_is_gone() {
        let object = |meta: Value| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta,
            }))
            .unwrap()
        };
        let waits = json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert!(matches!(outcome(None), DeleteOutcome::Gone));
        assert!(matches!(outcome(Some(object(json!({"name": "a"})))), DeleteOutcome::Gone));
        assert!(matches!(outcome(Some(object(waits))), DeleteOutcome::Waiting(_)));
    }

    #[test]
    fn an_object_without_uid_or_entry_of_the_requester_is_refused() {
        let map = kind("", "ConfigMap");
        assert_eq!(refusal(&map, &live(&json!({})), DeleteProof::None), None);
        let refused = Some(Reason::DeletionRefused);
        for changes in [
            json!({"uid": null}),
            json!({"uid": ""}),
            json!({"managedFields": null}),
            json!({"managedFields": [{"manager": "kubectl", "operation": "Update"}]}),
        ] {
            assert_eq!(refusal(&map, &live(&changes), DeleteProof::None), refused, "{changes}");
        }
    }

    #[test]
    fn an_entry_of_a_subresource_does_not_show_authorship() {
        let map = kind("", "ConfigMap");
        let status = json!({"manager": "mine", "operation": "Apply", "subresource": "status"});
        let only_status = live(&json!({"managedFields": [status]}));
        assert_eq!(refusal(&map, &only_status, DeleteProof::None), Some(Reason::DeletionRefused));
        let object = json!({"manager": "mine", "operation": "Apply"});
        let both = live(&json!({"managedFields": [status, object]}));
        assert_eq!(refusal(&map, &both, DeleteProof::None), None);
    }

    #[test]
    fn kinds_that_hold_data_or_objects_need_a_proof() {
        let empty = DeleteProof::CreatedAndEmpty { resource_version: "7".to_owned() };
        let (namespace, claim) = (kind("", "Namespace"), kind("", "PersistentVolumeClaim"));
        let crd = kind("apiextensions.k8s.io", "CustomResourceDefinition");
        let refused = Some(Reason::DeletionRefused);
        for resource in [&namespace, &crd, &claim] {
            assert_eq!(refusal(resource, &live(&json!({})), DeleteProof::None), refused, "{}", resource.kind);
        }
        assert_eq!(refusal(&namespace, &live(&json!({})), empty.clone()), None);
        for name in ["default", "kube-system", "kyma-system"] {
            assert_eq!(refusal(&namespace, &live(&json!({"name": name})), empty.clone()), refused, "{name}");
        }
        assert_eq!(refusal(&claim, &live(&json!({})), empty), refused);
        assert_eq!(refusal(&claim, &live(&json!({})), DeleteProof::SameRun), None);
    }

    #[test]
    fn only_full_removal_deletes_the_empty_operator_namespace() {
        let namespaces = kind("", "Namespace");
        let empty = DeleteProof::CreatedAndEmpty { resource_version: "7".to_owned() };
        let is_refused = |name: &str, proof: DeleteProof, whole: bool| {
            let live = live(&json!({"name": name}));
            DeleteRequest::new(&namespaces, &live, &["mine"]).proven(proof).refusal(whole).is_some()
        };
        assert!(!is_refused(STAMP_NAMESPACE, empty.clone(), true));
        assert!(is_refused(STAMP_NAMESPACE, empty.clone(), false));
        assert!(is_refused(STAMP_NAMESPACE, DeleteProof::None, true));
        assert!(is_refused("kube-system", empty.clone(), true) && is_refused("default", empty, true));
    }

    /// The preconditions of the DELETE that is sent for a CRD with this proof.
    async fn preconditions(proof: DeleteProof) -> Value {
        let sent = Arc::new(Mutex::new(Value::Null));
        let received = Arc::clone(&sent);
        let answer = move |body: Bytes| {
            let body: Value = serde_json::from_slice(&body).unwrap();
            *received.lock() = body["preconditions"].clone();
            let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "code": 200,
                "status": "Success"});
            async move { Json(status) }
        };
        let server: Router = Router::new().fallback(answer);
        let (crds, live) = (kind("apiextensions.k8s.io", "CustomResourceDefinition"), live(&json!({})));
        let request = DeleteRequest::new(&crds, &live, &["mine"]).proven(proof);
        let gate = DeleteGate::uncounted(&PausedOperations::default());
        assert!(gate.carry_out(&Client::new(server, "default"), &request).await.is_ok());
        sent.lock().clone()
    }

    #[tokio::test]
    async fn a_crd_is_deleted_only_at_the_version_that_was_proven_empty() {
        // The version of the proof counts, not that of the object that was read before it.
        let proof = DeleteProof::CreatedAndEmpty { resource_version: "9".to_owned() };
        assert_eq!(preconditions(proof).await, json!({"uid": "u", "resourceVersion": "9"}));
    }

    #[test]
    fn hooks_of_helm_are_known_by_their_annotation() {
        let job = kind("batch", "Job");
        let of_helm = |live: &ObjectMeta| {
            let request =
                DeleteRequest { authorship: Authorship::HelmHook, ..DeleteRequest::new(&job, live, &[]) };
            request.refusal(false).is_none()
        };
        assert!(of_helm(&live(&json!({"annotations": {HELM_HOOK: "pre-upgrade"}}))));
        assert!(!of_helm(&live(&json!({}))));
    }

    #[test]
    fn a_module_deletes_neither_the_stamp_nor_the_users_kyma() {
        let gate = DeleteGate::uncounted(&PausedOperations::default()).for_module("modules");
        let stamp = live(&json!({"name": STAMP_NAME, "namespace": STAMP_NAMESPACE}));
        let kyma = live(&json!({"name": names::TARGET_KYMA, "namespace": "modules"}));
        let other = live(&json!({"name": names::TARGET_KYMA, "namespace": "elsewhere"}));
        let is_protected = |resource: &ApiResource, live: &ObjectMeta| {
            gate.protects(&DeleteRequest::new(resource, live, &["mine"])).is_some()
        };
        let kymas = kind("operator.kyma-project.io", "Kyma");
        assert!(is_protected(&kind("", "ConfigMap"), &stamp) && is_protected(&kymas, &kyma));
        assert!(!is_protected(&kymas, &other) && !is_protected(&kind("", "Secret"), &stamp));
    }
}
