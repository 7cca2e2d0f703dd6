//! Connection to a component's target as helm-component makes it, for read-only commands.

use std::path::Path;

use clap::Args;
use helm_component::HelmComponentProgram;
use kube::Api;
use kyma_api::HelmComponent;
use kyma_controller::{
    AccessArgs, BrakeLimit, Mode, Process, Program as _, Runtime, Settings, with_hub_limits,
};

use crate::{error::Error, hub::GlobalFlags};

/// Part of the User-Agent in place of a replica, for audit logs.
const REPLICA: &str = "kymactl";

/// Selects the hub, limits its access Secrets, and locates its targets.
#[derive(Args)]
pub(crate) struct ReaderArgs {
    /// Namespace on targets for releases without one, as for helm-component
    #[arg(long, env, default_value = "kyma-system")]
    target_namespace: String,
    /// Whether targets are other clusters or the hub, as for helm-component
    #[arg(long, env, value_enum, default_value_t = Mode::Fleet)]
    mode: Mode,
    /// The one Kyma whose target is the hub, as for helm-component
    #[arg(long, env)]
    local_kyma: Option<String>,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    pub(crate) hub: GlobalFlags,
}

impl ReaderArgs {
    /// Connects to the hub for reading.
    pub(crate) async fn runtime(&self) -> Result<Runtime, Error> {
        let settings = self.settings()?;
        let config = with_hub_limits(self.hub.config().await?);
        Ok(Runtime::reading(HelmComponentProgram::OPERATOR, REPLICA, settings, config, Process::new()?)
            .await?)
    }

    /// Returns the namespace of components on the hub.
    pub(crate) fn namespace(&self) -> &str {
        self.hub.namespace()
    }

    /// Returns the component of this name, if it exists.
    pub(crate) async fn find(&self, runtime: &Runtime, name: &str) -> Result<Option<HelmComponent>, Error> {
        let components: Api<HelmComponent> = Api::namespaced(runtime.hub.clone(), self.namespace());
        Ok(components.get_opt(name).await?)
    }

    /// Returns the component of this name.
    pub(crate) async fn component(&self, runtime: &Runtime, name: &str) -> Result<HelmComponent, Error> {
        let missing = || Error::no_component(name, self.namespace());
        self.find(runtime, name).await?.ok_or_else(missing)
    }

    /// Returns the settings of the operator; those for a running operator are unused.
    fn settings(&self) -> Result<Settings, Error> {
        Ok(Settings {
            kubeconfig: self.hub.given_kubeconfig().map(Path::to_owned),
            mode: self.mode,
            local_kyma: self.local_kyma.clone().filter(|name| !name.is_empty()),
            brake: BrakeLimit { targets: 0, percent: 0 },
            access: self.access.clone().policy()?,
            ..Settings::for_command(self.hub.namespace(), &self.target_namespace)
        })
    }
}
