//! Selects the version of a module by its entry and the catalogue.

use std::sync::Arc;

use kyma_api::visibility::{Viewer, VisibilityRefusal};
use kyma_api::{Reason, State};

use super::{Inputs, Install, InstalledModule, ModuleProblem};
use crate::decision::selection::{CHANNEL_NONE, DEFAULT_CHANNEL, ModuleEntry};
use crate::hub::catalogue::{Release, Subscription, Template};

/// Returns the version that the entry selects from the catalogue, and adds it to `subscription`.
///
/// # Errors
/// If the entry is invalid, or the catalogue does not offer the version to this Kyma.
pub(super) fn choose(
    inputs: &Inputs<'_>,
    entry: &ModuleEntry,
    subscription: &mut Subscription,
) -> Result<Install, ModuleProblem> {
    if let Some(why) = &entry.invalid {
        return Err(ModuleProblem::error(Reason::SelectionInvalid, why.clone()));
    }
    if entry.channel.is_some() && entry.version.is_some() {
        let message = format!("module {} names both a channel and a version: remove one of them", entry.name);
        return Err(ModuleProblem::error(Reason::ChannelAndVersion, message));
    }
    let release = inputs.catalogue.release(&entry.name).ok_or_else(|| missing_release(&entry.name))?;
    let viewer = Viewer { labels: inputs.labels, restricted: &inputs.policy.restricted };
    let seen = viewer.module(&release.module, release.mandatory.is_some(), release.selector.as_ref());
    seen.map_err(|hidden| denied(&entry.name, hidden))?;
    let version = match &entry.version {
        Some(pin) => pinned(inputs, release, pin)?,
        None => from_channel(release, channel_of(inputs, entry))?,
    };
    subscription.versions.insert(version.clone());
    let template = template(inputs, &entry.name, &version)?;
    viewer.version(template.audience).map_err(|hidden| denied(&entry.name, hidden))?;
    let channel = entry.version.is_none().then(|| channel_of(inputs, entry).to_owned());
    let (release, entry) = (Arc::clone(release), Arc::new(entry.clone()));
    Ok(Install { template, release, version, channel, mandatory: false, entry })
}

pub(super) fn channel_of<'a>(inputs: &'a Inputs<'_>, entry: &'a ModuleEntry) -> &'a str {
    let own = entry.channel.as_deref().filter(|channel| !channel.is_empty());
    let default = if inputs.channel.is_empty() { DEFAULT_CHANNEL } else { inputs.channel };
    own.unwrap_or(default)
}

fn from_channel(release: &Release, channel: &str) -> Result<String, ModuleProblem> {
    if channel == CHANNEL_NONE {
        let message =
            format!("channel {CHANNEL_NONE} is reserved: name a channel of module {}", release.module);
        return Err(ModuleProblem::error(Reason::ChannelUnknown, message));
    }
    if release.channels.is_empty() {
        let message = format!("module {} has no channels: pin one of its versions", release.module);
        return Err(ModuleProblem::error(Reason::ChannelUnknown, message));
    }
    release.channels.get(channel).cloned().ok_or_else(|| {
        let known: Vec<&str> = release.channels.keys().map(String::as_str).collect();
        let message = format!(
            "no versions found for channel {channel} of module {}; its channels are: {}",
            release.module,
            known.join(", ")
        );
        ModuleProblem::error(Reason::ChannelUnknown, message)
    })
}

fn pinned(inputs: &Inputs<'_>, release: &Release, pin: &str) -> Result<String, ModuleProblem> {
    let listed = match &release.versions {
        Some(_) => release.find(pin).is_some(),
        None => inputs.catalogue.template(&release.module, pin).is_some(),
    };
    if listed {
        return Ok(pin.to_owned());
    }
    let message =
        format!("version {pin} of module {} is not offered: choose a listed version", release.module);
    Err(ModuleProblem::error(Reason::VersionNotListed, message))
}

/// Returns the template of a version. A missing one is a warning for the installed version, and an error otherwise.
pub(super) fn template(
    inputs: &Inputs<'_>,
    module: &str,
    version: &str,
) -> Result<Arc<Template>, ModuleProblem> {
    inputs.catalogue.template(module, version).cloned().ok_or_else(|| {
        let runs = inputs.installed.get(module).and_then(InstalledModule::version) == Some(version);
        let state = if runs { State::Warning } else { State::Error };
        let message = format!("no ModuleTemplate found for module {module} in version {version}");
        ModuleProblem { reason: Reason::ModuleTemplateMissing, state, message }
    })
}

fn denied(module: &str, hidden: VisibilityRefusal) -> ModuleProblem {
    if hidden == VisibilityRefusal::Mandatory {
        let message = format!("module {module} is mandatory: it is installed without being listed");
        return ModuleProblem::warning(Reason::Mandatory, message);
    }
    let message = format!("module {module} is {hidden} and not allowed for this Kyma");
    ModuleProblem::error(Reason::NotVisible, message)
}

pub(super) fn missing_release(module: &str) -> ModuleProblem {
    let message = format!("no ModuleReleaseMeta found for module {module}");
    ModuleProblem::warning(Reason::ModuleReleaseMetaMissing, message)
}
