//! Flags that every command takes, and the client for the hub.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use clap::{
    Args,
    builder::{OsStringValueParser, TypedValueParser},
};
use kube::{Client, Config};
use kyma_sdk::{client_config, set_user_agent};

use crate::{error::Error, output::Format};

/// Field manager of all writes of kymactl.
pub(crate) const MANAGER: &str = "kymactl";

/// Default namespace of the operators.
const DEFAULT_NAMESPACE: &str = "kcp-system";

/// User agent, for audit logs.
pub(crate) const USER_AGENT: &str = concat!("kymactl/", env!("CARGO_PKG_VERSION"));

/// Address of the hub, for messages. A process has one hub.
static ADDRESS: OnceLock<String> = OnceLock::new();

/// Stores the address for messages about failed calls.
pub(crate) fn note_address(config: &Config) {
    ADDRESS.get_or_init(|| config.cluster_url.to_string().trim_end_matches('/').to_owned());
}

/// Returns ` at <address>` for messages, or an empty text before the kubeconfig is read.
pub(crate) fn at_address() -> String {
    ADDRESS.get().map(|address| format!(" at {address}")).unwrap_or_default()
}

/// Returns a parser of paths that takes an empty one too.
fn any_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Flags that every command takes, before or after its name. The last field of a command's flags: the heading would
/// also hold for flags after it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalFlags {
    /// Kubeconfig of the hub. Default: $KUBECONFIG, ~/.kube/config, ServiceAccount
    #[arg(long, global = true, value_name = "FILE", value_parser = any_path())]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: the current one
    #[arg(long, global = true, value_name = "NAME", add = crate::complete::contexts())]
    pub(crate) context: Option<String>,
    /// Namespace of the Kymas and components. Default: that of --hub-namespace
    #[arg(short, long, global = true, value_name = "NAME", add = crate::complete::namespaces())]
    pub(crate) namespace: Option<String>,
    /// Namespace on the hub that the operators serve
    #[arg(long, global = true, env, value_name = "NAME", default_value = DEFAULT_NAMESPACE)]
    pub(crate) hub_namespace: String,
    /// Output format
    #[arg(short, long, global = true, value_enum)]
    pub(crate) output: Option<Format>,
}

impl Default for GlobalFlags {
    fn default() -> Self {
        let hub_namespace = DEFAULT_NAMESPACE.to_owned();
        Self { kubeconfig: None, context: None, namespace: None, hub_namespace, output: None }
    }
}

impl GlobalFlags {
    /// Returns the namespace of the command.
    pub(crate) fn namespace(&self) -> &str {
        self.given_namespace().unwrap_or(self.hub_namespace())
    }

    /// Returns the namespace that the operators serve.
    pub(crate) fn hub_namespace(&self) -> &str {
        if self.hub_namespace.is_empty() { DEFAULT_NAMESPACE } else { &self.hub_namespace }
    }

    /// Returns the value of `--namespace`. As in kubectl, an empty value of a flag counts as absent.
    pub(crate) fn given_namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|name| !name.is_empty())
    }

    /// Returns the value of `--kubeconfig`.
    pub(crate) fn given_kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref().filter(|file| !file.as_os_str().is_empty())
    }

    /// Returns the value of `--context`.
    pub(crate) fn given_context(&self) -> Option<&str> {
        self.context.as_deref().filter(|name| !name.is_empty())
    }

    /// Returns the output format.
    pub(crate) fn format(&self) -> Format {
        self.output.unwrap_or(Format::Table)
    }

    /// Returns the configuration of the hub's client.
    pub(crate) async fn config(&self) -> Result<Config, Error> {
        let mut config = client_config(self.given_kubeconfig(), self.given_context()).await?;
        set_user_agent(&mut config, USER_AGENT)?;
        note_address(&config);
        Ok(config)
    }

    /// Creates a client for the hub.
    pub(crate) async fn client(&self) -> Result<Client, Error> {
        Ok(kyma_sdk::targets::client_from(self.config().await?)?)
    }
}
