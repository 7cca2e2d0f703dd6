//! Flags of `kymactl module push`.

use std::path::PathBuf;

use clap::Args;
use kyma_artifacts::RegistryBase;

use crate::hub::GlobalFlags;

/// Flags of `kymactl module push`.
#[derive(Args)]
pub(crate) struct Push {
    /// The module's config file. Without it, flags describe the module
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Component of the module, such as kyma-project.io/module/keda, or its name
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Version to publish, semantic
    #[arg(long)]
    pub(super) version: Option<String>,
    /// Manifest that installs the module
    #[arg(long, value_name = "FILE|URL")]
    pub(super) manifest: Option<String>,
    /// Default CR
    #[arg(long, value_name = "FILE|URL")]
    pub(super) default_cr: Option<String>,
    /// Helm chart that installs the module: a directory or an archive
    #[arg(long, value_name = "DIR|FILE", conflicts_with = "manifest")]
    pub(super) chart: Option<String>,
    /// Workload with the module's state: [GROUP/VERSION/]KIND/[NAMESPACE/]NAME
    #[arg(long)]
    pub(super) manager: Option<String>,
    /// Registry to publish to, with an optional path.
    #[arg(long, value_name = "HOST[/PATH]")]
    pub(super) registry: RegistryBase,
    /// Use plain HTTP for the registry
    #[arg(long)]
    pub(super) insecure: bool,
    /// Docker config with the registry's credentials. Default: the user's
    #[arg(long, value_name = "FILE")]
    pub(super) docker_config: Option<PathBuf>,
    /// PEM file of certificates to trust, in addition to the system's
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Commit of the repository that the module is built from
    #[arg(long, value_name = "SHA")]
    pub(super) commit: Option<String>,
    #[command(flatten)]
    pub(super) hub: GlobalFlags,
}
