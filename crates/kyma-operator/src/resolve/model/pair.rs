//! The model of a hub and a target that is a cluster of its own: who may write, and what is to be, while one of them is
//! out of reach and after it went back to a backup.

use std::collections::BTreeSet;

use super::{Action, Chosen, Entry, Installed, MODULES, World, put};

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Somebody does something; users do it on the target.
    Act(Action),
    /// The network between the two is whole, or broken.
    Network(bool),
    /// The access Secret becomes another one.
    Access(Access),
    /// Somebody deletes the target's Kyma.
    Forget,
    /// Somebody deletes a module's component.
    Lose(&'static str),
    /// Somebody edits what is the operator's to write.
    Meddle(Meddling),
    /// A backup is made; there is one of each side.
    Save(Side),
    /// The backup is restored.
    GoBack(Side),
    /// A person says that this hub is the one to go on.
    Adopt,
}

/// Hub or target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Hub,
    Target,
}

/// What the access Secret leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The target, with one token or the other.
    First,
    Second,
    /// It has a token that the target does not know.
    Wrong,
    /// There is none.
    Missing,
}

/// What somebody edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meddling {
    /// Labels and annotations of the target's Kyma.
    Marks,
    /// Its status.
    Status,
    /// What a module's component is to do when it is deleted: an order that nobody gave.
    Order(&'static str),
}

/// How the two stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contact {
    /// The hub decides and writes.
    Open,
    /// It cannot get there.
    None,
    /// The target got orders that the hub does not know of: a person has to say which is right.
    Refused,
}

/// Counts orders; who takes the target over begins anew in the next epoch. Two hubs that count alike have drawn another
/// mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Turn {
    epoch: u32,
    count: u32,
    mark: u32,
}

impl Turn {
    fn is_beyond(self, known: Self) -> bool {
        let place = |turn: Self| (turn.epoch, turn.count);
        place(self) > place(known) || place(self) == place(known) && self.mark != known.mark
    }
}

/// What is on the hub: also what it last saw of the target.
#[derive(Debug, Clone)]
pub(crate) struct Hub {
    pub(crate) world: World,
    pub(crate) access: Access,
    /// Modules whose component says that it is to go, and nobody ordered that.
    edited: BTreeSet<&'static str>,
    turn: Turn,
}

impl Hub {
    /// Whether the module has a component as the operator left it, and not to go.
    pub(crate) fn has(&self, module: &str) -> bool {
        let is_installed = |held: &Installed| !held.leaving && !self.edited.contains(module);
        self.world.installed.get(module).is_some_and(is_installed)
    }
}

/// What is on the target.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Its Kyma; somebody may have deleted it.
    pub(crate) chosen: Option<Chosen>,
    pub(crate) used: BTreeSet<&'static str>,
    turn: Turn,
}

/// Hub and target.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) hub: Hub,
    pub(crate) target: Target,
    pub(crate) is_connected: bool,
    saved_hub: Option<Hub>,
    saved_target: Option<Target>,
    /// Marks that were drawn.
    drawn: u32,
}

impl Pair {
    /// Both know each other, and nobody asks for anything.
    pub(crate) fn new() -> Self {
        let (world, turn) = (World::new(), Turn::default());
        Self {
            target: Target { chosen: Some(world.chosen.clone()), used: BTreeSet::new(), turn },
            hub: Hub { world, access: Access::First, edited: BTreeSet::new(), turn },
            is_connected: true,
            saved_hub: None,
            saved_target: None,
            drawn: 0,
        }
    }

    /// Something happens, and everything comes to rest.
    pub(crate) fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Act(action) => self.change(action),
            Deed::Network(is) => self.is_connected = is,
            Deed::Access(access) => self.hub.access = access,
            Deed::Forget => self.target.chosen = None,
            Deed::Lose(module) => {
                if self.hub.has(module) {
                    self.hub.world.lose(module);
                }
            }
            Deed::Meddle(Meddling::Order(module)) => {
                if self.hub.has(module) {
                    self.hub.edited.insert(module);
                }
            }
            // It is put right, which is no order.
            Deed::Meddle(Meddling::Marks | Meddling::Status) => {}
            Deed::Save(Side::Hub) => self.saved_hub = Some(self.hub.clone()),
            Deed::Save(Side::Target) => self.saved_target = Some(self.target.clone()),
            Deed::GoBack(Side::Hub) => self.hub = self.saved_hub.clone().unwrap_or(self.hub.clone()),
            Deed::GoBack(Side::Target) => {
                self.target = self.saved_target.clone().unwrap_or(self.target.clone());
            }
            Deed::Adopt => self.adopt(),
        }
        self.pass();
    }

    pub(crate) fn contact(&self) -> Contact {
        if !self.is_connected || matches!(self.hub.access, Access::Wrong | Access::Missing) {
            Contact::None
        } else if self.target.turn.is_beyond(self.hub.turn) {
            Contact::Refused
        } else {
            Contact::Open
        }
    }

    /// Whether there is a backup.
    pub(crate) fn has_saved(&self, side: Side) -> bool {
        match side {
            Side::Hub => self.saved_hub.is_some(),
            Side::Target => self.saved_target.is_some(),
        }
    }

    fn change(&mut self, action: Action) {
        match action {
            Action::Use(module, is) => put(&mut self.target.used, module, is),
            // Components' reconcilers get no further than we do.
            Action::Report(_) if self.contact() != Contact::Open => {}
            action if action.is_choice() => {
                if let Some(chosen) = &mut self.target.chosen {
                    chosen.act(action);
                }
            }
            action => self.hub.world.change(action),
        }
    }

    /// Only who reaches the target and knows of all its orders decides anything.
    fn pass(&mut self) {
        if self.contact() != Contact::Open {
            return;
        }
        // It went back to before it was taken over.
        if self.target.turn.epoch < self.hub.turn.epoch {
            self.target.turn = self.hub.turn;
        }
        let world = &mut self.hub.world;
        // One that is gone starts from the last choice that was seen.
        world.chosen = self.target.chosen.get_or_insert_with(|| world.chosen.clone()).clone();
        world.used.clone_from(&self.target.used);
        let before = world.clone();
        world.rest();
        let edited = std::mem::take(&mut self.hub.edited);
        let is_put_right = |module: &&str| {
            edited.contains(*module) && world.installed.get(*module).is_some_and(|held| !held.leaving)
        };
        if MODULES.iter().any(|module| is_put_right(module) || is_ordered(module, &before, world)) {
            self.take_turn();
        }
    }

    /// It is on record on both sides that something is ordered.
    fn take_turn(&mut self) {
        self.drawn += 1;
        let count = self.hub.turn.count.max(self.target.turn.count) + 1;
        let turn = Turn { count, mark: self.drawn, ..self.hub.turn };
        (self.hub.turn, self.target.turn) = (turn, turn);
    }

    /// Nobody who knows less may write there any more.
    fn adopt(&mut self) {
        if self.contact() == Contact::Refused {
            let epoch = self.hub.turn.epoch.max(self.target.turn.epoch) + 1;
            let turn = Turn { epoch, ..Turn::default() };
            (self.hub.turn, self.target.turn) = (turn, turn);
        }
    }
}

/// Whether something was ordered. Letting go of a module with all that is there is no order.
fn is_ordered(module: &str, before: &World, after: &World) -> bool {
    let entry = after.chosen.entries.get(module);
    match (before.installed.get(module), after.installed.get(module)) {
        (held, Some(now)) => held.map(Installed::order) != Some(now.order()),
        (Some(held), None) => match entry {
            // The end of a removal that was ordered before.
            None => !held.leaving,
            Some(Entry { managed, .. }) => *managed,
        },
        (None, None) => {
            entry.is_none() && before.lost.contains_key(module) && !after.lost.contains_key(module)
        }
    }
}

impl Installed {
    /// All of it that is ordered.
    fn order(&self) -> (&'static str, Option<&'static str>, bool) {
        (self.ordered, self.channel, self.leaving)
    }
}

impl Action {
    /// Whether it is what users write into their Kyma.
    fn is_choice(self) -> bool {
        matches!(
            self,
            Self::Choose(..) | Self::Disable(_) | Self::Manage(..) | Self::Upgrades(..) | Self::Follow(_)
        )
    }
}
