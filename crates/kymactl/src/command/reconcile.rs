//! `kymactl reconcile`.

use std::time::Duration;

use clap::Args;
use kyma_api::{HelmComponent, State, annotations, condition};

use crate::{duration::duration, error::Error, hub::GlobalFlags, request::Request};

/// Flags of `kymactl reconcile`.
#[derive(Args)]
pub(crate) struct Reconcile {
    /// The HelmComponent
    #[arg(value_parser = crate::name::component, add = crate::command::complete::components())]
    component: String,
    /// Do not wait for the reconcile
    #[arg(long)]
    no_wait: bool,
    /// Maximum time to wait, such as 30s or 10m
    #[arg(long, default_value = "2m", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    hub: GlobalFlags,
}

impl Reconcile {
    /// Requests a reconcile and waits until the component is Ready or failed.
    pub(crate) async fn run(self) -> Result<(), Error> {
        let Self { component: name, no_wait, timeout, hub } = self;
        let format = hub.format();
        let request = Request::make(&hub, &name, annotations::RECONCILE_REQUESTED_AT).await?;
        if no_wait {
            let component = request.component().await?;
            return format.object(&component, &format!("the reconcile of {name} is requested"));
        }
        let is_over = |component: &HelmComponent, at: &str| outcome(component, at) != Outcome::Pending;
        let Some(component) = request.followed(timeout, is_over).await? else {
            let component = request.component().await?;
            return Err(Error::not_ready(timeout, &[awaited(&name, &component, &request.at)]));
        };
        let said = ready_message(&component);
        format.object(&component, &format!("{name} was reconciled: {said}"))?;
        match outcome(&component, &request.at) {
            Outcome::Ready => Ok(()),
            Outcome::Failed | Outcome::Pending => Err(Error::Unready { name, why: said }),
        }
    }
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The request is not handled, or the component is still in progress.
    Pending,
    Ready,
    Failed,
}

fn outcome(component: &HelmComponent, request: &str) -> Outcome {
    let Some(status) = &component.status else { return Outcome::Pending };
    if status.last_handled_reconcile_at.as_deref() != Some(request) {
        return Outcome::Pending;
    }
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let Some(ready) = condition::get(conditions, condition::types::READY) else { return Outcome::Pending };
    if ready.observed_generation.is_some_and(|observed| Some(observed) < component.metadata.generation) {
        return Outcome::Pending;
    }
    match (ready.status.as_str(), status.state) {
        ("True", _) => Outcome::Ready,
        ("False", Some(State::Error | State::Warning)) => Outcome::Failed,
        _ => Outcome::Pending,
    }
}

/// Returns a line with the reason for which a request is pending.
fn awaited(name: &str, component: &HelmComponent, request: &str) -> String {
    let is_handled = component.status.as_ref().and_then(|status| status.last_handled_reconcile_at.as_deref())
        == Some(request);
    if is_handled {
        return format!("{name}: {}", ready_message(component));
    }
    format!(
        "{name}: the request was not handled: is helm-component running, and is there a Pause? \
         `kubectl get pauses -A` shows them"
    )
}

/// Returns the state and the Ready condition.
fn ready_message(component: &HelmComponent) -> String {
    let Some(status) = &component.status else { return String::new() };
    let state = status.state.map_or_else(String::new, |state| format!("{state:?}"));
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let ready = condition::get(conditions, condition::types::READY);
    match ready.filter(|ready| !ready.message.is_empty()) {
        Some(ready) => format!("{state} ({}: {})", ready.reason, ready.message),
        None => state,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_component_ready_after_the_request_counts_as_ready() {
        let of = |handled: &str, state: &str, ready: &str, observed: i64| {
            let component: HelmComponent = serde_json::from_value(json!({
                "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
                "metadata": {"name": "shop", "generation": 2}, "spec": {"source": {}},
                "status": {"state": state, "lastHandledReconcileAt": handled, "conditions": [{
                    "type": "Ready", "status": ready, "reason": "TargetUnreachable", "message": "no answer",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": observed,
                }]},
            }))
            .unwrap();
            outcome(&component, "now")
        };
        assert_eq!(of("now", "Ready", "True", 2), Outcome::Ready);
        assert_eq!(of("now", "Warning", "True", 2), Outcome::Ready);
        assert_eq!(of("before", "Ready", "True", 2), Outcome::Pending);
        assert_eq!(of("now", "Ready", "True", 1), Outcome::Pending);
        assert_eq!(of("now", "Ready", "Unknown", 2), Outcome::Pending);
        assert_eq!(of("now", "Processing", "False", 2), Outcome::Pending);
        assert_eq!(of("now", "Error", "False", 2), Outcome::Failed);
        assert_eq!(of("now", "Warning", "False", 2), Outcome::Failed);
    }
}
