//! Carries out a plan on the hub: CRDs, components, deletion requests. Failures are recorded by module and do not
//! stop other writes.

mod deletion_requests;

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use json_patch::jsonptr::PointerBuf;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use kyma_api::annotations;
use kyma_controller::{
    DeleteGate, DeleteRequest, Failure, KymaKey, PausedOperations, create_new, hub_apply, is_absent,
};
use serde_json::{Value, json};

use crate::FIELD_MANAGER;
use crate::error::Error;
use crate::hub::component::{ComponentKind, ComponentView};
use crate::hub::component_crd::{self, Offer};
use crate::plan::{DesiredComponent, OfferedCrd, Plan, Upgrade};
use crate::state::State;

pub(crate) use deletion_requests::request_deletion;
use deletion_requests::withdraw_request;

/// Maximum number of concurrent writes for one Kyma.
const MAX_CONCURRENT_WRITES: usize = 8;

/// Result of a plan: failures by module.
#[derive(Debug, Default)]
pub(crate) struct PlanResult {
    /// Whether a write to a component succeeded.
    pub(crate) has_written: bool,
    pub(crate) failures: BTreeMap<String, Failure>,
    /// Modules whose component had no finalizer any more when the deletion request was written.
    pub(crate) missed: BTreeSet<String>,
}

impl PlanResult {
    /// Returns the failure that decides when to retry: a transient one, if there is any.
    pub(crate) fn worst(&self) -> Option<&Failure> {
        let transient =
            self.failures.values().find(|failure| failure.class == kyma_api::ErrorClass::Transient);
        transient.or_else(|| self.failures.values().next())
    }
}

/// The Kyma that deletion requests are made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Authority<'a> {
    /// The Kyma.
    pub(crate) kyma: &'a KymaKey,
    /// Its uid.
    pub(crate) uid: &'a str,
    /// Its generation.
    pub(crate) generation: i64,
    /// The effect of Pauses on the component.
    pub(crate) paused_operations: &'a PausedOperations,
}

/// Carries out the whole plan.
pub(crate) async fn apply(state: &State, plan: &Plan, authority: Authority<'_>) -> PlanResult {
    let mut done: Vec<(String, Result<(), Failure>)> = Vec::new();
    for offered in &plan.crds {
        if let Err(failure) = install_crd(state, offered).await {
            tracing::warn!(crd = offered.crd.name_any(), reason = %failure.reason, "component CRD: {}", failure.message);
            done.push((offered.module.clone(), Err(failure)));
        }
    }
    let components = stream::iter(plan.components.clone())
        .map(|desired| async move {
            (desired.module.clone(), apply_component(state, &desired).await.map_err(Failure::from))
        })
        .buffer_unordered(MAX_CONCURRENT_WRITES);
    done.extend(components.collect::<Vec<_>>().await);
    let mut missed = BTreeSet::new();
    for deletion in plan.deletions.iter().filter(|deletion| deletion.removes()) {
        let module = &deletion.component.module;
        let requested = request_deletion(state, deletion, authority).await;
        if matches!(requested, Ok(false)) {
            missed.insert(module.clone());
        }
        done.push((module.clone(), requested.map(drop)));
    }
    for upgrade in &plan.upgrades {
        let done_with = upgrade_during_removal(state, upgrade).await.map_err(Failure::from);
        done.push((upgrade.component.module.clone(), done_with));
    }
    for desired in &plan.missing_components {
        done.push((desired.module.clone(), create_and_delete(state, desired, authority).await));
    }
    for view in &plan.withdrawals {
        done.push((view.module.clone(), withdraw_request(state, view).await.map_err(Failure::from)));
    }
    let has_written = done.iter().any(|(_, result)| result.is_ok());
    let failures = done.into_iter().filter_map(|(module, result)| Some((module, result.err()?))).collect();
    PlanResult { has_written, failures, missed }
}

/// Deletes components without removing anything from the target. The status must report it before: after a crash in
/// between, their components must not count as missing.
pub(crate) async fn delete_and_orphan(
    state: &State,
    plan: &Plan,
    authority: Authority<'_>,
) -> Result<(), Failure> {
    let mut result = Ok(());
    for deletion in plan.deletions.iter().filter(|deletion| !deletion.removes()) {
        result = request_deletion(state, deletion, authority).await.map(drop).and(result);
    }
    result
}

/// Installs the offered CRD after a check against a live read: the index has no CRDs that are not established or not
/// served, and another team may have created one since.
async fn install_crd(state: &State, offered: &OfferedCrd) -> Result<(), Failure> {
    let api: Api<CustomResourceDefinition> = Api::all(state.runtime.hub.clone());
    let OfferedCrd { module, version, kind, crd } = offered;
    let name = crd.name_any();
    let failed = |source| Error::InstallComponentCrd { name: name.clone(), source };
    let live = api.get_opt(&name).await.map_err(failed)?;
    let desired = component_crd::install(&Offer { module, version, kind, crd }, live.as_ref());
    let desired = desired.map_err(|problem| Failure::new(problem.reason, problem.message))?;
    let Some(mut desired) = desired else { return Ok(()) };
    component_crd::mark_created(&mut desired, live.as_ref(), state.runtime.settings.marks_created_crds);
    let applied = match live {
        None => create_new(&api, FIELD_MANAGER, &desired).await,
        Some(live) => {
            desired.metadata.uid = live.metadata.uid;
            desired.metadata.resource_version = live.metadata.resource_version;
            api.patch(&name, &hub_apply(FIELD_MANAGER), &Patch::Apply(&desired)).await
        }
    };
    let applied = applied.map_err(failed)?;
    tracing::info!(crd = name, version = ?applied.annotations().get(annotations::CRD_VERSION), "component CRD installed");
    Ok(())
}

async fn apply_component(state: &State, desired: &DesiredComponent) -> Result<(), Error> {
    let meta = &desired.body["metadata"];
    let text = |name: &str| meta[name].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let api = api(state, &desired.kind, &desired.plural, namespace);
    let applied = api.patch(name, &hub_apply(FIELD_MANAGER), &Patch::Apply(&desired.body)).await;
    let failed = |source| Error::ApplyComponent { component: format!("{} {name}", desired.kind), source };
    let applied = applied.map_err(failed)?;
    index_component(state, &desired.kind, &applied);
    tracing::info!(component = name, kind = %desired.kind, version = ?desired.body["spec"]["module"]["version"], "component applied");
    Ok(())
}

/// Creates a missing component with a deletion request, and deletes it.
async fn create_and_delete(
    state: &State,
    desired: &DesiredComponent,
    authority: Authority<'_>,
) -> Result<(), Failure> {
    let text = |name: &str| desired.body["metadata"][name].as_str().unwrap_or_default();
    let gate = DeleteGate::new(authority.paused_operations, &state.runtime.brake, authority.kyma.to_string());
    gate.permit().await?;
    let resource = resource(&desired.kind, &desired.plural);
    let api = api(state, &desired.kind, &desired.plural, text("namespace"));
    let named = || format!("{} {}", desired.kind, text("name"));
    let body = serde_json::from_value(desired.body.clone());
    let body: DynamicObject = body.map_err(|source| Error::Compose { what: "a component", source })?;
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let made = api.create(&params, &body).await;
    let made = made.map_err(|source| Error::ApplyComponent { component: named(), source })?;
    index_component(state, &desired.kind, &made);
    let deleted = gate
        .carry_out(&state.runtime.hub, &DeleteRequest::new(&resource, &made.metadata, &[FIELD_MANAGER]))
        .await;
    let failed = |source| Error::DeleteComponent { component: named(), source };
    deleted.map_err(|error| Error::of_gate(error, failed))?;
    tracing::info!(component = text("name"), kind = %desired.kind, module = desired.module, "component created to remove the module");
    Ok(())
}

/// Patches the fields of a new version into a component that is being removed, and nothing else of its spec.
async fn upgrade_during_removal(state: &State, upgrade: &Upgrade) -> Result<(), Error> {
    let view = &upgrade.component;
    let field = |name: &str| PointerBuf::from_tokens(["spec", name]).to_string();
    let fields = upgrade.fields.iter();
    let fields = fields.map(|(name, value)| json!({ "op": "add", "path": field(name), "value": value }));
    let is_it = json!({ "op": "test", "path": "/metadata/uid", "value": view.uid });
    let operations: Vec<Value> = std::iter::once(is_it).chain(fields).collect();
    let operations = serde_json::from_value(Value::Array(operations))
        .map_err(|source| Error::Compose { what: "an upgrade", source })?;
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let api = api_of(state, view)?;
    let patched = api.patch(&view.name, &params, &Patch::Json::<()>(operations)).await;
    match patched {
        Ok(patched) => {
            index_component(state, &view.kind, &patched);
            tracing::info!(component = view.name, kind = %view.kind, version = ?upgrade.fields.get("module"), "component upgraded while it is being removed");
            Ok(())
        }
        Err(error) if is_absent(&api, &view.name, &error) => Ok(()),
        Err(source) => Err(Error::ApplyComponent { component: named(view), source }),
    }
}

async fn patch(
    state: &State,
    api: &Api<DynamicObject>,
    view: &ComponentView,
    body: &Value,
    failed: impl FnOnce(String, kube::Error) -> Error,
) -> Result<(), Error> {
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch(&view.name, &params, &Patch::Merge(body)).await {
        Ok(patched) => index_component(state, &view.kind, &patched),
        // Deleted, or replaced by another object of the same name: nothing to request.
        Err(error) if is_absent(api, &view.name, &error) => {}
        Err(source) => return Err(failed(named(view), source)),
    }
    Ok(())
}

/// Adds the result of a write to the index before the watch delivers it.
fn index_component(state: &State, kind: &ComponentKind, object: &DynamicObject) {
    if let Some(view) = ComponentView::of(kind, object) {
        state.components_mut().written(view);
    }
}

/// Returns kind and name for messages.
pub(crate) fn named(view: &ComponentView) -> String {
    format!("{} {}", view.kind, view.name)
}

pub(crate) fn api_of(state: &State, view: &ComponentView) -> Result<Api<DynamicObject>, Error> {
    let resource = resource_of(state, view)?;
    Ok(Api::namespaced_with(state.runtime.hub.clone(), &view.namespace, &resource))
}

/// Returns the resource of a component's kind as the hub serves it.
fn resource_of(state: &State, view: &ComponentView) -> Result<ApiResource, Error> {
    let plural = state.kinds().crd(&view.kind).map(|crd| crd.spec.names.plural.clone());
    let plural = plural.ok_or_else(|| Error::FindKind { kind: view.kind.clone() })?;
    Ok(resource(&view.kind, &plural))
}

fn resource(kind: &ComponentKind, plural: &str) -> ApiResource {
    let gvk = GroupVersionKind::gvk(kind.group(), kind.version(), &kind.kind);
    ApiResource::from_gvk_with_plural(&gvk, plural)
}

fn api(state: &State, kind: &ComponentKind, plural: &str, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(state.runtime.hub.clone(), namespace, &resource(kind, plural))
}
