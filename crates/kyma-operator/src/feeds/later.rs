//! Kinds that are accepted and not acted on yet: each of their objects says so.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{ApiResource, DynamicObject, Patch};
use kube::{Api, ResourceExt};
use kube_runtime::{WatchStreamExt, watcher};
use kyma_api::condition::{self, Status, Wanted, types};
use kyma_api::{ModuleConfig, Reason};
use kyma_sdk::{hub_apply, hub_watch};
use serde_json::json;

use crate::FIELD_MANAGER;
use crate::kinds::GroupKind;
use crate::state::State;

/// The resource of a kind that has no effect yet.
pub(super) fn resource(kind: &GroupKind) -> Option<ApiResource> {
    let known = ApiResource::erase::<ModuleConfig>(&());
    Some(known).filter(|resource| resource.group == kind.0 && resource.kind == kind.1)
}

/// Tells every object of the kind that it has no effect.
pub(super) async fn feed(state: Arc<State>, resource: ApiResource) {
    let namespace = &state.runtime.settings.hub_namespace;
    let api: Api<DynamicObject> = Api::namespaced_with(state.runtime.hub.clone(), namespace, &resource);
    let events = hub_watch(api.clone(), watcher::Config::default()).applied_objects();
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        if let Ok(object) = event {
            tell(&api, &resource, &object).await;
        }
    }
}

async fn tell(api: &Api<DynamicObject>, resource: &ApiResource, object: &DynamicObject) {
    let held = object.data.pointer("/status/conditions").cloned().unwrap_or_default();
    let mut conditions: Vec<Condition> = serde_json::from_value(held).unwrap_or_default();
    let wanted = Wanted {
        type_: types::READY,
        status: Status::False,
        reason: Reason::NotYetSupported,
        message: "this kind is accepted and has no effect yet",
        observed_generation: object.metadata.generation,
    };
    let now = Timestamp::now();
    if !condition::set(&mut conditions, &wanted, &Time(now.round(jiff::Unit::Second).unwrap_or(now))) {
        return;
    }
    conditions.retain(|condition| condition.type_ == types::READY);
    let name = object.name_any();
    let body = json!({
        "apiVersion": resource.api_version, "kind": resource.kind, "metadata": { "name": name, "uid": object.uid() },
        "status": { "conditions": conditions, "observedGeneration": object.metadata.generation },
    });
    if let Err(error) = api.patch_status(&name, &hub_apply(FIELD_MANAGER), &Patch::Apply(&body)).await {
        tracing::warn!(%error, kind = resource.kind, name, "status not written");
    }
}
