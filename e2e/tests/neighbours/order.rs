//! Orders in which two modules are installed, upgraded and removed, and what each owns after each step.

use std::fmt;

use crate::editions::{EDITIONS, Edition, MODULES};

/// An action on a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Install,
    Upgrade,
    Remove,
}

/// All actions on a module, in order.
const LIFE: [Deed; 3] = [Deed::Install, Deed::Upgrade, Deed::Remove];

/// An action on one of the two modules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) deed: Deed,
    pub(crate) module: usize,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deed = match self.deed {
            Deed::Install => 'i',
            Deed::Upgrade => 'u',
            Deed::Remove => 'r',
        };
        write!(formatter, "{deed}{}", if self.module == 0 { 'a' } else { 'b' })
    }
}

/// An interleaving of the actions on both modules.
pub(crate) struct Order(pub(crate) Vec<Step>);

impl fmt::Display for Order {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        formatter.write_str(&steps.join(" "))
    }
}

/// Returns every interleaving of the actions on both modules.
pub(crate) fn all() -> Vec<Order> {
    fn go_on(done: [usize; 2], steps: &[Step], all: &mut Vec<Order>) {
        if done == [LIFE.len(); 2] {
            all.push(Order(steps.to_vec()));
        }
        for module in 0..2 {
            if let Some(&deed) = LIFE.get(done[module]) {
                let mut done = done;
                done[module] += 1;
                go_on(done, &[steps, &[Step { deed, module }]].concat(), all);
            }
        }
    }
    let mut all = Vec::new();
    go_on([0, 0], &[], &mut all);
    all
}

/// The expected content of a target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    /// The requested edition of each module.
    pub(crate) editions: [Option<&'static Edition>; 2],
    /// The module that owns the ClusterRole, of which there can be only one.
    pub(crate) holder: Option<usize>,
}

impl Expected {
    pub(crate) fn after(mut self, step: Step) -> Self {
        self.editions[step.module] = match step.deed {
            Deed::Install => EDITIONS.iter().find(|edition| edition.module == MODULES[step.module]),
            Deed::Upgrade => EDITIONS.iter().rfind(|edition| edition.module == MODULES[step.module]),
            Deed::Remove => None,
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
