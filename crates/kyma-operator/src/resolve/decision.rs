//! What is decided about a module.

use std::sync::Arc;

use jiff::Timestamp;
use kyma_api::component::DeletionReason;
use kyma_api::{Reason, State};

use super::Awaited;
use crate::catalogue::{Interest, Release, Template};
use crate::config::ConfigUids;
use crate::selection::Wish;

/// The decision about one module.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    /// The module.
    pub(crate) module: String,
    /// What to do.
    pub(crate) decision: Decision,
    /// Which catalogue changes may change it.
    pub(crate) interest: Interest,
    /// When time alone may change it.
    pub(crate) until: Option<Timestamp>,
    /// The ModuleConfigs under which it was made.
    pub(crate) configs: ConfigUids,
}

/// What to do with a module.
#[derive(Debug, Clone)]
pub(crate) enum Decision {
    /// Have this version.
    Install(Install),
    /// Leave the installed component as it is.
    Keep(ModuleProblem),
    /// Keep the installed version, but let the entry's other fields (values, policy) through.
    KeepVersion(Install, ModuleProblem),
    /// The same until what it waits for has come; nothing is wrong. None: the catalogue no longer has the installed
    /// version, so what is installed is left as it is.
    Await(Option<Install>, Awaited),
    /// Take it away.
    Remove {
        /// What the order says.
        reason: DeletionReason,
        /// What the Kyma's user is told; none where the user wished it.
        problem: Option<ModuleProblem>,
    },
    /// It is being removed, as ordered; until that can be done, have this version of it.
    Leave(Install),
    /// It lost its component and is to go: have one again, with the order to remove.
    Finish(Install, DeletionReason),
    /// Let go of it; everything on the target stays.
    Unmanage,
    /// Nothing is installed, and nothing will be.
    Refuse(ModuleProblem),
}

/// A version to have.
#[derive(Debug, Clone)]
pub(crate) struct Install {
    /// Its content.
    pub(crate) template: Arc<Template>,
    /// Where its artefact is named.
    pub(crate) release: Arc<Release>,
    /// The version.
    pub(crate) version: String,
    /// The channel it comes from; none for a pin or a mandatory module.
    pub(crate) channel: Option<String>,
    /// Every Kyma gets it; no entry in the module status.
    pub(crate) mandatory: bool,
    /// What the entry says beside the version; nothing for what nobody asks for.
    pub(crate) wish: Arc<Wish>,
}

/// Why an entry is not followed, or a module stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModuleProblem {
    /// The stable reason.
    pub(crate) reason: Reason,
    /// What the module's status says.
    pub(crate) state: State,
    /// What happened and what to do.
    pub(crate) message: String,
}

impl ModuleProblem {
    /// The user or the catalogue's author must act.
    pub(crate) fn error(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, state: State::Error, message: message.into() }
    }

    /// What runs is fine, what is asked for is not done.
    pub(crate) fn warning(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, state: State::Warning, message: message.into() }
    }
}
