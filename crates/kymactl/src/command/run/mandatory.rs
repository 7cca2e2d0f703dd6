//! Mandatory modules of a run. The Kyma's status does not list them, so their components are read.

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream::select_all};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt as _, watcher},
};
use kyma_api::{State, condition, labels, names};
use serde_json::Value;

use super::input::{MandatoryModule, RunInput};
use crate::error::Error;

/// Returns a stream of changes of the components of mandatory modules.
pub(super) fn changes(
    client: &Client,
    input: &RunInput,
) -> impl Stream<Item = Result<(), watcher::Error>> + Send + use<> {
    let label = names::label_selector(labels::KYMA_NAME, &input.kyma.name_any());
    let mut kinds: Vec<ApiResource> = Vec::new();
    for module in input.mandatory() {
        let kind = ApiResource::from_gvk(&module.kind);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let namespace = input.kyma.namespace().unwrap_or_default();
    select_all(kinds.into_iter().map(|kind| {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kind);
        let config = watcher::Config::default().labels(&label);
        watcher(api, config).default_backoff().touched_objects().map_ok(drop).boxed()
    }))
}

/// Returns the modules that are not Ready in the requested version, as text.
pub(super) async fn unready(client: &Client, input: &RunInput) -> Result<Vec<String>, Error> {
    let (namespace, kyma) = (input.kyma.namespace().unwrap_or_default(), input.kyma.name_any());
    let mut open = Vec::new();
    for module in input.mandatory() {
        let kind = ApiResource::from_gvk(&module.kind);
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kind);
        let component = api.get_opt(&names::component_name(&kyma, &module.name)).await?;
        open.extend(judge(&kyma, &module, component.as_ref()));
    }
    Ok(open)
}

fn judge(kyma: &str, module: &MandatoryModule, component: Option<&DynamicObject>) -> Option<String> {
    let MandatoryModule { name, version, .. } = module;
    let status = component.map(|component| &component.data["status"]);
    let state = status.and_then(|status| status["state"].as_str()).unwrap_or("Unknown");
    let running = status.and_then(|status| status["version"].as_str()).unwrap_or_default();
    let generation = component.and_then(|component| component.metadata.generation);
    let seen = status.and_then(|status| status["observedGeneration"].as_i64());
    let is_ready = state == State::Ready.as_str() && running == version && seen == generation;
    let halt = status.and_then(halt).unwrap_or_default();
    (!is_ready)
        .then(|| format!("{kyma} {name} {running}: {state}: mandatory, waits for version {version}{halt}"))
}

/// Returns the reason for which the component is not reconciled, such as a Pause, as the end of a text.
fn halt(status: &Value) -> Option<String> {
    let ready = status["conditions"].as_array()?.iter().find(|one| one["type"] == condition::types::READY)?;
    let (reason, message) = (ready["reason"].as_str()?, ready["message"].as_str()?);
    (ready["status"] == "Unknown").then(|| format!(": {reason}: {message}"))
}

#[cfg(test)]
mod tests {
    use kube::api::GroupVersionKind;
    use serde_json::json;

    use super::*;

    fn judged(status: Option<Value>) -> Option<String> {
        let module = MandatoryModule {
            name: "agent".to_owned(),
            version: "1.0.0".to_owned(),
            kind: GroupVersionKind::gvk("demo.example.org", "v1", "Greeting"),
        };
        let component = status.map(|status| {
            serde_json::from_value(json!({
                "apiVersion": "demo.example.org/v1", "kind": "Greeting",
                "metadata": {"name": "x", "generation": 2}, "status": status,
            }))
            .unwrap()
        });
        judge("one", &module, component.as_ref())
    }

    #[test]
    fn mandatory_module_is_ready_only_in_its_version_and_generation() {
        let status = |state: &str, version: &str, generation: i64| json!({"state": state, "version": version, "observedGeneration": generation});
        assert_eq!(judged(Some(status("Ready", "1.0.0", 2))), None);
        for open in
            [status("Ready", "0.9.0", 2), status("Ready", "1.0.0", 1), status("Processing", "1.0.0", 2)]
        {
            assert!(judged(Some(open.clone())).is_some(), "{open}");
        }
        assert!(judged(None).unwrap().contains("one agent : Unknown"));
    }

    #[test]
    fn a_mandatory_module_names_the_pause_that_halts_it() {
        let ready = json!({"type": "Ready", "status": "Unknown", "reason": "Paused", "message": "Pause a is in force"});
        let open = judged(Some(json!({"state": "Processing", "conditions": [ready]}))).unwrap();
        assert!(open.ends_with("waits for version 1.0.0: Paused: Pause a is in force"), "{open}");
    }
}
