//! `kymactl reconcile`.

use std::time::Duration;

use clap::Args;
use kyma_api::{HelmComponent, annotations, condition};

use crate::{error::Error, hub::HubFlags, output, request::Request};

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
        let request = Request::make(&hub, &name, annotations::RECONCILE_REQUESTED_AT).await?;
        if no_wait {
            return Ok(output::result(&format!("{name} is asked for"))?);
        }
        let is_handled = |component: &HelmComponent, at: &str| handled(component) == Some(at);
        let Some(component) = request.followed(Duration::from_secs(timeout), is_handled).await? else {
            let message = format!(
                "nobody followed the request within {timeout} s: is helm-component running, and is there a Pause? \
                 `kubectl get pauses -A` shows them"
            );
            return Err(Error::input(&name, message));
        };
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
