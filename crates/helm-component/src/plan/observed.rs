//! Observed state as input of decisions, and predicates over it.

use std::collections::BTreeSet;
use std::time::Duration;

use kyma_object_set::drift::Drift;
use kyma_object_set::health::HealthStatus;
use kyma_object_set::{Identity, Inventory};
use kyma_sdk::Failure;

use crate::hooks::Event;
use crate::patience::Patience;
use crate::plan::Rest;

/// Operation that the component's spec requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Have the content on the target.
    Install,
    /// Remove all objects, after an explicit deletion request.
    Remove,
}

/// State of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Unchanged since all of it was applied: the inventory stands for it.
    Recorded,
    /// To be fetched and rendered before anything can be decided.
    Stale,
    /// At hand.
    Loaded,
}

/// One desired object and its observed state.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with its own source")]
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Which object.
    pub identity: Identity,
    /// Whether the content it comes from is newer than what was applied.
    pub changed: bool,
    /// Whether the target serves its kind, of content at hand in just its version.
    pub served: bool,
    /// The version that it is wished in, where the target serves its kind in others alone.
    pub lacks_version: Option<String>,
    /// What became of it since it was applied; `None` while the watch has not told or it was never applied.
    pub drift: Option<Drift>,
    /// Its health; `None` while unknown. A failure counts only after it lasted for the time limit.
    pub health: Option<HealthStatus>,
    /// Why it does not work, where that is told; else empty.
    pub why: String,
    /// Whether that is of before it was applied: the watch has not told since.
    pub health_is_old: bool,
    /// Whether its health counts.
    pub counts: bool,
    /// Whether it was put right so often that it is left as it is for a while.
    pub fought: bool,
    /// What it waits for, where the apply of this pass could not send it yet.
    pub waiting: Option<String>,
    /// What the apply of this pass gave, where it failed.
    pub fault: Option<Failure>,
}

impl Piece {
    /// Whether another writer changed, adopted or deleted the object, so that it must be applied again.
    pub fn has_drifted(&self) -> bool {
        matches!(self.drift, Some(Drift::Gone | Drift::Recreated | Drift::Changed | Drift::Taken))
    }

    /// What the target does not serve that it needs: `Kind.group`, with a version where other ones are served.
    pub(super) fn lacks(&self) -> Option<String> {
        let kind = self.identity.group_kind();
        (!self.served).then(|| match &self.lacks_version {
            Some(version) => format!("{kind} in version {version}"),
            None => kind.to_string(),
        })
    }
}

/// Whether drift may be corrected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftMode {
    /// Put it right.
    Correct,
    /// Only say so.
    Warn,
    /// Do not look.
    Off,
}

/// The state of the module's default custom resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefaultResource {
    /// None is wanted.
    None,
    /// Made once already; what became of it is the user's business.
    Made,
    /// Wanted; its kind is not served yet.
    Unserved,
    /// Wanted and possible.
    Due,
    /// Tried in this pass, in vain.
    Failed(Failure),
}

/// Previous installation of a module that was not applied yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Predecessor {
    /// Not read yet.
    Unseen,
    /// Nothing that the module may not be put over.
    None,
    /// This version, which is newer than the one that is wanted.
    Newer(String),
    /// This object, which does not tell its version.
    Untold(String),
}

/// Which of the chart's hooks are due.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HooksDue {
    /// The moment before the content is applied, if it has hooks for it that have not succeeded.
    pub before: Option<Event>,
    /// The moment after it was applied, likewise.
    pub after: Option<Event>,
    /// Whether the content at hand is another release than the one that is installed, and has hooks.
    pub release: bool,
    /// What those of this pass wait for, or how they failed.
    pub rest: Option<Rest>,
    /// Whether CRDs were sent in this pass, ahead of hooks.
    pub crds_applied: bool,
    /// Whether somebody asked for the chart's tests, and they are not over or waited for.
    pub test: bool,
}

/// Whether what is wished is on its way, or what was Ready before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WayBack {
    /// There is none, or nobody wants one.
    #[default]
    None,
    /// Another release was Ready before and is kept.
    Open,
    /// It is taken: what is kept is brought, in place of what failed.
    Taken,
    /// It was taken, and what failed is to be tried again.
    Left,
}

/// Whether the release has to be recorded as Helm does.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistoryDue {
    /// The installed revision is not recorded as deployed.
    pub deployed: bool,
    /// The content at hand is not on record, so that it would be as failed if it is.
    pub failed: bool,
    /// Why it could not be recorded in this pass.
    pub failure: Option<Failure>,
}

/// Everything that the next decision needs.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with its own source")]
#[derive(Debug, Clone)]
pub struct Observed {
    /// The requested operation.
    pub order: Order,
    /// Why the spec cannot be obeyed at all.
    pub refusal: Option<Failure>,
    /// State of the content.
    pub content: Content,
    /// Whether watches were started for all kinds concerned.
    pub watching: bool,
    /// Whether these watches have told what is there; true where there is nothing to watch.
    pub watched: bool,
    /// Whether the release's namespace is there or not asked for.
    pub namespace_ready: bool,
    /// The chart's hooks.
    pub hooks: HooksDue,
    /// Helm release records that have to be written.
    pub history: HistoryDue,
    /// Where to go where the release at hand fails.
    pub way_back: WayBack,
    /// Whether what is Ready is yet to be kept, or what is kept to be let go.
    pub keep_due: bool,
    /// The wanted objects; with recorded content those of the inventory.
    pub pieces: Vec<Piece>,
    /// Whether the objects were sent in this pass.
    pub applied: bool,
    /// Applied inventory.
    pub inventory: Inventory,
    /// Whether there is a record of what was applied that cannot be read.
    pub unread: bool,
    /// Objects on the target that carry our owner label, whatever the inventory says.
    pub owned: BTreeSet<Identity>,
    /// Whether the watches have been awaited for so long that a kind may no longer be served.
    pub looks_in_vain: bool,
    /// Why nothing is known of some of the kinds concerned, where the watches have been awaited in vain again and again.
    pub unseen: Option<Failure>,
    /// Whether objects tell which version of the module they are of.
    pub versioned: bool,
    /// The version that is on the target, where it is newer than the one that is wanted.
    pub newer: Option<String>,
    /// Previous installation by a user.
    pub predecessor: Predecessor,
    /// Whether a Helm release of the same name still has to be searched.
    pub release_unseen: bool,
    /// The objects that were taken over from another system and differ, while nothing else was asked for since; `None`
    /// where nothing was taken over.
    pub as_found: Option<Vec<String>>,
    /// Why the release is not recorded as Helm does, where it cannot be.
    pub unrecorded: Option<String>,
    /// Whether the target has an older version than the one that was applied, which is therefore sent again as a whole.
    pub set_back: bool,
    /// Whether other content is wished than what was applied last.
    pub changes: bool,
    /// Whether the content at hand is not on record as applied.
    pub unsent: bool,
    /// Whether the target was searched for what is ours, beyond the inventory.
    pub swept: bool,
    /// Objects that a rule protects from deletion: they stay.
    pub kept: BTreeSet<Identity>,
    /// Whether pruning was done in this pass, or why it failed.
    pub pruned: Option<Result<(), Failure>>,
    /// Whether something of it is still on its way, or waits for that.
    pub pruning: bool,
    /// Whether what others change is put right.
    pub drift: DriftMode,
    /// The default custom resource.
    pub default_resource: DefaultResource,
    /// Whether a watch shows the default custom resource.
    pub default_seen: bool,
    /// Whether the status may be wrong about the default custom resource: present or gone.
    pub default_unconfirmed: bool,
    /// Time limit for objects to become ready, or to be deleted.
    pub patience: Patience,
    /// Whether it was not told yet that what was applied works: other content came, or nobody was told Ready.
    pub awaited: bool,
    /// Objects that are no longer owned and stay on the target, with reasons.
    pub left: Vec<String>,
    /// The object of `spec.manager`, where nothing of the content or made from the spec is it.
    pub stray_manager: Option<String>,
    /// The default custom resource and its health, where `spec.manager` names it.
    pub manager: Option<(String, Option<HealthStatus>)>,
    /// Time until the first object that says it failed has said so for long enough.
    pub fails_in: Option<Duration>,
    /// Whether objects were seen by other rules of health than the component has now, and were not read in this pass.
    pub unjudged: bool,
    /// Whether objects take so long that it is worth a look at what holds them up, and nobody looked yet.
    pub unexplained: bool,
    /// How far the removal is, once it was tried in this pass: what is left.
    pub removal: Option<Result<Vec<String>, Failure>>,
}

impl Observed {
    /// Whether an object has to be sent.
    pub fn needs_apply(&self, piece: &Piece) -> bool {
        let new = piece.changed || !self.inventory.was_sent(&piece.identity);
        match self.order {
            Order::Install => new || self.needs_repair(piece),
            Order::Remove => (new && self.changes) || (!new && self.needs_repair(piece)),
        }
    }

    /// Whether everything wanted is on the target, of kinds that it serves: the condition for pruning.
    pub fn is_complete(&self) -> bool {
        self.pieces.iter().all(|piece| piece.served && piece.fault.is_none() && self.is_sent(piece))
    }

    pub(super) fn is_sent(&self, piece: &Piece) -> bool {
        piece.waiting.is_none() && self.inventory.was_sent(&piece.identity)
    }

    fn needs_repair(&self, piece: &Piece) -> bool {
        self.drift == DriftMode::Correct && piece.has_drifted() && !piece.fought
    }

    /// Objects that another manager changed and that are not corrected for a while.
    pub fn fought(&self) -> Vec<String> {
        let left = |piece: &&Piece| self.drift == DriftMode::Correct && piece.fought && piece.has_drifted();
        self.pieces.iter().filter(left).map(|piece| piece.identity.to_string()).collect()
    }

    /// Objects that count and say that they failed.
    pub fn failing(&self) -> Vec<String> {
        self.named(|health| health == Some(HealthStatus::Failed))
    }

    /// Whether one of them says so of what was applied last.
    pub fn fails_as_it_is(&self) -> bool {
        let there = |piece: &&Piece| piece.counts && self.inventory.contains(&piece.identity);
        let old = |piece: &Piece| piece.health == Some(HealthStatus::Failed) && piece.health_is_old;
        let old = self.pieces.iter().filter(there).filter(|piece| old(piece)).count();
        self.failing().len() > old
    }

    /// Objects that count and of which nothing is known since they were applied.
    pub fn untold(&self) -> Vec<String> {
        let there = |piece: &&Piece| piece.counts && self.inventory.contains(&piece.identity);
        let untold = self.pieces.iter().filter(there).filter(|piece| piece.health_is_old);
        untold.map(|piece| piece.identity.to_string()).collect()
    }

    /// Whether it matters that what was applied works, and not only what was there before. Who only puts right what was
    /// told to work has no news to await.
    pub fn awaits_news(&self) -> bool {
        (self.awaited || self.keep_due || self.way_back != WayBack::None) && !self.untold().is_empty()
    }

    /// Objects that count and do not work yet, or not any more.
    pub fn unready(&self) -> Vec<String> {
        self.named(|health| health != Some(HealthStatus::Current))
    }

    /// Objects that count and were not applied yet: nothing can be said of their health.
    pub fn unapplied(&self) -> Vec<String> {
        let counting = self.pieces.iter().filter(|piece| piece.counts);
        let absent = counting.filter(|piece| !self.inventory.contains(&piece.identity));
        absent.map(|piece| piece.identity.to_string()).collect()
    }

    /// Of the objects that count and are on the target, those of this health.
    fn named(&self, wanted: fn(Option<HealthStatus>) -> bool) -> Vec<String> {
        let there =
            self.pieces.iter().filter(|piece| piece.counts && self.inventory.contains(&piece.identity));
        let name = |piece: &Piece| match piece.why.as_str() {
            "" => piece.identity.to_string(),
            why => format!("{} ({why})", piece.identity),
        };
        let there = there.map(|piece| (name(piece), piece.health));
        let all = there.chain(self.manager.clone());
        all.filter(|(_, health)| wanted(*health)).map(|(name, _)| name).collect()
    }

    /// Whether an object stays whatever the content has: as long as nothing else is asked for than what was taken over,
    /// that holds for what only its record names.
    pub fn stays(&self, identity: &Identity) -> bool {
        self.as_found.is_some() && self.inventory.contains(identity) && !self.inventory.was_sent(identity)
    }

    /// What was applied, or carries our label, and is wanted no longer, nor [stays](Self::stays).
    pub fn surplus(&self) -> Vec<Identity> {
        let wanted: BTreeSet<&Identity> = self.pieces.iter().map(|piece| &piece.identity).collect();
        let applied = self.inventory.iter().map(|(identity, _)| identity);
        let surplus: BTreeSet<&Identity> = applied
            .chain(self.owned.iter())
            .filter(|identity| {
                !wanted.contains(identity) && !self.kept.contains(*identity) && !self.stays(identity)
            })
            .collect();
        surplus.into_iter().cloned().collect()
    }

    /// What the target does not serve that objects need, be they on record or not. Kinds of the set's own CRDs come again
    /// with those; what is to be removed needs none.
    pub fn missing(&self) -> BTreeSet<String> {
        let own = self.groups_of_own_crds();
        let returns = |piece: &Piece| match self.order {
            Order::Install => {
                own.contains(&*piece.identity.group) && self.inventory.was_sent(&piece.identity)
            }
            Order::Remove => self.inventory.contains(&piece.identity),
        };
        self.pieces.iter().filter(|piece| !returns(piece)).filter_map(Piece::lacks).collect()
    }

    /// The API groups of which CRDs of the same set define kinds, which the target will serve soon.
    pub(super) fn groups_of_own_crds(&self) -> BTreeSet<&str> {
        let crds = self.pieces.iter().filter(|piece| piece.identity.is_crd());
        crds.filter_map(|crd| Some(crd.identity.name.split_once('.')?.1)).collect()
    }
}
