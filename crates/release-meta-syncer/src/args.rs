//! Flags of release-meta-syncer besides the common ones.

use std::collections::BTreeSet;

use jiff::SignedDuration;

/// Flags of release-meta-syncer.
#[derive(Clone, Debug, clap::Args)]
pub struct Flags {
    /// Modules only for Kymas that match their kymaSelector
    #[arg(long, env, value_delimiter = ',')]
    pub restricted_default_modules: Vec<String>,
    /// Time without access Secret until the cluster of a deleted Kyma counts as gone
    #[arg(long, env, default_value = "10m", value_parser = duration)]
    pub cluster_gone_after: SignedDuration,
}

impl Default for Flags {
    fn default() -> Self {
        Self { restricted_default_modules: vec![], cluster_gone_after: SignedDuration::from_mins(10) }
    }
}

fn duration(text: &str) -> Result<SignedDuration, String> {
    let parsed: Option<SignedDuration> = text.parse().ok();
    parsed
        .filter(|parsed| !parsed.is_negative())
        .ok_or_else(|| format!("{text:?} is not a duration such as 10m"))
}

impl Flags {
    pub(crate) fn restricted(&self) -> BTreeSet<String> {
        let names = self.restricted_default_modules.iter().map(|name| name.trim().to_owned());
        names.filter(|name| !name.is_empty()).collect()
    }
}
