//! `kymactl migrate flux`: converts HelmReleases of Flux to HelmComponents.
//!
//! [`convert`] decides from the release and its sources; [`fields`] has the conversion of each field.

mod clashes;
mod content;
mod convert;
mod depends;
mod facts;
mod failures;
mod fields;
mod finding;
mod installed;
mod patches;
mod read;
mod report;
mod source;
#[cfg(test)]
mod tests;
mod values_from;
mod verify;
mod write;

use std::{collections::BTreeSet, path::PathBuf};

use clap::Args;
use serde_json::Value;

use self::{convert::Conversion, write::MigrationOutcome};
use crate::{
    error::Error,
    hub::GlobalFlags,
    output::{self, Format},
};

/// Flags of `kymactl migrate flux`.
#[derive(Args)]
pub(crate) struct Flux {
    /// The HelmReleases. Default: all of the namespace
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Take the HelmReleases of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Read HelmReleases and sources from these files; - is standard input
    #[arg(short, long, value_name = "FILE", num_args = 1..)]
    file: Vec<PathBuf>,
    /// Suspend each HelmRelease and create its HelmComponent, instead of printing
    #[arg(long, conflicts_with = "file")]
    apply: bool,
    #[command(flatten)]
    hub: GlobalFlags,
}

impl Flux {
    pub(super) async fn run(self) -> Result<(), Error> {
        let hub = self.hub.hub_namespace();
        if !self.file.is_empty() {
            let namespace = self.releases_in().unwrap_or("default");
            let (mut releases, facts) = read::files(&self.file, namespace)?;
            releases.retain(|release| self.is_meant(release));
            self.ensure_all_named(&releases)?;
            return printed(&converted(&releases, &facts, hub), self.hub.format());
        }
        let config = self.hub.config().await?;
        let own = || (!self.all_namespaces).then(|| config.default_namespace.clone());
        let namespace = self.releases_in().map(str::to_owned).or_else(own);
        let flux = read::Flux::new(kyma_targets::client_from(config)?).await?;
        let mut releases = flux.releases(namespace.as_deref()).await?;
        releases.retain(|release| self.is_meant(release));
        self.ensure_all_named(&releases)?;
        let facts = flux.facts(&releases, hub).await?;
        let all = converted(&releases, &facts, hub);
        if self.apply { applied(&flux, &releases, &all).await } else { printed(&all, self.hub.format()) }
    }

    /// Returns the namespace of the HelmReleases if a flag names one; `-A` takes precedence, as in kubectl.
    fn releases_in(&self) -> Option<&str> {
        self.hub.given_namespace().filter(|_| !self.all_namespaces)
    }

    fn is_meant(&self, release: &Value) -> bool {
        let name = facts::text(release, "/metadata/name").unwrap_or_default();
        let namespace = facts::text(release, "/metadata/namespace");
        let fits = self.releases_in().is_none_or(|requested| namespace == Some(requested));
        fits && (self.names.is_empty() || self.names.iter().any(|requested| requested == name))
    }

    fn ensure_all_named(&self, releases: &[Value]) -> Result<(), Error> {
        let is_missing = |name: &&String| {
            !releases.iter().any(|release| facts::text(release, "/metadata/name") == Some(name.as_str()))
        };
        match self.names.iter().find(is_missing) {
            Some(name) => Err(Error::input(name, "there is no such HelmRelease")),
            None => Ok(()),
        }
    }
}

fn converted(releases: &[Value], facts: &facts::Facts, hub: &str) -> Vec<Conversion> {
    let mut all: Vec<Conversion> =
        releases.iter().map(|release| convert::convert(release, facts, hub)).collect();
    clashes::keep_apart(releases, facts, hub, &mut all);
    depends::connect(releases, &mut all);
    all
}

/// Migrates releases one by one, dependencies first. A release that fails or is refused stops only those that depend
/// on it.
async fn applied(flux: &read::Flux, releases: &[Value], all: &[Conversion]) -> Result<(), Error> {
    let mut left = BTreeSet::new();
    let mut names = Vec::new();
    for position in depends::order(all) {
        let (release, converted) = (&releases[position], &all[position]);
        output::remark(&report::text(converted));
        let outcome = match depends::needs(converted).find(|name| left.contains(*name)) {
            Some(name) => MigrationOutcome::NotMigrated(format!(
                "it depends on {name}, which was not migrated; named alone it is migrated without the dependency"
            )),
            None => flux
                .take_over(release, converted)
                .await
                .unwrap_or_else(|error| MigrationOutcome::NotMigrated(error.to_string())),
        };
        output::result(&format!("{}: {}", converted.release, outcome.says()))?;
        if outcome.is_unfinished() {
            left.extend(converted.component.as_ref().map(kube::ResourceExt::name_any));
            names.push(converted.release.clone());
        }
    }
    if names.is_empty() { Ok(()) } else { Err(Error::NotMigrated { names: names.join(", ") }) }
}

/// Prints components to standard output, by default as YAML, and findings to standard error.
fn printed(all: &[Conversion], format: Format) -> Result<(), Error> {
    let mut yaml = String::new();
    for converted in all {
        output::remark(&report::text(converted));
        if let Some(component) = &converted.component {
            yaml.push_str(&report::yaml(component)?);
        }
    }
    let components: Vec<_> = all.iter().filter_map(|one| one.component.as_ref()).collect();
    let names = || components.iter().map(|component| output::resource_name(*component)).collect();
    // Documents instead of a list, so that each can be edited alone.
    let format = if format == Format::Yaml { Format::Table } else { format };
    output::result(&format.text(&components, || yaml, names)?)?;
    let refused: Vec<&str> =
        all.iter().filter(|one| one.component.is_none()).map(|one| one.release.as_str()).collect();
    if refused.is_empty() { Ok(()) } else { Err(Error::NotMigrated { names: refused.join(", ") }) }
}
