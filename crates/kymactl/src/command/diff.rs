//! `kymactl diff`.

mod text;

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use helm_component::{AccountArgs, ContentArgs, DryRunResult, Flags, HelmComponents, HubArgs};
use kyma_api::HelmComponent;
use kyma_controller::Runtime;

use crate::{
    error::Error,
    file::read_text,
    output::{self, Format},
    reader::ReaderArgs,
};

use text::Change;

/// Flags of `kymactl diff`.
#[derive(Args)]
pub(crate) struct Diff {
    /// The HelmComponent
    #[arg(required_unless_present = "file", value_parser = crate::name::component, add = crate::command::complete::components())]
    component: Option<String>,
    /// File with the desired HelmComponent, instead of the one on the hub
    #[arg(short, long, value_name = "FILE", conflicts_with = "component")]
    file: Option<PathBuf>,
    #[command(flatten)]
    content: ContentArgs,
    #[command(flatten)]
    accounts: AccountArgs,
    #[command(flatten)]
    shared: HubArgs,
    #[command(flatten)]
    reader: ReaderArgs,
}

impl Diff {
    /// Prints the changes; exit code 1 if there are any.
    pub(crate) async fn run(self) -> Result<ExitCode, Error> {
        match Box::pin(self.changes()).await {
            Ok(false) => Ok(ExitCode::SUCCESS),
            Ok(true) => Ok(ExitCode::FAILURE),
            Err(error) => Err(Error::NoDiff(Box::new(error))),
        }
    }

    async fn changes(self) -> Result<bool, Error> {
        let runtime = self.reader.runtime().await?;
        let component = self.desired(&runtime).await?;
        if component.metadata.deletion_timestamp.is_some() {
            let name = component.metadata.name.unwrap_or_default();
            return Err(Error::input(name, "it is being deleted, so nothing more is applied for it"));
        }
        if component.spec.suspend == Some(true) {
            output::remark("the component is suspended: none of these changes is made before it is resumed");
        }
        let format = self.reader.hub.format();
        // Deleted when the process ends, unless a directory is named.
        let cache = tempfile::tempdir()?;
        let mut content = self.content;
        content.artifact_cache_dir.get_or_insert_with(|| cache.path().to_owned());
        let flags = Flags { content, accounts: self.accounts, hub: self.shared };
        let components = HelmComponents::new(&flags, &runtime)
            .map_err(|error| Error::Operator { name: "helm-component", problem: error.to_string() })?;
        let result = Box::pin(components.dry_run(&runtime, component)).await?;
        print_changes(&result, format)?;
        Ok(result.changes())
    }

    /// Returns the desired component: from the hub, or from the file merged over the one on the hub.
    async fn desired(&self, runtime: &Runtime) -> Result<HelmComponent, Error> {
        let Some(path) = &self.file else {
            return self.reader.component(runtime, self.component.as_deref().unwrap_or_default()).await;
        };
        let mut desired: HelmComponent = serde_saphyr::from_str(&read_text(path)?)
            .map_err(|error| Error::input(path.display().to_string(), error.to_string()))?;
        let namespace = self.reader.namespace();
        let named = desired.metadata.namespace.get_or_insert_with(|| namespace.to_owned());
        if named != namespace {
            let problem = format!("it is in namespace {named}; repeat with --namespace={named}");
            return Err(Error::input(path.display().to_string(), problem));
        }
        let name = desired.metadata.name.clone().unwrap_or_default();
        let live = self.reader.find(runtime, &name).await?;
        Ok(live.map_or(desired.clone(), |live| over(live, desired)))
    }
}

/// Returns the result of applying the desired component over the live one.
fn over(mut live: HelmComponent, desired: HelmComponent) -> HelmComponent {
    if live.spec != desired.spec {
        live.metadata.generation = live.metadata.generation.map(|generation| generation + 1);
        live.spec = desired.spec;
    }
    let HelmComponent { metadata, .. } = desired;
    live.metadata.labels.get_or_insert_default().extend(metadata.labels.unwrap_or_default());
    live.metadata.annotations.get_or_insert_default().extend(metadata.annotations.unwrap_or_default());
    live
}

/// Prints the changes. An incomplete result is an error.
fn print_changes(result: &DryRunResult, format: Format) -> Result<(), Error> {
    let changes = text::changes(result)?;
    let all = || changes.iter().map(Change::to_string).collect();
    let names = || changes.iter().map(Change::name).collect();
    output::result(&format.text(&changes, all, names)?)?;
    for wait in &result.waits {
        output::remark(&format!("waits: {}", output::one_line(wait)));
    }
    let Some((last, others)) = result.failures.split_last() else { return Ok(()) };
    for failure in others {
        output::complain(&failure.to_string());
    }
    Err(last.clone().into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_counts_over_what_the_hub_knows() {
        let component = |spec: serde_json::Value, metadata: serde_json::Value| -> HelmComponent {
            serde_json::from_value(json!({
                "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
                "metadata": metadata, "spec": spec,
            }))
            .unwrap()
        };
        let live = || {
            let metadata = json!({"name": "a", "uid": "u", "generation": 3, "annotations": {"kept": "yes"}});
            component(json!({"source": {}, "hooks": "Skip"}), metadata)
        };
        let desired = |spec| component(spec, json!({"name": "a", "annotations": {"new": "yes"}}));
        let changed = over(live(), desired(json!({"source": {}})));
        assert_eq!(changed.metadata.generation, Some(4));
        assert_eq!(changed.metadata.uid.as_deref(), Some("u"));
        assert_eq!(changed.spec, component(json!({"source": {}}), json!({})).spec);
        let annotations: Vec<String> = changed.metadata.annotations.unwrap().into_keys().collect();
        assert_eq!(annotations, ["kept", "new"]);
        let same = over(live(), desired(json!({"source": {}, "hooks": "Skip"})));
        assert_eq!(same.metadata.generation, Some(3));
    }
}
