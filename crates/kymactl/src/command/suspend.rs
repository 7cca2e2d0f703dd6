//! `kymactl suspend` and `kymactl resume`.

use clap::Args;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kyma_api::HelmComponent;
use serde_json::json;

use crate::{
    error::Error,
    hub::{GlobalFlags, MANAGER},
};

/// Flags of `kymactl suspend` and `kymactl resume`.
#[derive(Args)]
pub(crate) struct Suspend {
    /// The HelmComponent
    #[arg(value_parser = crate::name::component, add = crate::command::complete::components())]
    component: String,
    #[command(flatten)]
    hub: GlobalFlags,
}

impl Suspend {
    /// Suspends or resumes the component.
    pub(crate) async fn run(self, suspend: bool) -> Result<(), Error> {
        let namespace = self.hub.namespace();
        let components: Api<HelmComponent> = Api::namespaced(self.hub.client().await?, namespace);
        let missing = || Error::no_component(&self.component, namespace);
        let mut component = components.get_opt(&self.component).await?.ok_or_else(missing)?;
        let is_so = component.spec.suspend.unwrap_or_default() == suspend;
        if !is_so {
            let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            let patch = json!({"spec": {"suspend": suspend.then_some(true)}});
            component = components.patch(&self.component, &params, &Patch::Merge(patch)).await?;
        }
        let state = if suspend { "suspended: it is not reconciled" } else { "resumed" };
        let when = if is_so { "already" } else { "now" };
        self.hub.format().object(&component, &format!("{} is {when} {state}", self.component))
    }
}
