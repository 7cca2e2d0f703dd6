//! A module whose removal objects of users hold up: it keeps working meanwhile, and follows its channel as before.

use std::collections::BTreeMap;
use std::sync::Arc;

use kyma_api::UpgradeMode;
use kyma_api::visibility::Viewer;

use super::{
    Decision, Inputs, Install, Installed, Resolved, Wish, changed, deprecation, downtime, halt, kind_changed,
    rollout, version,
};
use crate::config::{Configs, Governed, govern};

/// The removal, with the version that the channel of the module has come to meanwhile. A module that was pinned follows
/// nothing, and an upgrade that would not be done otherwise is not done now either.
pub(super) fn follow(inputs: &Inputs<'_>, installed: &Installed, removal: Resolved) -> Resolved {
    let stays = inputs.missing_configs.contains_key(&removal.module);
    let channel = installed.channel.as_ref().filter(|_| installed.leaving && !stays);
    let Some(channel) = channel else { return removal };
    let Some(governed) = inputs.leaving.get(&removal.module) else { return removal };
    let mut resolved = removal;
    resolved.interest.channel.clone_from(&governed.wish.channel);
    let chosen = choose(inputs, governed, channel);
    resolved.interest.versions.extend(chosen.as_ref().map(|install| install.version.clone()));
    let is_allowed = |install: &Install| {
        is_approved(governed, installed, install) && is_upgrade(inputs, installed, install)
    };
    let Some(install) = chosen.filter(is_allowed) else {
        return resolved;
    };
    match downtime::decide(inputs, installed, &install) {
        None => resolved.decision = Decision::Leave(install),
        Some(Decision::Await(_, awaited)) => resolved.until = awaited.until(),
        // Nobody knows when: the policy's change wakes nobody for the sake of what is going.
        Some(_) => {}
    }
    resolved
}

/// Returns the entries in force of modules whose removal is held up, in a Kyma with these labels. Evaluates rules, so no
/// lock may be held.
pub(crate) fn govern_leaving(
    configs: &Configs,
    labels: &BTreeMap<String, String>,
    installed: &BTreeMap<String, Installed>,
) -> BTreeMap<String, Governed> {
    let leaving = installed.iter().filter(|(_, installed)| installed.leaving);
    let entry_of = |(module, installed): (&String, &Installed)| {
        let channel = installed.channel.as_ref()?;
        Some((module.clone(), govern(configs, labels, channel, &entry(module, channel))))
    };
    leaving.filter_map(entry_of).collect()
}

/// The entry that was taken out, as far as it is known: a user's values and approvals went with it.
fn entry(module: &str, channel: &str) -> Wish {
    Wish { channel: Some(channel.to_owned()), ..Wish::of(module) }
}

/// Whether nobody has to approve the version, or a ModuleConfig does: the entry that could is gone.
fn is_approved(governed: &Governed, installed: &Installed, install: &Install) -> bool {
    let upgrade = &governed.wish.upgrade;
    let is_manual = installed.is_manual || upgrade.mode == UpgradeMode::Manual;
    !is_manual || upgrade.approved.as_ref() == Some(&install.version)
}

fn choose(inputs: &Inputs<'_>, governed: &Governed, channel: &str) -> Option<Install> {
    if governed.objection.is_some() {
        return None;
    }
    let module = governed.wish.name.as_str();
    let release = inputs.catalogue.release(module)?;
    let viewer = Viewer { labels: inputs.labels, restricted: &inputs.policy.restricted };
    viewer.module(&release.module, release.mandatory.is_some(), release.selector.as_ref()).ok()?;
    let version = match &governed.wish.version {
        Some(pinned) => pinned,
        None => release.channels.get(governed.wish.channel.as_deref().unwrap_or(channel))?,
    };
    let template = inputs.catalogue.template(module, version)?;
    viewer.version(template.audience).ok()?;
    let central = governed.wish.central.clone();
    Some(Install {
        template: Arc::clone(template),
        release: Arc::clone(release),
        version: version.clone(),
        channel: Some(channel.to_owned()),
        mandatory: false,
        wish: Arc::new(Wish { central, ..Wish::of(module) }),
    })
}

fn is_upgrade(inputs: &Inputs<'_>, installed: &Installed, install: &Install) -> bool {
    installed.wanted() != Some(install.version.as_str())
        && kind_changed(installed, install).is_none()
        && version::judge(installed, install).is_none()
        && halt::halted(inputs, installed, install).is_none()
        && deprecation::deprecated(inputs, install).is_none()
        && rollout::held_back(&install.wish, installed, install).is_none()
        && changed::refused(inputs, Some(installed), install).is_none()
}
