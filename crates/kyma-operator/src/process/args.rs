//! Flags of kyma-operator besides the common ones.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{ArgAction, Args as ClapArgs, ValueEnum};
use jiff::SignedDuration;

use crate::decision::deletion::IgnorePolicy;
use crate::decision::resolve::Policy;

/// Flags of kyma-operator.
#[derive(Clone, Debug, ClapArgs)]
pub struct KymaArgs {
    /// API groups of component kinds other than HelmComponent; never *.k8s.io
    #[arg(long, env, value_delimiter = ',')]
    pub component_groups: Vec<String>,
    /// Modules only for Kymas that match their kymaSelector
    #[arg(long, env, value_delimiter = ',')]
    pub restricted_default_modules: Vec<String>,
    /// Image-pull Secret to copy to every target; empty: none
    #[arg(long, env, default_value = "", value_parser = kyma_controller::object_name)]
    pub skr_image_pull_secret: String,
    /// Policy for installed modules that are no longer visible to their Kyma
    #[arg(long, env, value_enum, default_value_t = VisibilityLoss::Freeze)]
    pub visibility_loss: VisibilityLoss,
    /// Policy for the removal of a module with customResourcePolicy Ignore
    #[arg(long, env, value_enum, default_value_t = IgnorePolicy::Leave)]
    pub ignore_policy: IgnorePolicy,
    /// Time without access Secret until the cluster of a deleted Kyma counts as gone
    #[arg(long, env, default_value = "10m", value_parser = duration)]
    pub cluster_gone_after: SignedDuration,
    /// Time after which a component without a reconciler is reported
    #[arg(long, env, default_value = "2m", value_parser = duration)]
    pub reconciler_deadline: SignedDuration,
    /// File with the maintenance policy, in KLM's format; re-read on change
    #[arg(long, env, default_value = "/etc/maintenance-policy/policy.json")]
    pub maintenance_policy: PathBuf,
    /// Serve KLM's metrics per Kyma and module (`lifecycle_mgr_*_state`)
    #[arg(long, env, default_value_t = true, action = ArgAction::Set)]
    pub per_kyma_metrics: bool,
    /// Show each component as a read-only Manifest of KLM, for its dashboards
    #[arg(long, env)]
    pub manifest_mirror: bool,
    /// Minimum rest of a maintenance window in which an upgrade still starts
    #[arg(long, env, default_value = "20m", value_parser = duration)]
    pub min_maintenance_window_size: SignedDuration,
}

/// Policy for installed modules that are no longer visible to their Kyma.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VisibilityLoss {
    /// Keep the module unchanged, with a warning
    Freeze,
    /// Uninstall the module, as KLM does
    Uninstall,
}

impl KymaArgs {
    /// Returns the name of the image-pull Secret to copy to targets.
    pub(crate) fn pull_secret(&self) -> Option<&str> {
        Some(self.skr_image_pull_secret.as_str()).filter(|name| !name.is_empty())
    }

    /// Returns the flags that decisions read.
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            restricted: set(&self.restricted_default_modules),
            uninstall_on_visibility_loss: self.visibility_loss == VisibilityLoss::Uninstall,
            component_groups: set(&self.component_groups),
        }
    }
}

fn set(words: &[String]) -> BTreeSet<String> {
    words.iter().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

fn duration(text: &str) -> Result<SignedDuration, String> {
    let parsed: SignedDuration =
        text.parse().map_err(|_| format!("{text:?} is not a duration such as 10m"))?;
    if parsed.is_negative() { Err(format!("{text:?} is below zero")) } else { Ok(parsed) }
}
