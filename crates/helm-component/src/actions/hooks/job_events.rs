//! Result of a hook's Job that was deleted before a reconcile read it.

use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use kyma_api::Hooks;
use kyma_controller::Failure;
use kyma_helm::hooks::{self, HookState};
use kyma_object_set::Identity;

/// Maximum number of events of one Job that are read.
const MAX_EVENTS: u32 = 100;

/// Reporting controller of events about the end of Jobs.
const CONTROLLER: &str = "job-controller";

/// Returns the state of a missing hook. If no stream showed its end, the target's events may.
pub(super) async fn state_from_events(
    target: &Client,
    state: HookState,
    hook: &Identity,
    run: &Hooks,
) -> Result<HookState, Failure> {
    let uid = run.running_uid.as_deref().filter(|_| run.running == Some(hook.to_string()));
    let (Some(uid), Some(namespace)) = (uid, hook.namespace.as_deref()) else { return Ok(state) };
    if matches!(state, HookState::Ended(_)) {
        return Ok(state);
    }
    let events: Api<Event> = Api::namespaced(target.clone(), namespace);
    let params = ListParams::default().fields(&format!("involvedObject.uid={uid}")).limit(MAX_EVENTS);
    match events.list(&params).await {
        Ok(listed) => {
            let reasons = listed.items.iter().filter(|event| is_of_controller(event));
            let end = hooks::end_by_events(reasons.filter_map(|event| event.reason.as_deref()));
            Ok(end.map_or(state, HookState::Ended))
        }
        // A ServiceAccount may lack the permission to read events.
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(state),
        Err(error) => Err(Failure::target(&format!("list events of {hook}"), &error)),
    }
}

fn is_of_controller(event: &Event) -> bool {
    event.source.as_ref().and_then(|source| source.component.as_deref()) == Some(CONTROLLER)
}
