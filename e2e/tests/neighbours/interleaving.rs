//! Interleavings of the install, upgrade and removal of two modules, and the expected content of a target after each
//! step.

use std::fmt;

use crate::editions::{EDITIONS, Edition, MODULES};

/// An action on a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Install,
    Upgrade,
    Remove,
}

/// All actions on a module, in order.
const ACTIONS: [Action; 3] = [Action::Install, Action::Upgrade, Action::Remove];

/// An action on one of the two modules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) action: Action,
    pub(crate) module: usize,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            Action::Install => 'i',
            Action::Upgrade => 'u',
            Action::Remove => 'r',
        };
        write!(formatter, "{action}{}", if self.module == 0 { 'a' } else { 'b' })
    }
}

/// An interleaving of the actions on both modules.
pub(crate) struct Interleaving(pub(crate) Vec<Step>);

impl fmt::Display for Interleaving {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        formatter.write_str(&steps.join(" "))
    }
}

/// Returns every interleaving of the actions on both modules.
pub(crate) fn all() -> Vec<Interleaving> {
    fn extend(done: [usize; 2], steps: &[Step], all: &mut Vec<Interleaving>) {
        if done == [ACTIONS.len(); 2] {
            all.push(Interleaving(steps.to_vec()));
        }
        for module in 0..2 {
            if let Some(&action) = ACTIONS.get(done[module]) {
                let mut done = done;
                done[module] += 1;
                extend(done, &[steps, &[Step { action, module }]].concat(), all);
            }
        }
    }
    let mut all = Vec::new();
    extend([0, 0], &[], &mut all);
    all
}

/// The expected content of a target.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpectedContent {
    /// The requested edition of each module.
    pub(crate) editions: [Option<&'static Edition>; 2],
    /// The module that owns the ClusterRole, of which there can be only one.
    pub(crate) holder: Option<usize>,
}

impl ExpectedContent {
    pub(crate) fn after(mut self, step: Step) -> Self {
        self.editions[step.module] = match step.action {
            Action::Install => EDITIONS.iter().find(|edition| edition.module == MODULES[step.module]),
            Action::Upgrade => EDITIONS.iter().rfind(|edition| edition.module == MODULES[step.module]),
            Action::Remove => None,
        };
        if self.holder.is_some_and(|holder| !self.wants_role(holder)) {
            self.holder = None;
        }
        self.holder = self.holder.or_else(|| (0..2).find(|module| self.wants_role(*module)));
        self
    }

    fn wants_role(&self, module: usize) -> bool {
        self.editions[module].is_some_and(|edition| edition.has_role)
    }

    /// Reports whether a module is refused since the other one owns the ClusterRole.
    pub(crate) fn is_refused(&self, module: usize) -> bool {
        self.wants_role(module) && self.holder != Some(module)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.editions.iter().all(Option::is_none)
    }
}
