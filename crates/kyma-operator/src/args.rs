//! Flags of kyma-operator beside those that every operator has.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{ArgAction, Args as ClapArgs, ValueEnum};
use jiff::SignedDuration;

use crate::deletion::IgnorePolicy;
use crate::resolve::Policy;

/// Flags of kyma-operator.
#[derive(Clone, Debug, ClapArgs)]
pub struct KymaArgs {
    /// API groups from which component kinds may come, besides ours. Never `*.k8s.io`.
    #[arg(long, env, value_delimiter = ',')]
    pub component_groups: Vec<String>,
    /// Modules that only Kymas matching their kymaSelector may have.
    #[arg(long, env, value_delimiter = ',')]
    pub restricted_default_modules: Vec<String>,
    /// Image-pull Secret of the hub's namespace that every target gets. Empty: none. It has to be labelled
    /// `component.kyma-project.io/copy-to-targets=true`; the role on targets covers `skr-image-pull-secret`.
    #[arg(long, env, default_value = "", value_parser = kyma_sdk::object_name)]
    pub skr_image_pull_secret: String,
    /// What happens to an installed module that its Kyma may no longer have.
    #[arg(long, env, value_enum, default_value_t = VisibilityLoss::Freeze)]
    pub visibility_loss: VisibilityLoss,
    /// How a module with customResourcePolicy Ignore goes when it is removed.
    #[arg(long, env, value_enum, default_value_t = IgnorePolicy::Leave)]
    pub ignore_policy: IgnorePolicy,
    /// For how long the access Secret of a Kyma that is being deleted must be missing until its cluster counts as
    /// gone.
    #[arg(long, env, default_value = "10m", value_parser = duration)]
    pub cluster_gone_after: SignedDuration,
    /// How long a component may stay unseen by a reconciler until that is reported.
    #[arg(long, env, default_value = "2m", value_parser = duration)]
    pub reconciler_deadline: SignedDuration,
    /// File with the maintenance policy, in KLM's format. Without it upgrades that need downtime wait. It is read again
    /// when it changes.
    #[arg(long, env, default_value = "/etc/maintenance-policy/policy.json")]
    pub maintenance_policy: PathBuf,
    /// Series of metrics for each Kyma and module (`lifecycle_mgr_*_state`), as KLM has them.
    #[arg(long, env, default_value_t = true, action = ArgAction::Set)]
    pub per_kyma_metrics: bool,
    /// Every component is shown as a read-only Manifest of Kyma Lifecycle Manager (KLM), for dashboards and runbooks that
    /// read those. Waits for KLM's CRD of Manifests where the hub does not have it.
    #[arg(long, env)]
    pub manifest_mirror: bool,
    /// An upgrade that needs downtime begins only where more than this is left of a maintenance window.
    #[arg(long, env, default_value = "20m", value_parser = duration)]
    pub min_maintenance_window_size: SignedDuration,
}

/// What happens to an installed module that its Kyma may no longer have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VisibilityLoss {
    /// It stays as it is, with a warning.
    Freeze,
    /// It is uninstalled, as KLM does.
    Uninstall,
}

impl KymaArgs {
    /// Name of the image-pull Secret that targets get.
    pub(crate) fn pull_secret(&self) -> Option<&str> {
        Some(self.skr_image_pull_secret.as_str()).filter(|name| !name.is_empty())
    }

    /// What the decisions read of the flags.
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
