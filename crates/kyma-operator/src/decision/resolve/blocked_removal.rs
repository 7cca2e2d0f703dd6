//! Upgrades of a module whose removal is blocked by the user's objects: it continues to follow its channel.

use std::collections::BTreeMap;
use std::sync::Arc;

use kyma_api::UpgradeMode;

use super::{
    Decision, Inputs, Install, InstalledModule, ModuleEntry, ResolvedModule, deprecation, downtime,
    kind_changed, pause, rollout, template_change, version,
};
use crate::hub::catalogue::Subscription;
use crate::hub::config::{Configs, EffectiveEntry, govern};

/// Returns the removal, with the current version of the module's channel if an upgrade to it is allowed. A pinned
/// module is not upgraded.
pub(super) fn decide_upgrade(
    inputs: &Inputs<'_>,
    installed: &InstalledModule,
    removal: ResolvedModule,
) -> ResolvedModule {
    let stays = inputs.missing_configs.contains_key(&removal.module);
    let channel = installed.channel.as_ref().filter(|_| installed.leaving && !stays);
    let Some(channel) = channel else { return removal };
    let Some(effective) = inputs.leaving.get(&removal.module) else { return removal };
    let mut resolved = removal;
    resolved.subscription.channel.clone_from(&effective.entry.channel);
    // Also for a refused pin: the catalogue may offer the version later.
    resolved.subscription.versions.extend(effective.entry.version.clone());
    let chosen = choose(inputs, effective, channel, &mut resolved.subscription);
    let is_allowed = |install: &Install| {
        is_approved(effective, installed, install) && is_upgrade(inputs, effective, installed, install)
    };
    let Some(install) = chosen.filter(is_allowed) else {
        return resolved;
    };
    match downtime::decide(inputs, installed, &install) {
        None => resolved.decision = Decision::UpgradeDuringRemoval(install),
        Some(Decision::Await(_, wait)) => resolved.until = wait.until(),
        // The maintenance window is unknown. A policy change does not requeue the Kyma for a module that is being
        // removed.
        Some(_) => {}
    }
    resolved
}

/// Returns the entries in force of modules whose removal is blocked, in a Kyma with these labels. Evaluates rules, so
/// no lock may be held.
pub(crate) fn govern_leaving(
    configs: &Configs,
    labels: &BTreeMap<String, String>,
    installed: &BTreeMap<String, InstalledModule>,
) -> BTreeMap<String, EffectiveEntry> {
    let leaving = installed.iter().filter(|(_, installed)| installed.leaving);
    let entry_of = |(module, installed): (&String, &InstalledModule)| {
        let channel = installed.channel.as_ref()?;
        Some((module.clone(), govern(configs, labels, channel, &channel_entry(module, channel))))
    };
    leaving.filter_map(entry_of).collect()
}

/// Returns the removed entry as far as it is known. The user's values and approvals were removed with it.
fn channel_entry(module: &str, channel: &str) -> ModuleEntry {
    ModuleEntry { channel: Some(channel.to_owned()), ..ModuleEntry::of(module) }
}

/// Returns whether the version needs no approval or a ModuleConfig approves it: the user's entry no longer exists.
fn is_approved(effective: &EffectiveEntry, installed: &InstalledModule, install: &Install) -> bool {
    let upgrade = &effective.entry.upgrade;
    let is_manual = installed.is_manual || upgrade.mode == UpgradeMode::Manual;
    let is_pinned = effective.entry.version.is_some();
    !is_manual || is_pinned || upgrade.approved.as_ref() == Some(&install.version)
}

/// Returns the version to upgrade to, as for an entry. It keeps the recorded channel, even if a ModuleConfig names
/// another one or a version, and of the entry only the fields that ModuleConfigs set.
fn choose(
    inputs: &Inputs<'_>,
    effective: &EffectiveEntry,
    channel: &str,
    subscription: &mut Subscription,
) -> Option<Install> {
    if effective.objection.is_some() {
        return None;
    }
    let install = super::choose(inputs, &effective.entry, subscription).ok()?;
    let central = effective.entry.central.clone();
    let entry = Arc::new(ModuleEntry { central, ..ModuleEntry::of(&effective.entry.name) });
    Some(Install { channel: Some(channel.to_owned()), entry, ..install })
}

fn is_upgrade(
    inputs: &Inputs<'_>,
    effective: &EffectiveEntry,
    installed: &InstalledModule,
    install: &Install,
) -> bool {
    installed.requested_version() != Some(install.version.as_str())
        && kind_changed(installed, install).is_none()
        && version::check_upgrade(installed, install).is_none()
        && pause::check_upgrade(inputs, installed, install).is_none()
        && deprecation::deprecated(inputs, install).is_none()
        && rollout::check_upgrade(&effective.entry, installed, install).is_none()
        && template_change::check_content(inputs, Some(installed), install).is_none()
}
