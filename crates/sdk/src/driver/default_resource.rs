//! The module's default custom resource (`spec.resource`): created once. From then on it belongs to the user.

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, ObjectMeta},
    core::{DynamicObject, GroupVersionKind},
    discovery::Scope,
};
use kyma_api::{CreatedResource, FreeForm, Reason, ResourcePolicy, condition, labels};
use kyma_controller::default_resource::{
    Action, RESOURCE, confirmed, found, had_default_resource, has_owner, is_created_for, recorded_resource,
};
use kyma_controller::{
    DeleteOutcome, DeleteRequest, Failure, WatchSpec, create_new, find_metadata, is_conflict,
    none_if_unserved, served_kind, unreadable_fields,
};
use kyma_targets::{TargetError, classify};
use serde_json::{Value, json};

use super::kinds::{LATE_LOOKUP_INTERVAL, lookup_interval};
use super::state::Driver;
use crate::component::{Component, Progress};
use crate::context::Context;
use crate::contract::ComponentResource;

/// Result of a pass over the default custom resource.
enum DefaultResource {
    /// There is nothing to report.
    Unchanged,
    /// The record for the status.
    Recorded(CreatedResource),
    /// The record of a resource that no watch covers.
    Unwatched(CreatedResource),
    /// The target does not serve its kind yet.
    Unserved(GroupVersionKind),
}

/// The default custom resource that `spec.resource` describes, on a target that serves its kind.
struct DesiredResource {
    kind: ApiResource,
    object: DynamicObject,
}

/// A default custom resource on a target, as metadata.
pub(super) struct LiveResource {
    kind: ApiResource,
    pub(super) live: ObjectMeta,
}

impl<C: Component> Driver<C> {
    /// Creates the default custom resource if it is due, and adds its record to the progress of a step. A failed step
    /// creates nothing.
    pub(super) async fn with_default_resource(
        &self,
        context: &Context<C::Resource>,
        mut progress: Progress,
    ) -> Progress {
        if !self.creates_default_resource {
            return progress;
        }
        let is_done = progress.failure.is_none();
        match self.default_resource(context, is_done).await {
            Ok(DefaultResource::Unchanged) => progress,
            Ok(DefaultResource::Recorded(record)) => {
                progress.status.insert(RESOURCE.to_owned(), json!(record));
                progress
            }
            Ok(DefaultResource::Unwatched(record)) => {
                progress.status.insert(RESOURCE.to_owned(), json!(record));
                progress.again_within(LATE_LOOKUP_INTERVAL)
            }
            Ok(DefaultResource::Unserved(kind)) => {
                context.watch(WatchSpec::in_kind(&ApiResource::erase::<CustomResourceDefinition>(&())));
                let reported = self.reported(context, condition::types::READY);
                awaiting(progress, &kind).again_within(lookup_interval(reported.as_ref(), Timestamp::now()))
            }
            Err(_) if !is_done => progress,
            Err(failure) => progress.stopped_by(failure),
        }
    }

    async fn default_resource(
        &self,
        context: &Context<C::Resource>,
        may_create: bool,
    ) -> Result<DefaultResource, Failure> {
        let spec = &context.contract.spec;
        let recorded = recorded_resource(&self.status.current(&context.resource)?)?;
        let had_before = had_default_resource(context.resource.meta());
        let action = Action::next(spec.resource_policy, spec.resource.is_some(), recorded, had_before);
        let is_due = match action {
            Action::Confirm(recorded) => {
                return Ok(confirm(context, recorded).await);
            }
            Action::Find | Action::Create if !may_create => return Ok(DefaultResource::Unchanged),
            Action::Skip => return Ok(DefaultResource::Unchanged),
            Action::Find => false,
            Action::Create => true,
        };
        let (named, object) = parse(spec.resource.as_ref())?;
        let served = locate(context, &named, object).await?;
        let Some(desired) = served.filter(|desired| desired.kind.version == named.version) else {
            return Ok(DefaultResource::Unserved(named));
        };
        let record = if is_due {
            create(context, &desired).await?
        } else {
            let live = desired.read(context).await?;
            found(desired.identity(), live.as_ref(), context.owner(), &creator(context))
        };
        // A process that ends here must not create it again after the user deleted it.
        context.checkpoint(FreeForm::from_iter([(RESOURCE.to_owned(), json!(record))])).await?;
        Ok(DefaultResource::Recorded(record))
    }

    /// Returns the default custom resource that this component created, for its removal; `None` if it does not exist,
    /// the user created it, or `spec.resourcePolicy` leaves it to the user.
    pub(super) async fn created_default_resource(
        &self,
        context: &Context<C::Resource>,
    ) -> Result<Option<LiveResource>, Failure> {
        let spec = &context.contract.spec;
        if !self.creates_default_resource || spec.resource_policy == ResourcePolicy::Ignore {
            return Ok(None);
        }
        let status = self.status.current(&context.resource)?;
        if let Ok(Some(recorded)) = recorded_resource(&status) {
            let Some(uid) = recorded.uid.clone() else { return Ok(None) };
            let live = read_recorded(context, &recorded).await?;
            return Ok(live.filter(|resource| resource.live.uid.as_ref() == Some(&uid)));
        }
        // The hub may have lost the status.
        let Ok((named, object)) = parse(spec.resource.as_ref()) else { return Ok(None) };
        // A kind that is not served has no objects.
        let desired = match locate(context, &named, object).await {
            // Never created: the creation is refused for the same reason.
            Err(failure) if failure.reason == Reason::Protected => return Ok(None),
            located => located?,
        };
        let Some(desired) = desired else { return Ok(None) };
        let live = desired.read(context).await?;
        let live = live.filter(|live| is_created_for(live, context.owner(), &creator(context)));
        Ok(live.map(|live| LiveResource { kind: desired.kind, live }))
    }
}

impl DesiredResource {
    /// Returns its record without uid.
    fn identity(&self) -> CreatedResource {
        CreatedResource {
            api_version: self.kind.api_version.clone(),
            kind: self.kind.kind.clone(),
            namespace: self.object.namespace(),
            name: self.object.name_any(),
            uid: None,
            absent: None,
        }
    }

    async fn read<R: ComponentResource>(&self, context: &Context<R>) -> Result<Option<ObjectMeta>, Failure> {
        read(context, &self.kind, self.object.metadata.namespace.as_deref(), &self.object.name_any()).await
    }
}

impl LiveResource {
    /// Returns kind and name for messages.
    pub(super) fn describe(&self) -> String {
        format!("{} {}", self.kind.kind, self.live.name.as_deref().unwrap_or_default())
    }

    /// Requests its deletion through the delete gate; returns true once it is gone.
    pub(super) async fn delete<R: ComponentResource>(&self, context: &Context<R>) -> Result<bool, Failure> {
        if self.live.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let creator = creator(context);
        let managers = [context.manager(), creator.as_str()];
        let request = DeleteRequest::new(&self.kind, &self.live, &managers);
        match context.delete_gate().carry_out(&context.target.client(), &request).await {
            Ok(DeleteOutcome::Gone) => Ok(true),
            Ok(DeleteOutcome::Waiting(_)) => Ok(false),
            Err(error) => {
                let action = format!("delete {}", self.describe());
                Err(error.into_failure(|error| Failure::target(&action, error)))
            }
        }
    }
}

/// Returns the field manager of the creation. It differs from the one of applies, which own their fields.
fn creator<R: ComponentResource>(context: &Context<R>) -> String {
    format!("{}-create", context.manager())
}

/// Reads `spec.resource`.
fn parse(resource: Option<&FreeForm>) -> Result<(GroupVersionKind, DynamicObject), Failure> {
    let invalid = |what: &str| Failure::new(Reason::ManifestInvalid, format!("spec.resource: {what}"));
    let value = Value::Object(resource.cloned().unwrap_or_default());
    let object: DynamicObject = serde_json::from_value(value.clone())
        .map_err(|_| invalid(&format!("a field is {}", unreadable_fields::<DynamicObject>(&value))))?;
    let has_name = object.metadata.name.as_ref().is_some_and(|name| !name.is_empty());
    let named = object.types.as_ref().and_then(|types| GroupVersionKind::try_from(types).ok());
    let named = named.filter(|named| !named.kind.is_empty() && has_name);
    let missing = || invalid("apiVersion, kind or metadata.name is missing");
    Ok((named.ok_or_else(missing)?, object))
}

/// Completes the default custom resource with its namespace and the owner label; `None` if the target does not serve
/// its kind.
async fn locate<R: ComponentResource>(
    context: &Context<R>,
    named: &GroupVersionKind,
    mut object: DynamicObject,
) -> Result<Option<DesiredResource>, Failure> {
    let Some((kind, capabilities)) = served_kind(&context.target.client(), named).await? else {
        return Ok(None);
    };
    let namespace = object.metadata.namespace.take().filter(|namespace| !namespace.is_empty());
    if matches!(capabilities.scope, Scope::Namespaced) {
        let namespace = namespace.unwrap_or_else(|| context.settings.target_namespace.clone());
        object.metadata.namespace = Some(namespace);
    }
    if context.is_protected(&kind, object.metadata.namespace.as_deref(), &object.name_any()) {
        let message = format!("spec.resource: {} {}", kind.kind, object.name_any());
        return Err(Failure::new(Reason::Protected, message));
    }
    object.labels_mut().insert(labels::OWNER.to_owned(), context.owner().to_owned());
    Ok(Some(DesiredResource { kind, object }))
}

/// Creates the default custom resource unless one of its name exists, and returns its record.
async fn create<R: ComponentResource>(
    context: &Context<R>,
    desired: &DesiredResource,
) -> Result<CreatedResource, Failure> {
    let creator = creator(context);
    let api = context.api(&desired.kind, desired.object.metadata.namespace.as_deref());
    match create_new(&api, &creator, &desired.object).await {
        Ok(made) => {
            let (namespace, name) = (desired.object.namespace(), desired.object.name_any());
            let place = (namespace.as_deref(), name.as_str());
            context.watch(watch_spec(&desired.kind, place, Some(&made.metadata), context.owner()));
            Ok(CreatedResource { uid: made.metadata.uid, ..desired.identity() })
        }
        Err(error) => {
            let live = if is_conflict(&error) { desired.read(context).await? } else { None };
            let Some(live) = live else { return Err(refused(desired, &error)) };
            Ok(found(desired.identity(), Some(&live), context.owner(), &creator))
        }
    }
}

/// Returns the failure of a creation. Refusals of the object are retried, as its webhook may not run yet.
fn refused(desired: &DesiredResource, error: &kube::Error) -> Failure {
    let action = format!("create {} {}", desired.kind.kind, desired.object.name_any());
    let failure = Failure::target(&action, error);
    match classify(error) {
        TargetError::Api { .. } => Failure::new(Reason::DefaultResourceFailed, failure.message),
        _ => failure,
    }
}

/// Reads whether the recorded default custom resource exists. The record stays unchanged if the read fails.
async fn confirm<R: ComponentResource>(context: &Context<R>, recorded: CreatedResource) -> DefaultResource {
    match served_recorded(context, &recorded).await {
        Ok(Some(kind)) => match read_as(context, kind, &recorded).await {
            Ok(resource) => {
                let live = resource.as_ref().map(|resource| &resource.live);
                DefaultResource::Recorded(confirmed(recorded, live))
            }
            Err(failure) => unknown(context, recorded, &failure),
        },
        Ok(None) => DefaultResource::Unwatched(confirmed(recorded, None)),
        Err(failure) => unknown(context, recorded, &failure),
    }
}

fn unknown<R: ComponentResource>(
    context: &Context<R>,
    recorded: CreatedResource,
    failure: &Failure,
) -> DefaultResource {
    let component = context.resource.name_any();
    tracing::info!(%component, %failure, "the existence of the default custom resource is unknown");
    DefaultResource::Unwatched(recorded)
}

async fn read_recorded<R: ComponentResource>(
    context: &Context<R>,
    recorded: &CreatedResource,
) -> Result<Option<LiveResource>, Failure> {
    match served_recorded(context, recorded).await? {
        Some(kind) => read_as(context, kind, recorded).await,
        None => Ok(None),
    }
}

/// Returns the kind of a recorded default custom resource; `None` if the target does not serve it.
async fn served_recorded<R: ComponentResource>(
    context: &Context<R>,
    recorded: &CreatedResource,
) -> Result<Option<ApiResource>, Failure> {
    let (group, version) = recorded.api_version.rsplit_once('/').unwrap_or(("", &recorded.api_version));
    let named = GroupVersionKind::gvk(group, version, &recorded.kind);
    Ok(served_kind(&context.target.client(), &named).await?.map(|(kind, _)| kind))
}

async fn read_as<R: ComponentResource>(
    context: &Context<R>,
    kind: ApiResource,
    recorded: &CreatedResource,
) -> Result<Option<LiveResource>, Failure> {
    let live = read(context, &kind, recorded.namespace.as_deref(), &recorded.name).await?;
    Ok(live.map(|live| LiveResource { kind, live }))
}

/// Reads the metadata of a default custom resource and watches it.
async fn read<R: ComponentResource>(
    context: &Context<R>,
    kind: &ApiResource,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<ObjectMeta>, Failure> {
    let api: Api<DynamicObject> = context.api(kind, namespace);
    let live = find_metadata(&api, name).await;
    let live = none_if_unserved(&context.target.client(), kind, live).await.map(Option::flatten);
    let live = live.map_err(|error| Failure::target(&format!("read {} {name}", kind.kind), &error))?;
    let live = live.map(|live| live.metadata);
    context.watch(watch_spec(kind, (namespace, name), live.as_ref(), context.owner()));
    Ok(live)
}

/// Returns the watch that notices changes of an object: by owner label if the object has it, and otherwise by namespace
/// and name.
pub(super) fn watch_spec(
    kind: &ApiResource,
    (namespace, name): (Option<&str>, &str),
    live: Option<&ObjectMeta>,
    owner: &str,
) -> WatchSpec {
    let all = WatchSpec::in_kind(kind);
    if live.is_some_and(|live| has_owner(live, owner)) {
        return all.owned();
    }
    let fields = Some(format!("metadata.name={name}"));
    WatchSpec { namespace: namespace.map(ToOwned::to_owned), fields, ..all }
}

/// Returns the progress of a component whose default custom resource waits for its kind.
fn awaiting(progress: Progress, kind: &GroupVersionKind) -> Progress {
    let kind =
        if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
    progress.awaiting(&format!("waiting for the kind {kind} of the default custom resource"))
}

#[cfg(test)]
mod tests {
    use kyma_api::State;

    use super::*;

    fn parsed(resource: &Value) -> Result<(GroupVersionKind, DynamicObject), Failure> {
        parse(resource.as_object())
    }

    #[test]
    fn a_default_resource_needs_kind_and_name() {
        let lamp = json!({"apiVersion": "example.org/v1", "kind": "Lamp", "metadata": {"name": "a"}});
        let (named, object) = parsed(&lamp).unwrap();
        assert_eq!(
            (named, object.name_any()),
            (GroupVersionKind::gvk("example.org", "v1", "Lamp"), "a".to_owned())
        );
        for wrong in [
            json!({}),
            json!({"apiVersion": "v1", "kind": "Lamp"}),
            json!({"apiVersion": "v1", "kind": "Lamp", "metadata": {}}),
            json!({"kind": "Lamp", "metadata": {"name": "a"}}),
            json!({"apiVersion": "v1", "kind": "Lamp", "metadata": {"name": 1}}),
        ] {
            assert_eq!(parsed(&wrong).unwrap_err().reason, Reason::ManifestInvalid, "{wrong}");
        }
    }

    #[test]
    fn a_component_waits_for_the_kind_of_its_default_resource() {
        let kind = GroupVersionKind::gvk("example.org", "v1", "Lamp");
        let waits = "waiting for the kind Lamp.example.org of the default custom resource";
        let ready = awaiting(Progress::ready("1"), &kind);
        assert_eq!((ready.state, ready.message.as_str()), (State::Processing, waits));
        assert_eq!(ready.version.as_deref(), Some("1"));
        let working = awaiting(Progress::working("waiting for Pods"), &kind);
        assert_eq!(working.message, format!("waiting for Pods; {waits}"));
    }

    #[test]
    fn only_a_resource_with_the_owner_label_is_watched_by_it() {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.org", "v1", "Lamp"));
        let labelled = ObjectMeta {
            labels: Some([(labels::OWNER.to_owned(), "us".to_owned())].into()),
            ..ObjectMeta::default()
        };
        let limits = |live: Option<&ObjectMeta>| {
            let watch_spec = watch_spec(&kind, (Some("ns"), "a"), live, "us");
            (watch_spec.labels.is_some(), watch_spec.namespace, watch_spec.fields)
        };
        assert_eq!(limits(Some(&labelled)), (true, None, None));
        let by_name = (false, Some("ns".to_owned()), Some("metadata.name=a".to_owned()));
        assert_eq!(limits(None), by_name);
        assert_eq!(limits(Some(&ObjectMeta::default())), by_name);
    }
}
