//! The decision about a module.

use std::sync::Arc;

use jiff::Timestamp;
use kyma_api::component::DeletionReason;
use kyma_api::{Reason, State};

use super::UpgradeWait;
use crate::decision::selection::ModuleEntry;
use crate::hub::catalogue::{Release, Subscription, Template};
use crate::hub::config::ConfigUids;

/// The decision about one module.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedModule {
    /// The module.
    pub(crate) module: String,
    /// The next action.
    pub(crate) decision: Decision,
    /// The catalogue objects whose changes may change the decision.
    pub(crate) subscription: Subscription,
    /// When the decision may change without an event.
    pub(crate) until: Option<Timestamp>,
    /// The ModuleConfigs that the decision applied.
    pub(crate) configs: ConfigUids,
}

/// The action for a module.
#[derive(Debug, Clone)]
pub(crate) enum Decision {
    /// Install this version, or keep it installed.
    Install(Install),
    /// Keep the installed component unchanged.
    Keep(ModuleProblem),
    /// Keep the installed version, but apply the entry's other fields (values, policy).
    KeepVersion(Install, ModuleProblem),
    /// Keep the installed version until the upgrade may start; this is no problem. `None` if the catalogue no longer
    /// has the installed version: the installed component then stays unchanged.
    Await(Option<Install>, UpgradeWait),
    /// Remove the module.
    Remove {
        /// The reason in the deletion request.
        reason: DeletionReason,
        /// The problem to report; `None` if the user requested the removal.
        problem: Option<ModuleProblem>,
    },
    /// Upgrade a module whose requested removal is blocked to this version.
    UpgradeDuringRemoval(Install),
    /// Create a component with a deletion request for a module to be removed whose component is missing.
    FinishRemoval(Install, DeletionReason),
    /// Delete the component and leave everything on the target.
    Unmanage,
    /// Install nothing; the module is not installed.
    Refuse(ModuleProblem),
}

/// A version to install.
#[derive(Debug, Clone)]
pub(crate) struct Install {
    /// The version's ModuleTemplate.
    pub(crate) template: Arc<Template>,
    /// The module's release meta, which names the OCM component.
    pub(crate) release: Arc<Release>,
    /// The version.
    pub(crate) version: String,
    /// The channel of the version; `None` for a pinned version or a mandatory module.
    pub(crate) channel: Option<String>,
    /// Whether the module is mandatory: it has no line in the module status unless it is removed or kept.
    pub(crate) mandatory: bool,
    /// The entry; without an entry, its defaults and the overrides of ModuleConfigs.
    pub(crate) entry: Arc<ModuleEntry>,
}

/// The reason why an entry is not followed or a module stays unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModuleProblem {
    /// The machine-readable reason.
    pub(crate) reason: Reason,
    /// The state of the module that results.
    pub(crate) state: State,
    /// Cause of the problem, and how to resolve it.
    pub(crate) message: String,
}

impl ModuleProblem {
    /// Creates a problem that the user or the catalogue's author has to resolve.
    pub(crate) fn error(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, state: State::Error, message: message.into() }
    }

    /// Creates a problem that leaves the installed version as it is and its entry unfulfilled.
    pub(crate) fn warning(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, state: State::Warning, message: message.into() }
    }
}
