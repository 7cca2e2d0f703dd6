//! `kymactl migrate flux`: HelmComponents from Flux's HelmReleases.
//!
//! What comes of a release is decided by [`convert`] alone, from the release and the sources that it names; [`fields`]
//! says what becomes of each field.

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

use self::{convert::Converted, write::Outcome};
use crate::{error::Error, hub::HubFlags, output};

/// Flags of `kymactl migrate flux`.
#[derive(Args)]
pub(crate) struct Flux {
    #[command(flatten)]
    hub: HubFlags,
    /// The HelmReleases. Default: all of the namespace.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Namespace of the HelmReleases. Default: that of the kubeconfig; for files, those of all, and `default` for what
    /// names none.
    #[arg(short, long, conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// HelmReleases of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Read HelmReleases and their sources from these files instead of the cluster; - is standard input.
    #[arg(short, long, value_name = "FILE", num_args = 1..)]
    file: Vec<PathBuf>,
    /// Suspend each HelmRelease and create its HelmComponent, instead of printing it.
    ///
    /// Left out are releases that need a look first, those that Flux is not done with, those whose component the hub does
    /// not take, and those that depend on one of them.
    #[arg(long, conflicts_with = "file")]
    apply: bool,
}

impl Flux {
    pub(super) async fn run(self) -> Result<(), Error> {
        let hub = &self.hub.hub_namespace;
        if !self.file.is_empty() {
            let namespace = self.namespace.as_deref().unwrap_or("default");
            let (mut releases, facts) = read::files(&self.file, namespace)?;
            releases.retain(|release| self.is_meant(release));
            self.ensure_all_named(&releases)?;
            return printed(&converted(&releases, &facts, hub));
        }
        let config = self.hub.config().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let namespace = (!self.all_namespaces).then_some(namespace);
        let flux = read::Flux::new(kyma_sdk::targets::client_from(config)?).await?;
        let mut releases = flux.releases(namespace.as_deref()).await?;
        releases.retain(|release| self.is_meant(release));
        self.ensure_all_named(&releases)?;
        let facts = flux.facts(&releases, hub).await?;
        let all = converted(&releases, &facts, hub);
        if self.apply { applied(&flux, &releases, &all).await } else { printed(&all) }
    }

    fn is_meant(&self, release: &Value) -> bool {
        let name = facts::text(release, "/metadata/name").unwrap_or_default();
        let namespace = facts::text(release, "/metadata/namespace");
        let fits = self.namespace.as_deref().is_none_or(|wished| namespace == Some(wished));
        fits && (self.names.is_empty() || self.names.iter().any(|wished| wished == name))
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

fn converted(releases: &[Value], facts: &facts::Facts, hub: &str) -> Vec<Converted> {
    let mut all: Vec<Converted> =
        releases.iter().map(|release| convert::convert(release, facts, hub)).collect();
    clashes::keep_apart(releases, facts, hub, &mut all);
    depends::connect(releases, &mut all);
    all
}

/// Takes over one after the other, what others depend on first. One that fails or is left keeps those that depend on it,
/// and no others.
async fn applied(flux: &read::Flux, releases: &[Value], all: &[Converted]) -> Result<(), Error> {
    let mut left = BTreeSet::new();
    let mut names = Vec::new();
    for position in depends::order(all) {
        let (release, converted) = (&releases[position], &all[position]);
        output::remark(&report::text(converted));
        let outcome = match depends::needs(converted).find(|name| left.contains(*name)) {
            Some(name) => Outcome::Left(format!(
                "it depends on {name}, which was left; named alone it is taken over without that"
            )),
            None => flux
                .take_over(release, converted)
                .await
                .unwrap_or_else(|error| Outcome::Left(error.to_string())),
        };
        output::result(&format!("{}: {}", converted.release, outcome.says()))?;
        if outcome.is_left() {
            left.extend(converted.component.as_ref().map(kube::ResourceExt::name_any));
            names.push(converted.release.clone());
        }
    }
    if names.is_empty() { Ok(()) } else { Err(Error::ReleasesLeft { names: names.join(", ") }) }
}

/// YAML to standard output, what is to be known beside it.
fn printed(all: &[Converted]) -> Result<(), Error> {
    let mut yaml = String::new();
    for converted in all {
        output::remark(&report::text(converted));
        if let Some(component) = &converted.component {
            yaml.push_str(&report::yaml(component)?);
        }
    }
    if !yaml.is_empty() {
        output::result(&yaml)?;
    }
    let refused: Vec<&str> =
        all.iter().filter(|one| one.component.is_none()).map(|one| one.release.as_str()).collect();
    if refused.is_empty() { Ok(()) } else { Err(Error::ReleasesLeft { names: refused.join(", ") }) }
}
