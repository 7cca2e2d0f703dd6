//! `kymactl module assign`.

use clap::Args;
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use kyma_api::{ChannelVersion, ModuleReleaseMeta, ModuleTemplate, names, patterns};
use semver::Version;
use serde_json::{Value, json};

use crate::{
    command::complete,
    error::Error,
    hub::{GlobalFlags, MANAGER},
    name, output,
};

/// Maximum number of versions in an error.
const MAX_NAMED: usize = 10;

/// Flags of `kymactl module assign`.
#[derive(Args)]
pub(crate) struct Assign {
    /// The module
    #[arg(value_parser = name::module, add = complete::modules())]
    module: String,
    /// The channel, such as regular or fast
    channel: String,
    /// The version
    version: String,
    /// Let the hub check the change without storing it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    hub: GlobalFlags,
}

impl Assign {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let Self { module, channel, version, dry_run, hub } = self;
        let namespace = hub.namespace();
        let client = hub.client().await?;
        let releases: Api<ModuleReleaseMeta> = Api::namespaced(client.clone(), namespace);
        let missing = || {
            let problem = format!(
                "there is no ModuleReleaseMeta of this name in namespace {namespace}: create it with this channel first"
            );
            Error::input(&module, problem)
        };
        let release = releases.get_opt(&module).await?.ok_or_else(missing)?;
        let templates: Api<ModuleTemplate> = Api::namespaced(client, namespace);
        let templates = templates.list(&ListParams::default()).await?.items;
        let assignment = Assignment::plan(&release, &templates, &channel, &version)?;
        let subject = format!("channel {channel} of module {module}");
        let Assignment { before, patch } = assignment;
        let Some(patch) = patch else {
            return hub.format().object(&release, &format!("{subject} already has version {version}"));
        };
        if let Some(before) = before.as_deref().filter(|before| is_lower(&version, before)) {
            output::remark(&format!(
                "warning: {version} is lower than {before}: clusters that run {before} keep it and report DowngradeRefused"
            ));
        }
        let params =
            PatchParams { field_manager: Some(MANAGER.to_owned()), dry_run, ..PatchParams::default() };
        let patch = serde_json::from_value(patch).map_err(std::io::Error::other)?;
        let changed =
            match releases.patch(&module, &params, &Patch::<()>::Json(patch)).await.map_err(Error::from) {
                Err(error) if error.is_conflict() => return Err(refused(&releases, &release, error).await),
                changed => changed?,
            };
        let before = before.map_or_else(String::new, |before| format!(" instead of {before}"));
        let tried = if dry_run { " (dry run)" } else { "" };
        hub.format().object(&changed, &format!("{subject} has version {version}{before}{tried}"))
    }
}

/// Returns the reason for a refused patch: the object changed in between, or the error itself.
async fn refused(releases: &Api<ModuleReleaseMeta>, read: &ModuleReleaseMeta, error: Error) -> Error {
    match releases.get_opt(&read.name_any()).await {
        Ok(Some(now)) if now.resource_version() == read.resource_version() => error,
        Ok(_) => Error::Changed { name: output::resource_name(read) },
        Err(_) => error,
    }
}

/// A change of a ModuleReleaseMeta.
#[derive(Debug)]
struct Assignment {
    /// The present version of the channel.
    before: Option<String>,
    /// JSON patch for the ModuleReleaseMeta that was read; `None` if the channel has the version already.
    patch: Option<Value>,
}

impl Assignment {
    /// Returns the change that assigns the version to the channel.
    ///
    /// # Errors
    /// If the module is mandatory or being deleted, the channel or version is malformed, or the version has
    /// no ModuleTemplate.
    fn plan(
        release: &ModuleReleaseMeta,
        templates: &[ModuleTemplate],
        channel: &str,
        version: &str,
    ) -> Result<Self, Error> {
        let module = release.name_any();
        if release.meta().deletion_timestamp.is_some() {
            return Err(Error::input(module, "its ModuleReleaseMeta is being deleted"));
        }
        if let Some(mandatory) = &release.spec.mandatory {
            let problem = format!(
                "it is mandatory and has no channels: every cluster gets version {}",
                mandatory.version
            );
            return Err(Error::input(module, problem));
        }
        if !patterns::is_channel(channel) {
            return Err(Error::input(channel, "a channel has 3 to 32 lower-case letters"));
        }
        if !templates.iter().any(|template| serves(template, &module, version)) {
            return Err(Error::input(version, unknown(&module, templates)));
        }
        Ok(Self::patch(release, channel, version))
    }

    fn patch(release: &ModuleReleaseMeta, channel: &str, version: &str) -> Self {
        let channels = release.spec.channels.as_deref().unwrap_or_default();
        let position = channels.iter().position(|one| one.channel == channel);
        let before = position.map(|position| channels[position].version.clone());
        if before.as_deref() == Some(version) {
            return Self { before, patch: None };
        }
        let entry = ChannelVersion { channel: channel.to_owned(), version: version.to_owned() };
        let change = match position {
            Some(position) => {
                json!({"op": "replace", "path": format!("/spec/channels/{position}/version"), "value": version})
            }
            None if release.spec.channels.is_some() => {
                json!({"op": "add", "path": "/spec/channels/-", "value": entry})
            }
            None => json!({"op": "add", "path": "/spec/channels", "value": [entry]}),
        };
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": release.uid()},
            {"op": "test", "path": "/metadata/resourceVersion", "value": release.resource_version()},
            change,
        ]);
        Self { before, patch: Some(patch) }
    }
}

/// Reports whether kyma-operator finds this version of the module in the template: by both fields, or by its name if
/// a field is empty.
fn serves(template: &ModuleTemplate, module: &str, version: &str) -> bool {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (named, numbered) = (given(&template.spec.module_name), given(&template.spec.version));
    let is_module = named.as_deref().is_none_or(|named| named == module);
    let is_version = numbered.as_deref().is_none_or(|numbered| numbered == version);
    let is_complete = named.is_some() && numbered.is_some();
    is_module && is_version && (is_complete || template.name_any() == names::template_name(module, version))
}

/// Returns the error text for a version without a ModuleTemplate, with the module's versions that have one.
fn unknown(module: &str, templates: &[ModuleTemplate]) -> String {
    let of_module = templates.iter().filter(|one| one.spec.module_name.as_deref() == Some(module));
    let mut versions: Vec<&str> = of_module
        .filter_map(|one| one.spec.version.as_deref())
        .filter(|version| !version.is_empty())
        .collect();
    versions.sort_by_key(|version| std::cmp::Reverse(Version::parse(version).ok()));
    if versions.is_empty() {
        return format!("module {module} has no ModuleTemplate: apply what `kymactl module push` prints");
    }
    let more = if versions.len() > MAX_NAMED { ", and more" } else { "" };
    versions.truncate(MAX_NAMED);
    format!(
        "module {module} has no ModuleTemplate of this version; it has {}{more}. Apply what `kymactl module push` prints",
        versions.join(", ")
    )
}

fn is_lower(version: &str, than: &str) -> bool {
    matches!((Version::parse(version), Version::parse(than)), (Ok(a), Ok(b)) if a < b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(spec: &Value) -> ModuleReleaseMeta {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
            "metadata": {"name": "keda", "uid": "u", "resourceVersion": "7"}, "spec": spec,
        }))
        .unwrap()
    }

    fn template(module: &str, version: &str) -> ModuleTemplate {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
            "metadata": {"name": format!("{module}-{version}")},
            "spec": {"moduleName": module, "version": version, "descriptor": {}},
        }))
        .unwrap()
    }

    fn plan(spec: &Value, channel: &str, version: &str) -> Result<Assignment, Error> {
        let templates = [template("keda", "1.0.0"), template("keda", "1.10.0"), template("nats", "9.0.0")];
        Assignment::plan(&release(spec), &templates, channel, version)
    }

    #[test]
    fn a_channel_is_changed_added_or_made_and_only_as_it_was_read() {
        let one = json!({"moduleName": "keda", "channels": [
            {"channel": "fast", "version": "1.10.0"}, {"channel": "regular", "version": "1.0.0"},
        ]});
        let planned = plan(&one, "regular", "1.10.0").unwrap();
        assert_eq!(planned.before.as_deref(), Some("1.0.0"));
        let patch = planned.patch.unwrap();
        assert_eq!(patch[0], json!({"op": "test", "path": "/metadata/uid", "value": "u"}));
        assert_eq!(patch[1], json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"}));
        assert_eq!(patch[2], json!({"op": "replace", "path": "/spec/channels/1/version", "value": "1.10.0"}));
        let entry = json!({"channel": "rapid", "version": "1.0.0"});
        let added = plan(&one, "rapid", "1.0.0").unwrap().patch.unwrap();
        assert_eq!(added[2], json!({"op": "add", "path": "/spec/channels/-", "value": entry}));
        let first =
            plan(&json!({"moduleName": "keda", "versions": [{"version": "1.0.0"}]}), "rapid", "1.0.0");
        assert_eq!(
            first.unwrap().patch.unwrap()[2],
            json!({"op": "add", "path": "/spec/channels", "value": [entry]})
        );
        assert!(plan(&one, "fast", "1.10.0").unwrap().patch.is_none());
    }

    #[test]
    fn an_unknown_channel_or_version_is_refused() {
        let one = json!({"moduleName": "keda", "channels": [{"channel": "regular", "version": "1.0.0"}]});
        let error = plan(&one, "regular", "9.0.0").unwrap_err().to_string();
        assert!(error.contains("it has 1.10.0, 1.0.0"), "{error}");
        for channel in ["", "ab", "Fast", "-fast", "fast-", "a b", &"a".repeat(33)] {
            assert!(plan(&one, channel, "1.0.0").is_err(), "{channel:?}");
        }
        let mandatory = json!({"moduleName": "keda", "mandatory": {"version": "1.0.0"}});
        assert!(plan(&mandatory, "regular", "1.0.0").unwrap_err().to_string().contains("mandatory"));
        assert!(is_lower("1.2.0", "1.10.0") && !is_lower("1.10.0", "1.2.0") && !is_lower("x", "1.0.0"));
    }
}
