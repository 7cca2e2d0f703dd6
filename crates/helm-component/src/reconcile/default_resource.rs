//! The module's default custom resource: created once, and the user's from then on.

use std::sync::Arc;

use kube::api::{DynamicObject, ObjectMeta, PartialObjectMeta};
use kyma_api::{CreatedResource, FreeForm, Reason, ResourcePolicy, labels};
use kyma_controller::default_resource::{had_default_resource, is_created_for};
use kyma_controller::{
    DeleteError, DeleteOutcome, DeleteRequest, Failure, create_new, find_metadata, is_conflict,
    none_if_unserved, unreadable_fields,
};
use kyma_object_set::{CallError, Guard, Identity, Mapping, Object, Refusal};

use super::calls::{SERVED_DELAY, failure};
use crate::observe::gvk_of;
use crate::pass::Pass;

impl Pass<'_> {
    /// Creates the default custom resource, once.
    pub(super) async fn default_resource(&mut self) -> Result<(), Failure> {
        self.state.recorded.resource = Some(self.make_default_resource().await?);
        self.done.watching = false;
        Ok(())
    }

    async fn make_default_resource(&self) -> Result<CreatedResource, Failure> {
        let (mapping, identity, body) = self.default_object()?;
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        if self.was_created_before() {
            let live = self.live(&mapping, &identity).await?;
            let absent = live.is_none().then_some(true);
            let uid = live.and_then(|live| self.born_here(live));
            return Ok(CreatedResource { absent, ..created(&mapping, identity, uid) });
        }
        let body = serde_json::Value::from(body);
        let object: DynamicObject = serde_json::from_value(body.clone()).map_err(|_| {
            let fields = unreadable_fields::<DynamicObject>(&body);
            Failure::new(Reason::ManifestInvalid, format!("spec.resource: a field is {fields}"))
        })?;
        let uid = match create_new(&api, &self.ownership.creator(), &object).await {
            Ok(made) => made.metadata.uid,
            Err(error) => {
                if is_conflict(&error)
                    && let Some(live) = self.live(&mapping, &identity).await?
                {
                    return Ok(created(&mapping, identity, self.born_here(live)));
                }
                let error = CallError::new(kyma_object_set::Action::Create, Some(&identity), error);
                let passes = error.failure == kyma_object_set::Failure::Conflict;
                let forbidden = error.failure == kyma_object_set::Failure::Forbidden;
                let failure = match error.of_target() {
                    None if !passes && !forbidden => {
                        Failure::new(Reason::DefaultResourceFailed, error.to_string())
                    }
                    _ => failure(&error),
                };
                // The kind of a CRD that was just established is served shortly afterwards.
                let soon = error.failure == kyma_object_set::Failure::NotFound;
                return Err(if soon { failure.retry_after(SERVED_DELAY) } else { failure });
            }
        };
        Ok(created(&mapping, identity, uid))
    }

    /// Reads whether the default custom resource exists and updates the record, from which the status is reported.
    /// The record stays unchanged if the read fails.
    pub(super) async fn confirm_default_resource(&mut self) {
        self.done.default_confirmed = true;
        let Some(made) = self.state.recorded.resource.clone() else { return };
        let Some(exists) = self.default_exists(&made).await else { return };
        // Until its kind is watched, a deletion would go unnoticed.
        self.state.default_confirmed = exists && self.kinds.any(&gvk_of(&made)).is_some();
        if let Some(recorded) = &mut self.state.recorded.resource {
            recorded.absent = (!exists).then_some(true);
        }
    }

    async fn default_exists(&self, made: &CreatedResource) -> Option<bool> {
        let kind = gvk_of(made);
        // Discovery may show the kind of a CRD of the content later than the kind is served.
        let Some(mapping) = self.served.any(&kind) else {
            return (!self.kinds.is_unknown(&kind.group)).then_some(false);
        };
        match self.find(mapping, made.namespace.as_deref(), &made.name).await {
            Ok(live) => Some(live.is_some_and(|live| made.uid.is_none() || live.metadata.uid == made.uid)),
            Err(error) => {
                let failure = Failure::target("read the default custom resource", &error);
                tracing::info!(component = %self.key.name, %failure, "the existence of the default custom resource is unknown");
                None
            }
        }
    }

    /// Reports whether the removal leaves a default custom resource to the user that exists, as far as is known.
    pub(super) async fn leaves_existing_default(&self) -> bool {
        let Some(made) = &self.state.recorded.resource else { return false };
        self.leaves_default_resource() && self.default_exists(made).await != Some(false)
    }

    /// Reports whether the removal leaves the default custom resource to the user.
    fn leaves_default_resource(&self) -> bool {
        self.context.resource.spec.resource_policy == ResourcePolicy::Ignore
    }

    /// Reports whether it was created for an earlier component of the module: if it is gone, the user deleted it.
    pub(super) fn was_created_before(&self) -> bool {
        had_default_resource(&self.context.resource.metadata)
    }

    /// Returns the default custom resource that an earlier object of this component created, if any.
    pub(super) async fn find_default_resource(&self) -> Result<Option<CreatedResource>, Failure> {
        // A kind that is not served has no objects, and an invalid object was never created.
        let Ok((mapping, identity, _)) = self.default_object() else { return Ok(None) };
        let uid = self.live(&mapping, &identity).await?.and_then(|live| self.born_here(live));
        Ok(uid.map(|uid| created(&mapping, identity, Some(uid))))
    }

    /// Returns the uid of a resource that an earlier object of this component created, as the hub may have lost its
    /// status. Any other resource was created by the user and belongs to the user.
    fn born_here(&self, live: ObjectMeta) -> Option<String> {
        let is_ours = is_created_for(&live, &self.ownership.owner, &self.ownership.creator());
        live.uid.filter(|_| is_ours)
    }

    pub(super) async fn live(
        &self,
        mapping: &Mapping,
        identity: &Identity,
    ) -> Result<Option<ObjectMeta>, Failure> {
        let live = self.find(mapping, identity.namespace.as_deref(), &identity.name).await;
        let live = live.map_err(|error| {
            let failure = Failure::target("read the default custom resource", &error);
            // The kind of a CRD that was just established is served shortly afterwards.
            let soon = matches!(&error, kube::Error::Api(status) if status.code == 404);
            if soon { failure.retry_after(SERVED_DELAY) } else { failure }
        })?;
        Ok(live.map(|live| live.metadata))
    }

    /// Returns the metadata of an object; `None` only if the target says that the object does not exist or that its
    /// kind is not served.
    async fn find(
        &self,
        mapping: &Mapping,
        namespace: Option<&str>,
        name: &str,
    ) -> kube::Result<Option<PartialObjectMeta<DynamicObject>>> {
        let client = &self.cluster.client;
        let found = find_metadata(&mapping.api(client, namespace), name).await;
        none_if_unserved(client, &mapping.resource, found).await.map(Option::flatten)
    }

    /// Returns the default custom resource to create, with its mapping and identity.
    pub(super) fn default_object(&self) -> Result<(Mapping, Identity, FreeForm), Failure> {
        let invalid = |what: &str| Failure::new(Reason::ManifestInvalid, format!("spec.resource {what}"));
        let resource = self.context.resource.spec.resource.clone().unwrap_or_default();
        let object = Object::from_value(resource.into()).map_err(|error| invalid(&error.to_string()))?;
        let mapping = self
            .served
            .get(&object.gvk())
            .cloned()
            .ok_or_else(|| invalid("has a kind that is not served"))?;
        let identity = self.served.scoped(&object.identity(), &self.release().namespace);
        if self.shared.protection.guard(&identity) == Some(Guard::Always) {
            let refusal = Refusal::Protected { object: identity };
            return Err(Failure::new(refusal.reason(), format!("spec.resource: {refusal}")));
        }
        let mut object = object;
        object.set_namespace(identity.namespace.as_deref());
        object.set_label(labels::OWNER, &self.ownership.owner);
        Ok((mapping, identity, object.body().clone()))
    }

    /// Deletes the default custom resource if the operator created it, its uid is unchanged, and `spec.resourcePolicy`
    /// does not leave it to the user. Returns its name while it exists.
    pub(super) async fn remove_default_resource(&mut self) -> Result<Option<String>, Failure> {
        if self.leaves_default_resource() {
            return Ok(None);
        }
        let Some(made) = self.state.recorded.resource.clone() else { return Ok(None) };
        let Some(uid) = made.uid.clone() else { return Ok(None) };
        let kind = gvk_of(&made);
        let kinds = Arc::clone(&self.kinds);
        let Some(mapping) = kinds.any(&kind) else {
            let unknown = self.kinds.is_unknown(&kind.group);
            let identity = Identity::new(&kind.group, &kind.kind, made.namespace.as_deref(), &made.name);
            return if unknown { Err(failure(&CallError::group_unknown(&identity))) } else { Ok(None) };
        };
        let action = format!("default custom resource {} {}", made.kind, made.name);
        let failed = |error: kube::Error| Failure::target(&action, &error);
        let namespace = made.namespace.as_deref();
        let live = self.find(mapping, namespace, &made.name).await.map_err(failed)?;
        let Some(live) = live.filter(|live| live.metadata.uid.as_ref() == Some(&uid)) else {
            return Ok(None);
        };
        if live.metadata.deletion_timestamp.is_none() {
            let managers = [self.ownership.manager.clone(), self.ownership.creator()];
            let managers = managers.each_ref().map(String::as_str);
            let request = DeleteRequest::new(&mapping.resource, &live.metadata, &managers);
            let deleted = self.context.delete_gate().carry_out(&self.cluster.client, &request).await;
            match deleted {
                Ok(DeleteOutcome::Waiting(_)) => {}
                Ok(DeleteOutcome::Gone) => return Ok(None),
                Err(error) => {
                    if let DeleteError::Call(error) = &error
                        && let kyma_object_set::Failure::WebhookFailed(webhook) =
                            kyma_object_set::Failure::of(error)
                    {
                        self.done.dead_webhook = Some(webhook);
                    }
                    return Err(error.into_failure(|error| Failure::target(&action, error)));
                }
            }
            if self.find(mapping, namespace, &made.name).await.map_err(failed)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(format!("{} {}", made.kind, made.name)))
    }
}

pub(super) fn created(mapping: &Mapping, identity: Identity, uid: Option<String>) -> CreatedResource {
    CreatedResource {
        api_version: mapping.resource.api_version.clone(),
        kind: identity.kind,
        namespace: identity.namespace,
        name: identity.name,
        uid,
        absent: None,
    }
}
