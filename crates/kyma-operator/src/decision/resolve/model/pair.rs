//! Model of a hub and a remote target while one of them is unreachable or restored from a backup: which of them may
//! write, and the expected state.

use std::collections::BTreeSet;

use super::{Action, ChosenModules, Entry, InstalledModule, MODULES, World, put};

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PairEvent {
    /// An action; those of users happen on the target.
    Act(Action),
    /// The network between hub and target works or fails.
    Network(bool),
    /// The access Secret changes.
    Access(Access),
    /// The target's Kyma is deleted.
    DeleteKyma,
    /// A module's component is deleted.
    DeleteComponent(&'static str),
    /// Fields that the operator owns are edited.
    Edit(ForeignEdit),
    /// A backup is made; each side has one.
    BackUp(Side),
    /// The backup is restored.
    Restore(Side),
    /// A user confirms that this hub is to continue.
    Adopt,
}

/// Hub or target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Hub,
    Target,
}

/// The kind of access Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Leads to the target, with one of two tokens.
    First,
    Second,
    /// Has a token that the target refuses.
    Wrong,
    /// Does not exist.
    Missing,
}

/// The edited object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForeignEdit {
    /// Labels and annotations of the target's Kyma.
    Marks,
    /// Status of the target's Kyma.
    Status,
    /// Deletion policy of a module's component.
    DeletionPolicy(&'static str),
}

/// Whether the hub may write to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HubAuthority {
    /// The hub decides and writes.
    Writes,
    /// The hub cannot reach the target.
    Unreachable,
    /// The target has a fencing generation that the hub does not know: a user has to decide.
    Refused,
}

/// Counts changes. Taking over a target begins a new epoch. Two hubs with equal counts differ by a random mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct FencingGeneration {
    epoch: u32,
    count: u32,
    mark: u32,
}

impl FencingGeneration {
    fn is_beyond(self, known: Self) -> bool {
        let place = |generation: Self| (generation.epoch, generation.count);
        place(self) > place(known) || place(self) == place(known) && self.mark != known.mark
    }
}

/// State of the hub, including the last observed state of the target.
#[derive(Debug, Clone)]
pub(crate) struct Hub {
    pub(crate) world: World,
    pub(crate) access: Access,
    /// Modules whose component was edited to be removed without a request of the operator.
    edited: BTreeSet<&'static str>,
    fencing_generation: FencingGeneration,
}

impl Hub {
    /// Reports whether the module has an unedited component that is not to be removed.
    pub(crate) fn has(&self, module: &str) -> bool {
        let is_installed = |held: &InstalledModule| !held.leaving && !self.edited.contains(module);
        self.world.installed.get(module).is_some_and(is_installed)
    }
}

/// State of the target.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Its Kyma, unless it was deleted.
    pub(crate) chosen: Option<ChosenModules>,
    pub(crate) used: BTreeSet<&'static str>,
    fencing_generation: FencingGeneration,
}

/// The hub, the target and their backups.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) hub: Hub,
    pub(crate) target: Target,
    pub(crate) is_connected: bool,
    saved_hub: Option<Hub>,
    saved_target: Option<Target>,
    /// Number of marks used.
    drawn: u32,
}

impl Pair {
    /// Creates a pair that is connected, without entries.
    pub(crate) fn new() -> Self {
        let (world, fencing_generation) = (World::new(), FencingGeneration::default());
        Self {
            target: Target { chosen: Some(world.chosen.clone()), used: BTreeSet::new(), fencing_generation },
            hub: Hub { world, access: Access::First, edited: BTreeSet::new(), fencing_generation },
            is_connected: true,
            saved_hub: None,
            saved_target: None,
            drawn: 0,
        }
    }

    /// Applies an event and all its consequences.
    pub(crate) fn act(&mut self, event: PairEvent) {
        match event {
            PairEvent::Act(action) => self.change(action),
            PairEvent::Network(is) => self.is_connected = is,
            PairEvent::Access(access) => self.hub.access = access,
            PairEvent::DeleteKyma => self.target.chosen = None,
            PairEvent::DeleteComponent(module) => {
                if self.hub.has(module) {
                    self.hub.world.delete_component(module);
                }
            }
            PairEvent::Edit(ForeignEdit::DeletionPolicy(module)) => {
                if self.hub.has(module) {
                    self.hub.edited.insert(module);
                }
            }
            // The operator restores these fields, which is not a request.
            PairEvent::Edit(ForeignEdit::Marks | ForeignEdit::Status) => {}
            PairEvent::BackUp(Side::Hub) => self.saved_hub = Some(self.hub.clone()),
            PairEvent::BackUp(Side::Target) => self.saved_target = Some(self.target.clone()),
            PairEvent::Restore(Side::Hub) => self.hub = self.saved_hub.clone().unwrap_or(self.hub.clone()),
            PairEvent::Restore(Side::Target) => {
                self.target = self.saved_target.clone().unwrap_or(self.target.clone());
            }
            PairEvent::Adopt => self.adopt(),
        }
        self.pass();
    }

    pub(crate) fn authority(&self) -> HubAuthority {
        if !self.is_connected || matches!(self.hub.access, Access::Wrong | Access::Missing) {
            HubAuthority::Unreachable
        } else if self.target.fencing_generation.is_beyond(self.hub.fencing_generation) {
            HubAuthority::Refused
        } else {
            HubAuthority::Writes
        }
    }

    /// Reports whether there is a backup.
    pub(crate) fn has_saved(&self, side: Side) -> bool {
        match side {
            Side::Hub => self.saved_hub.is_some(),
            Side::Target => self.saved_target.is_some(),
        }
    }

    fn change(&mut self, action: Action) {
        match action {
            Action::Use(module, is) => put(&mut self.target.used, module, is),
            // Reconcilers of components cannot reach the target either.
            Action::Report(_) if self.authority() != HubAuthority::Writes => {}
            action if action.is_choice() => {
                if let Some(chosen) = &mut self.target.chosen {
                    chosen.act(action);
                }
            }
            action => self.hub.world.change(action),
        }
    }

    /// Decides only if the hub reaches the target and knows all its fencing generations.
    fn pass(&mut self) {
        if self.authority() != HubAuthority::Writes {
            return;
        }
        // The target was restored to a state before the takeover.
        if self.target.fencing_generation.epoch < self.hub.fencing_generation.epoch {
            self.target.fencing_generation = self.hub.fencing_generation;
        }
        let world = &mut self.hub.world;
        // A deleted Kyma is recreated from the last observed selection.
        world.chosen = self.target.chosen.get_or_insert_with(|| world.chosen.clone()).clone();
        world.used.clone_from(&self.target.used);
        let before = world.clone();
        world.rest();
        let edited = std::mem::take(&mut self.hub.edited);
        let is_put_right = |module: &&str| {
            edited.contains(*module) && world.installed.get(*module).is_some_and(|held| !held.leaving)
        };
        if MODULES.iter().any(|module| is_put_right(module) || is_ordered(module, &before, world)) {
            self.advance_fencing_generation();
        }
    }

    /// Records a change on both sides before it is made.
    fn advance_fencing_generation(&mut self) {
        self.drawn += 1;
        let count = self.hub.fencing_generation.count.max(self.target.fencing_generation.count) + 1;
        let next = FencingGeneration { count, mark: self.drawn, ..self.hub.fencing_generation };
        (self.hub.fencing_generation, self.target.fencing_generation) = (next, next);
    }

    /// Begins a new epoch, so that a hub with older knowledge may no longer write.
    fn adopt(&mut self) {
        if self.authority() == HubAuthority::Refused {
            let epoch = self.hub.fencing_generation.epoch.max(self.target.fencing_generation.epoch) + 1;
            let first = FencingGeneration { epoch, ..FencingGeneration::default() };
            (self.hub.fencing_generation, self.target.fencing_generation) = (first, first);
        }
    }
}

/// Reports whether a change was requested. Deleting a component that leaves everything in place is not a request.
fn is_ordered(module: &str, before: &World, after: &World) -> bool {
    let entry = after.chosen.entries.get(module);
    match (before.installed.get(module), after.installed.get(module)) {
        (held, Some(now)) => held.map(InstalledModule::requested_fields) != Some(now.requested_fields()),
        (Some(held), None) => match entry {
            // The end of a removal that was requested before.
            None => !held.leaving,
            Some(Entry { managed, .. }) => *managed,
        },
        (None, None) => {
            entry.is_none()
                && before.missing_components.contains_key(module)
                && !after.missing_components.contains_key(module)
        }
    }
}

impl InstalledModule {
    /// Returns the requested fields of a component.
    fn requested_fields(&self) -> (&'static str, Option<&'static str>, bool) {
        (self.desired_version, self.channel, self.leaving)
    }
}

impl Action {
    /// Reports whether it changes the user's selection.
    fn is_choice(self) -> bool {
        matches!(
            self,
            Self::Choose(..) | Self::Disable(_) | Self::Manage(..) | Self::Upgrades(..) | Self::Follow(_)
        )
    }
}
