//! Modules whose component is missing: their removal, and what is recorded of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use kyma_api::component::DeletionReason;
use kyma_api::{Reason, State};

use super::choice::missing_release;
use super::{
    Decision, Inputs, Install, InstalledModule, ModuleProblem, ResolvedModule, kind_of, no_longer_mandatory,
};
use crate::catalogue::{Catalogue, Interest};
use crate::config::ConfigUids;
use crate::lost::LostModule;
use crate::selection::ModuleEntry;

/// Decides about a module to be removed that lost its component. Without its template, which names the objects of
/// users that block a removal, nothing is removed.
pub(crate) fn finish(catalogue: &Catalogue, lost: &LostModule, reason: DeletionReason) -> ResolvedModule {
    let decision = match install(catalogue, lost) {
        Ok(install) => Decision::Finish(install, reason),
        Err(problem) => Decision::Keep(problem),
    };
    resolved_module(lost, decision)
}

/// Returns the decision with the catalogue objects that can change it.
fn resolved_module(lost: &LostModule, decision: Decision) -> ResolvedModule {
    let interest = Interest {
        module: lost.module.clone(),
        channel: None,
        versions: BTreeSet::from([lost.version.clone()]),
    };
    ResolvedModule {
        module: lost.module.clone(),
        decision,
        interest,
        until: None,
        configs: ConfigUids::new(),
    }
}

/// Decides about a lost module without an entry. A mandatory module stays until the deletion of its release meta was
/// requested.
pub(super) fn unlisted(catalogue: &Catalogue, lost: &LostModule) -> ResolvedModule {
    if !lost.mandatory {
        return finish(catalogue, lost, DeletionReason::Disabled);
    }
    if catalogue.is_withdrawn(&lost.module) {
        return finish(catalogue, lost, DeletionReason::Withdrawn);
    }
    resolved_module(lost, Decision::Keep(no_longer_mandatory(&lost.module)))
}

/// Returns the recorded state of a module without a component that a user selects: it still runs on the target. If its
/// component kind is not on record, that of the selected version counts.
pub(super) fn recorded(inputs: &Inputs<'_>, install: &Install) -> Option<InstalledModule> {
    let module = &install.release.module;
    let version = inputs.recorded.get(module)?;
    let lost = inputs.lost.iter().find(|lost| !lost.mandatory && lost.module == *module);
    let kind = lost.map_or_else(|| kind_of(&install.template), |lost| lost.kind.clone());
    Some(InstalledModule {
        group: kind.group().to_owned(),
        kind: kind.kind,
        ordered: Some(version.clone()),
        channel: install.channel.clone(),
        ..InstalledModule::default()
    })
}

/// Returns the recorded state of a mandatory module that lost its component: it still runs on the target.
pub(super) fn recorded_mandatory(lost: &[LostModule], module: &str) -> Option<InstalledModule> {
    let lost = lost.iter().find(|lost| lost.mandatory && lost.module == module)?;
    Some(InstalledModule {
        group: lost.kind.group().to_owned(),
        kind: lost.kind.kind.clone(),
        ordered: Some(lost.version.clone()),
        mandatory: true,
        ..InstalledModule::default()
    })
}

fn install(catalogue: &Catalogue, lost: &LostModule) -> Result<Install, ModuleProblem> {
    let release = catalogue.release(&lost.module).ok_or_else(|| missing_release(&lost.module))?;
    let missing = || {
        let message = format!(
            "no ModuleTemplate found for module {} in version {}: it is needed to remove the module",
            lost.module, lost.version
        );
        ModuleProblem { reason: Reason::ModuleTemplateMissing, state: State::Warning, message }
    };
    let template = catalogue.template(&lost.module, &lost.version).ok_or_else(missing)?;
    let found = kind_of(template);
    if found.group() != lost.kind.group() || found.kind != lost.kind.kind {
        let message = format!(
            "module {} was installed by {}, and its template in version {} names {found}",
            lost.module, lost.kind, lost.version
        );
        return Err(ModuleProblem::error(Reason::KindChanged, message));
    }
    Ok(Install {
        template: Arc::clone(template),
        release: Arc::clone(release),
        version: lost.version.clone(),
        channel: lost.channel.clone(),
        mandatory: lost.mandatory,
        entry: Arc::new(ModuleEntry::of(&lost.module)),
    })
}
