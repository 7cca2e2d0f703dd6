//! Decides about each module: install a version, keep the installed one, remove, unmanage, or refuse. Pure.
//!
//! Missing data never causes a removal: a missing release meta or template, a lost label or an invalid entry
//! keeps what is installed and is reported. `resolve/cases.yaml` is the specification.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kyma_api::component::DeletionReason;
use kyma_api::{Reason, State};

use crate::decision::maintenance::Maintenance;
use crate::decision::missing_components::MissingComponent;
use crate::decision::selection::ModuleEntry;
use crate::hub::catalogue::{Catalogue, Release, Subscription};
use crate::hub::component::{TemplateRecord, TemplateRecords, kind_of};
use crate::hub::config::{self, ConfigUids, Configs, EffectiveEntry};

mod approval;
mod blocked_removal;
mod choice;
mod decision;
mod deprecation;
mod downtime;
mod missing_component;
mod pause;
mod rollout;
mod template_change;
mod upgrade_wait;
mod version;

pub(crate) use blocked_removal::govern_leaving;
use choice::{channel_of, choose, template};
pub(crate) use decision::{Decision, Install, ModuleProblem, ResolvedModule};
pub(crate) use missing_component::finish_removal;
pub(crate) use upgrade_wait::UpgradeWait;
pub(crate) use version::compare;

/// Inputs of the decisions about one Kyma.
#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    /// Labels of the hub's Kyma, which decide about visibility.
    pub(crate) labels: &'a BTreeMap<String, String>,
    /// The `spec.channel` in force.
    pub(crate) channel: &'a str,
    /// The entries of the user after ModuleConfigs were applied.
    pub(crate) entries: &'a [EffectiveEntry],
    /// The entries in force of modules whose removal is blocked, by module.
    pub(crate) leaving: &'a BTreeMap<String, EffectiveEntry>,
    /// ModuleConfigs; they also apply to mandatory modules without an entry.
    pub(crate) configs: &'a Configs,
    /// ModuleConfigs on record that are missing and stay in force, by module.
    pub(crate) missing_configs: &'a BTreeMap<String, ConfigUids>,
    /// Installed modules by name.
    pub(crate) installed: &'a BTreeMap<String, InstalledModule>,
    /// The catalogue.
    pub(crate) catalogue: &'a Catalogue,
    /// Template records of all components.
    pub(crate) contents: &'a TemplateRecords,
    /// Recorded versions of modules without a component.
    pub(crate) recorded: &'a BTreeMap<String, String>,
    /// The operator's settings.
    pub(crate) policy: &'a Policy,
    /// Reason of the Pause that stops upgrades now.
    pub(crate) upgrades_paused: Option<&'a str>,
    /// Components that are recorded but do not exist.
    pub(crate) missing_components: &'a [MissingComponent],
    /// The maintenance policy.
    pub(crate) maintenance: &'a Maintenance,
    /// Whether upgrades ignore maintenance windows.
    pub(crate) skips_windows: bool,
    /// Since when upgrades have been waiting for approval, by module.
    pub(crate) offered: &'a BTreeMap<String, Timestamp>,
    /// Time of the decision.
    pub(crate) now: Timestamp,
}

/// Settings that change decisions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    /// Modules that need a `kymaSelector` that matches (flag `restricted-default-modules`).
    pub(crate) restricted: BTreeSet<String>,
    /// Uninstall a module that its Kyma may no longer have, as KLM does, instead of freezing it.
    pub(crate) uninstall_on_visibility_loss: bool,
    /// API groups that component kinds may belong to, besides Kyma's own.
    pub(crate) component_groups: BTreeSet<String>,
}

/// State of an installed module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct InstalledModule {
    /// API group of its component: a component keeps its kind across API versions.
    pub(crate) group: String,
    /// The component's kind.
    pub(crate) kind: String,
    /// The version that was last requested.
    pub(crate) desired_version: Option<String>,
    /// The version that its reconciler reports.
    pub(crate) running: Option<String>,
    /// The channel it came from.
    pub(crate) channel: Option<String>,
    /// Whether it was installed because it is mandatory.
    pub(crate) mandatory: bool,
    /// Whether its removal was requested.
    pub(crate) leaving: bool,
    /// The ModuleTemplate that it was made from.
    pub(crate) template: Option<TemplateRecord>,
    /// Whether upgrades needed approval by the last entry.
    pub(crate) is_manual: bool,
}

impl InstalledModule {
    /// Returns the requested version, or the running one if no request is known. Another version is a change.
    pub(crate) fn requested_version(&self) -> Option<&str> {
        self.desired_version.as_deref().or(self.running.as_deref())
    }

    /// Returns the version that a downgrade is compared with: the running one, or the requested one if the reconciler
    /// reports none.
    pub(crate) fn version(&self) -> Option<&str> {
        self.running.as_deref().or(self.desired_version.as_deref())
    }
}

/// Decides about every module of a Kyma: first those with an entry, in the user's order, then mandatory modules, then
/// installed modules without an entry, then modules whose component is missing.
pub(crate) fn resolve(inputs: &Inputs<'_>) -> Vec<ResolvedModule> {
    let mut decided: Vec<ResolvedModule> =
        inputs.entries.iter().map(|effective| decide(inputs, effective)).collect();
    let listed: BTreeSet<&str> =
        inputs.entries.iter().map(|effective| effective.entry.name.as_str()).collect();
    let mandatory: Vec<ResolvedModule> =
        inputs.catalogue.mandatory().filter_map(|release| decide_mandatory(inputs, release)).collect();
    let is_mandatory: BTreeSet<String> = mandatory.iter().map(|resolved| resolved.module.clone()).collect();
    decided.extend(mandatory);
    for (module, installed) in inputs.installed {
        if !listed.contains(module.as_str()) && !is_mandatory.contains(module) {
            let removal = decide_without_entry(inputs.catalogue, module, installed);
            decided.push(blocked_removal::decide_upgrade(inputs, installed, removal));
        }
    }
    let gone =
        |missing: &&MissingComponent| !decided.iter().any(|resolved| resolved.module == missing.module);
    let missing = inputs.missing_components.iter().filter(gone);
    let missing: Vec<ResolvedModule> =
        missing.map(|missing| missing_component::decide_without_entry(inputs.catalogue, missing)).collect();
    decided.extend(missing);
    decided
}

fn decide(inputs: &Inputs<'_>, effective: &EffectiveEntry) -> ResolvedModule {
    let entry = &effective.entry;
    let installed = inputs.installed.get(&entry.name);
    let recorded = || inputs.recorded.get(&entry.name).map(String::as_str);
    let running = installed.map_or_else(recorded, InstalledModule::version);
    let mut subscription = Subscription {
        module: entry.name.clone(),
        channel: entry.version.is_none().then(|| channel_of(inputs, entry).to_owned()),
        versions: running.map(str::to_owned).into_iter().collect(),
    };
    // Also for a refused pin: the catalogue may offer the version later.
    subscription.versions.extend(entry.version.clone());
    let mut deprecated = None;
    let decision = if let Some(objection) = &effective.objection {
        refuse_entry(installed, objection)
    } else if entry.managed || entry.invalid.is_some() {
        match choose(inputs, entry, &mut subscription) {
            Ok(install) => {
                deprecated = deprecation::due(inputs, &install);
                decide_version(inputs, entry, installed, install)
            }
            Err(problem) => refuse_or_keep(inputs, installed, problem),
        }
    } else {
        Decision::Unmanage
    };
    let opens = match &decision {
        Decision::Await(_, wait) => wait.until(),
        _ => None,
    };
    let until = deprecated.into_iter().chain(opens).min();
    ResolvedModule {
        module: entry.name.clone(),
        decision,
        subscription,
        until,
        configs: entry.central.configs.clone(),
    }
}

/// Returns the decision for an entry that is refused: the installed component stays unchanged.
fn refuse_entry(installed: Option<&InstalledModule>, objection: &ModuleProblem) -> Decision {
    match installed {
        Some(_) => Decision::Keep(ModuleProblem { state: State::Warning, ..objection.clone() }),
        None => Decision::Refuse(objection.clone()),
    }
}

/// Decides about a selected version, compared with the installed one.
fn decide_version(
    inputs: &Inputs<'_>,
    entry: &ModuleEntry,
    installed: Option<&InstalledModule>,
    install: Install,
) -> Decision {
    if let Some(problem) = template_change::check_content(inputs, installed, &install) {
        let is_other =
            |installed: &&InstalledModule| installed.requested_version() != Some(install.version.as_str());
        return match installed.filter(is_other) {
            Some(installed) => keep_version(inputs, installed, &install, problem),
            None => refuse_entry(installed, &ModuleProblem { state: State::Error, ..problem }),
        };
    }
    let Some(installed) = installed else { return install_new(inputs, entry, install) };
    decide_replacement(inputs, entry, installed, install)
}

/// Decides about a version that replaces the installed one.
fn decide_replacement(
    inputs: &Inputs<'_>,
    entry: &ModuleEntry,
    installed: &InstalledModule,
    install: Install,
) -> Decision {
    if let Some(problem) = kind_changed(installed, &install) {
        return Decision::Keep(problem);
    }
    check_replacement(inputs, entry, installed, &install).unwrap_or(Decision::Install(install))
}

/// Returns the decision if the version must not replace the installed one, or not yet.
fn check_replacement(
    inputs: &Inputs<'_>,
    entry: &ModuleEntry,
    installed: &InstalledModule,
    install: &Install,
) -> Option<Decision> {
    version::check_upgrade(installed, install)
        .or_else(|| pause::check_upgrade(inputs, installed, install))
        .or_else(|| rollout::check_upgrade(entry, installed, install))
        .map(|problem| keep_version(inputs, installed, install, problem))
        .or_else(|| deprecation::decide(inputs, installed, install))
        .or_else(|| approval::decide(inputs, entry, installed, install))
        .or_else(|| downtime::decide(inputs, installed, install))
}

/// Decides about a module without a component. If the component is missing, the module still runs in its recorded
/// version; the rules for upgrades apply as if the component existed.
fn install_new(inputs: &Inputs<'_>, entry: &ModuleEntry, install: Install) -> Decision {
    if let Some(installed) = missing_component::recorded_module(inputs, &install) {
        return decide_replacement(inputs, entry, &installed, install);
    }
    match deprecation::deprecated(inputs, &install) {
        Some(why) => Decision::Refuse(ModuleProblem::error(Reason::VersionDeprecated, why)),
        None => Decision::Install(install),
    }
}

fn keep_version(
    inputs: &Inputs<'_>,
    installed: &InstalledModule,
    install: &Install,
    problem: ModuleProblem,
) -> Decision {
    match kept(inputs, installed, install) {
        Some(kept) => Decision::KeepVersion(kept, problem),
        None => Decision::Keep(problem),
    }
}

/// Returns the requested version with its present template; `None` if the catalogue lacks it or has it with other
/// content.
fn kept(inputs: &Inputs<'_>, installed: &InstalledModule, install: &Install) -> Option<Install> {
    let version = installed.requested_version()?;
    let template = inputs.catalogue.template(&install.release.module, version)?;
    let kept = Install {
        template: Arc::clone(template),
        version: version.to_owned(),
        channel: installed.channel.clone(),
        ..install.clone()
    };
    template_change::check_content(inputs, Some(installed), &kept).is_none().then_some(kept)
}

/// Returns the decision for a version that cannot be selected: an installed module stays. After a loss of visibility
/// it is removed only if a flag says so.
fn refuse_or_keep(
    inputs: &Inputs<'_>,
    installed: Option<&InstalledModule>,
    problem: ModuleProblem,
) -> Decision {
    let is_hidden = problem.reason == Reason::NotVisible;
    match installed {
        None => Decision::Refuse(problem),
        // The component is not this entry's: every Kyma has one.
        Some(installed) if problem.reason == Reason::Mandatory && installed.mandatory => {
            Decision::Refuse(problem)
        }
        Some(_) if is_hidden && inputs.policy.uninstall_on_visibility_loss => {
            Decision::Remove { reason: DeletionReason::Withdrawn, problem: Some(problem) }
        }
        Some(_) if is_hidden => Decision::Keep(ModuleProblem {
            reason: Reason::NotVisible,
            state: State::Warning,
            message: format!("{}; the installed version stays", problem.message),
        }),
        Some(_) => Decision::Keep(problem),
    }
}

/// Decides about a mandatory module by its release meta. Returns `None` if that is being deleted and the module is
/// not installed as mandatory.
fn decide_mandatory(inputs: &Inputs<'_>, release: &Arc<Release>) -> Option<ResolvedModule> {
    let version = release.mandatory.clone().unwrap_or_default();
    let installed = inputs.installed.get(&release.module);
    if release.deleting {
        let installed = installed.filter(|installed| installed.mandatory)?;
        return Some(decide_without_entry(inputs.catalogue, &release.module, installed));
    }
    let subscription = Subscription {
        module: release.module.clone(),
        channel: None,
        versions: BTreeSet::from([version.clone()]),
    };
    let decision = match template(inputs, &release.module, &version) {
        Err(problem) => refuse_or_keep(inputs, installed, problem),
        Ok(template) => {
            let release = Arc::clone(release);
            let central = inputs.configs.central(inputs.labels, &release.module);
            let entry = Arc::new(ModuleEntry { central, ..ModuleEntry::of(&release.module) });
            let install = Install { template, release, version, channel: None, mandatory: true, entry };
            let recorded = missing_component::recorded_mandatory_module(
                inputs.missing_components,
                &install.release.module,
            );
            let problem = installed.or(recorded.as_ref()).and_then(|installed| {
                missing_config(inputs, &install.release.module)
                    .or_else(|| kind_changed(installed, &install))
                    .or_else(|| version::check_upgrade(installed, &install))
                    .or_else(|| pause::check_upgrade(inputs, installed, &install))
                    .or_else(|| rollout::check_upgrade(&install.entry, installed, &install))
            });
            match (problem, template_change::check_content(inputs, installed, &install)) {
                (Some(problem), _) => Decision::Keep(problem),
                (None, Some(changed)) => refuse_entry(installed, &changed),
                (None, None) => Decision::Install(install),
            }
        }
    };
    Some(ResolvedModule {
        module: release.module.clone(),
        decision,
        subscription,
        until: None,
        configs: ConfigUids::new(),
    })
}

/// Returns why a module without an entry stays unchanged: a recorded ModuleConfig is missing.
fn missing_config(inputs: &Inputs<'_>, module: &str) -> Option<ModuleProblem> {
    let name = inputs.missing_configs.get(module)?.keys().next()?;
    Some(config::missing_config_problem(name))
}

/// Decides about an installed module without an entry. A mandatory module stays until the deletion of its release
/// meta was requested; a missing one is not a request.
fn decide_without_entry(catalogue: &Catalogue, module: &str, installed: &InstalledModule) -> ResolvedModule {
    let subscription = Subscription {
        module: module.to_owned(),
        channel: None,
        versions: installed.version().map(str::to_owned).into_iter().collect(),
    };
    let decision = if !installed.mandatory {
        Decision::Remove { reason: DeletionReason::Disabled, problem: None }
    } else if catalogue.is_withdrawn(module) {
        Decision::Remove { reason: DeletionReason::Withdrawn, problem: None }
    } else {
        Decision::Keep(no_longer_mandatory(module))
    };
    ResolvedModule {
        module: module.to_owned(),
        decision,
        subscription,
        until: None,
        configs: ConfigUids::new(),
    }
}

/// Returns the problem of a mandatory module that no release meta makes mandatory, and whose removal was not requested.
fn no_longer_mandatory(module: &str) -> ModuleProblem {
    let message = format!("module {module} is no longer mandatory; it stays unchanged");
    ModuleProblem::warning(Reason::Mandatory, message)
}

/// Returns the problem if the version names another component kind: two components would fight over the same objects.
fn kind_changed(installed: &InstalledModule, install: &Install) -> Option<ModuleProblem> {
    let desired = kind_of(&install.template);
    let (group, kind) = (desired.group(), desired.kind.as_str());
    if installed.group == group && installed.kind == kind {
        return None;
    }
    let message = format!(
        "module {} is installed by {}.{}; version {} names {kind}.{group}, and a module's component kind cannot \
         change: remove the module and enable it again",
        install.release.module, installed.kind, installed.group, install.version
    );
    Some(ModuleProblem::error(Reason::KindChanged, message))
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
