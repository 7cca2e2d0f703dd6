//! Report of a hand-over. Pure.

use std::fmt::Write as _;

use kube::ResourceExt as _;
use kyma_api::names;
use serde::Serialize;

use super::facts::{MigrationState, Module, ReadManifest as _};

/// Report of one Kyma.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    /// Its name.
    pub(super) kyma: String,
    /// The result; with `--dry-run` the expected one.
    pub(super) outcome: &'static str,
    /// Its modules with a Manifest.
    pub(super) modules: Vec<Line>,
    /// Obstacles.
    pub(super) left: Vec<String>,
}

/// Report of one module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    module: String,
    version: String,
    manifest: String,
    component: String,
    /// Number of existing objects that KLM applied.
    objects: usize,
    /// Remarks.
    notes: Vec<String>,
}

/// Returns the present state of the modules.
pub(super) fn lines(facts: &MigrationState) -> Vec<Line> {
    facts.modules.iter().filter_map(|(name, module)| line(facts, name, module)).collect()
}

fn line(facts: &MigrationState, name: &str, module: &Module) -> Option<Line> {
    let manifest = module.manifest.as_ref()?;
    let synced: Vec<_> = manifest.synced().iter().map(super::facts::SyncedObject::identity).collect();
    let (there, absent): (Vec<_>, Vec<_>) =
        synced.iter().partition(|identity| facts.target.contains_key(identity));
    let mut notes = Vec::new();
    if !absent.is_empty() {
        let absent: Vec<String> = absent.iter().map(ToString::to_string).collect();
        notes.push(format!("not on the target, so created again: {}", absent.join(", ")));
    }
    if let Some((default, _)) = manifest.default_cr().filter(|_| manifest.has_made_default_cr()) {
        let state = if facts.target.contains_key(&default) {
            "stays unchanged"
        } else {
            "no longer exists and is not created again"
        };
        notes.push(format!("default CR {default} {state}"));
    }
    if manifest.metadata.deletion_timestamp.is_some() {
        notes.push(
            "it is being removed: the operators continue the removal; run this command again once it is removed".to_owned(),
        );
    }
    let foreign: Vec<&String> =
        manifest.finalizers().iter().filter(|held| !manifest.klm_finalizers().contains(held)).collect();
    if !foreign.is_empty() {
        notes.push(format!("finalizers of others stay on its Manifest: {foreign:?}"));
    }
    Some(Line {
        module: name.to_owned(),
        version: manifest.spec.version.clone().unwrap_or_default(),
        manifest: manifest.name_any(),
        component: names::component_name(&facts.kyma.name_any(), name),
        objects: there.len(),
        notes,
    })
}

impl Report {
    /// Formats the report as text.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.kyma, self.outcome);
        for line in &self.modules {
            // Writing to a String does not fail.
            let _ = writeln!(
                text,
                "  {} {}: Manifest {}, HelmComponent {}, {} objects on the target",
                line.module, line.version, line.manifest, line.component, line.objects
            );
            for note in &line.notes {
                let _ = writeln!(text, "    {note}");
            }
        }
        for why in &self.left {
            let _ = writeln!(text, "  left: {why}");
        }
        text
    }
}
