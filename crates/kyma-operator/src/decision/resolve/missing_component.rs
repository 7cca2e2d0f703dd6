//! Modules whose component is missing: their removal and their recorded state.

use std::collections::BTreeSet;
use std::sync::Arc;

use kyma_api::component::DeletionReason;
use kyma_api::{Reason, State};

use super::choice::missing_release;
use super::{
    Decision, Inputs, Install, InstalledModule, ModuleProblem, ResolvedModule, kind_of, no_longer_mandatory,
};
use crate::decision::missing_components::MissingComponent;
use crate::decision::selection::ModuleEntry;
use crate::hub::catalogue::{Catalogue, Subscription};
use crate::hub::config::ConfigUids;

/// Decides about a module to be removed whose component is missing. Without its template, which names the objects of
/// users that block a removal, nothing is removed.
pub(crate) fn finish_removal(
    catalogue: &Catalogue,
    missing: &MissingComponent,
    reason: DeletionReason,
) -> ResolvedModule {
    let decision = match install(catalogue, missing) {
        Ok(install) => Decision::FinishRemoval(install, reason),
        Err(problem) => Decision::Keep(problem),
    };
    resolved_module(missing, decision)
}

/// Returns the decision with the catalogue objects that can change it.
fn resolved_module(missing: &MissingComponent, decision: Decision) -> ResolvedModule {
    let subscription = Subscription {
        module: missing.module.clone(),
        channel: None,
        versions: BTreeSet::from([missing.version.clone()]),
    };
    ResolvedModule {
        module: missing.module.clone(),
        decision,
        subscription,
        until: None,
        configs: ConfigUids::new(),
    }
}

/// Decides about a module without an entry whose component is missing. A mandatory module stays until the deletion of
/// its release meta was requested.
pub(super) fn decide_without_entry(catalogue: &Catalogue, missing: &MissingComponent) -> ResolvedModule {
    if !missing.mandatory {
        return finish_removal(catalogue, missing, DeletionReason::Disabled);
    }
    if catalogue.is_withdrawn(&missing.module) {
        return finish_removal(catalogue, missing, DeletionReason::Withdrawn);
    }
    resolved_module(missing, Decision::Keep(no_longer_mandatory(&missing.module)))
}

/// Returns the recorded state of a module without a component that a user selects: it still runs on the target. If its
/// component kind is not on record, that of the selected version counts.
pub(super) fn recorded_module(inputs: &Inputs<'_>, install: &Install) -> Option<InstalledModule> {
    let module = &install.release.module;
    let version = inputs.recorded.get(module)?;
    let missing =
        inputs.missing_components.iter().find(|missing| !missing.mandatory && missing.module == *module);
    let kind = missing.map_or_else(|| kind_of(&install.template), |missing| missing.kind.clone());
    Some(InstalledModule {
        group: kind.group().to_owned(),
        kind: kind.kind,
        desired_version: Some(version.clone()),
        channel: install.channel.clone(),
        ..InstalledModule::default()
    })
}

/// Returns the recorded state of a mandatory module whose component is missing: it still runs on the target.
pub(super) fn recorded_mandatory_module(
    missing_components: &[MissingComponent],
    module: &str,
) -> Option<InstalledModule> {
    let missing = missing_components.iter().find(|missing| missing.mandatory && missing.module == module)?;
    Some(InstalledModule {
        group: missing.kind.group().to_owned(),
        kind: missing.kind.kind.clone(),
        desired_version: Some(missing.version.clone()),
        mandatory: true,
        ..InstalledModule::default()
    })
}

fn install(catalogue: &Catalogue, missing: &MissingComponent) -> Result<Install, ModuleProblem> {
    let release = catalogue.release(&missing.module).ok_or_else(|| missing_release(&missing.module))?;
    let template_missing = || {
        let message = format!(
            "no ModuleTemplate found for module {} in version {}: it is needed to remove the module",
            missing.module, missing.version
        );
        ModuleProblem { reason: Reason::ModuleTemplateMissing, state: State::Warning, message }
    };
    let template = catalogue.template(&missing.module, &missing.version).ok_or_else(template_missing)?;
    let found = kind_of(template);
    if found.group() != missing.kind.group() || found.kind != missing.kind.kind {
        let message = format!(
            "module {} was installed by {}, and its template in version {} names {found}",
            missing.module, missing.kind, missing.version
        );
        return Err(ModuleProblem::error(Reason::KindChanged, message));
    }
    Ok(Install {
        template: Arc::clone(template),
        release: Arc::clone(release),
        version: missing.version.clone(),
        channel: missing.channel.clone(),
        mandatory: missing.mandatory,
        entry: Arc::new(ModuleEntry::of(&missing.module)),
    })
}
