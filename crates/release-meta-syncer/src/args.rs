//! Flags of release-meta-syncer beside those that every operator has.

use std::collections::BTreeSet;

use jiff::SignedDuration;

/// Flags beyond those of every operator.
#[derive(Clone, Debug, clap::Args)]
pub struct Flags {
    /// Modules that only Kymas matching their kymaSelector may see.
    #[arg(long, env, value_delimiter = ',')]
    pub restricted_default_modules: Vec<String>,
    /// For how long the access Secret of a Kyma that is being deleted must be missing until its cluster counts as
    /// gone.
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
