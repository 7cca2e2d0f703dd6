//! `kymactl reconcile`.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kyma_api::{HelmComponent, annotations, condition};
use serde_json::json;

use crate::{
    error::Error,
    hub::{HubFlags, MANAGER},
    output,
};

/// Flags of `kymactl reconcile`.
#[derive(Args)]
pub(crate) struct Reconcile {
    /// The HelmComponent.
    component: String,
    /// Do not wait until it was done.
    #[arg(long)]
    no_wait: bool,
    /// How long to wait at most, in seconds.
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    timeout: u64,
    #[command(flatten)]
    hub: HubFlags,
}

impl Reconcile {
    /// Asks for everything of the component to be looked at anew, and waits until that was done.
    pub(crate) async fn run(self) -> Result<(), Error> {
        let Self { component: name, no_wait, timeout, hub } = self;
        let namespace = &hub.hub_namespace;
        let components: Api<HelmComponent> = Api::namespaced(hub.client().await?, namespace);
        let missing =
            || Error::input(&name, format!("there is no such HelmComponent in namespace {namespace}"));
        let component = components.get_opt(&name).await?.ok_or_else(missing)?;
        if component.spec.suspend == Some(true) {
            let message = format!("it is suspended; take care of it again with `kymactl resume {name}`");
            return Err(Error::input(&name, message));
        }
        let request = Timestamp::now().to_string();
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = json!({"metadata": {"annotations": {annotations::RECONCILE_REQUESTED_AT: request}}});
        components.patch(&name, &params, &Patch::Merge(patch)).await?;
        if no_wait {
            return Ok(output::result(&format!("{name} is asked for"))?);
        }
        let waiting = await_condition(components, &name, |component: Option<&HelmComponent>| {
            component.is_none_or(|component| handled(component) == Some(&*request))
        });
        let Ok(ended) = tokio::time::timeout(Duration::from_secs(timeout), waiting).await else {
            let message = format!(
                "nobody followed the request within {timeout} s: is helm-component running, and is there a Pause? \
                 `kubectl get pauses -A` shows them"
            );
            return Err(Error::input(&name, message));
        };
        let component = ended?.ok_or_else(missing)?;
        Ok(output::result(&format!("{name} was looked at anew: {}", told(&component)))?)
    }
}

/// The request that was followed last.
fn handled(component: &HelmComponent) -> Option<&str> {
    component.status.as_ref()?.last_handled_reconcile_at.as_deref()
}

/// State, and what the condition Ready says.
fn told(component: &HelmComponent) -> String {
    let Some(status) = &component.status else { return String::new() };
    let state = status.state.map_or_else(String::new, |state| format!("{state:?}"));
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let ready = condition::get(conditions, condition::types::READY);
    match ready.filter(|ready| !ready.message.is_empty()) {
        Some(ready) => format!("{state} ({}: {})", ready.reason, ready.message),
        None => state,
    }
}
