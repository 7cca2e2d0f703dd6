//! What to do next, decided from what was observed and from nothing else.
//!
//! [`next`] is asked again after every step, with the step's outcome in [`Observed`]; it ends with a [`Rest`].
//! A step that failed leaves its [`Failure`] behind, so the machine never tries one twice in a pass.

use std::collections::BTreeSet;

use kyma_api::Reason;
use kyma_object_set::drift::Drift;
use kyma_object_set::health::HealthStatus;
use kyma_object_set::{Identity, Inventory};
use kyma_sdk::Failure;

use crate::patience::Patience;

/// What the component's owner wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Have the content on the target.
    Install,
    /// Take everything away; somebody explicitly ordered it.
    Remove,
}

/// How far the content is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Unchanged since all of it was applied: the inventory stands for it.
    Recorded,
    /// To be fetched and rendered before anything can be decided.
    Stale,
    /// At hand.
    Loaded,
}

/// One wanted object and what is known of it.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with its own source")]
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Which object.
    pub identity: Identity,
    /// Whether the content it comes from is newer than what was applied.
    pub changed: bool,
    /// Whether the target serves its kind.
    pub served: bool,
    /// What became of it since it was applied; `None` while the watch has not told or it was never applied.
    pub drift: Option<Drift>,
    /// How it does; `None` while unknown.
    pub health: Option<HealthStatus>,
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
    /// Whether somebody changed or deleted it, so that it would have to be applied again.
    pub fn has_drifted(&self) -> bool {
        matches!(self.drift, Some(Drift::Gone | Drift::Recreated | Drift::Changed))
    }
}

/// Who may put right what others changed.
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

/// Everything that the next decision needs.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with its own source")]
#[derive(Debug, Clone)]
pub struct Observed {
    /// What is wanted.
    pub order: Order,
    /// Why the spec cannot be obeyed at all.
    pub refusal: Option<Failure>,
    /// How far the content is known.
    pub content: Content,
    /// Whether watches were started for all kinds concerned.
    pub watching: bool,
    /// Whether these watches have told what is there.
    pub watched: bool,
    /// Whether the release's namespace is there or not asked for.
    pub namespace_ready: bool,
    /// The wanted objects; with recorded content those of the inventory.
    pub pieces: Vec<Piece>,
    /// Whether the objects were sent in this pass.
    pub applied: bool,
    /// What was applied.
    pub inventory: Inventory,
    /// Objects on the target that carry our owner label, whatever the inventory says.
    pub owned: BTreeSet<Identity>,
    /// Objects that a rule protects from deletion: they stay.
    pub kept: BTreeSet<Identity>,
    /// Whether pruning was done in this pass, or why it failed.
    pub pruned: Option<Result<(), Failure>>,
    /// Whether what others change is put right.
    pub drift: DriftMode,
    /// The default custom resource.
    pub default_resource: DefaultResource,
    /// How long the objects may take to work, or to go.
    pub patience: Patience,
    /// What was given up and stays on the target, with reasons.
    pub left: Vec<String>,
    /// The object of `spec.manager`, where nothing of the content or made from the spec is it.
    pub stray_manager: Option<String>,
    /// The default custom resource and its health, where `spec.manager` names it.
    pub manager: Option<(String, Option<HealthStatus>)>,
    /// How far the removal is, once it was tried in this pass: what is left.
    pub removal: Option<Result<Vec<String>, Failure>>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Fetch the artifact and turn it into objects.
    Load,
    /// Watch the kinds concerned and learn what is there.
    Watch,
    /// Make the release's namespace.
    Namespace,
    /// Send what is due, stage by stage.
    Apply,
    /// Delete what is no longer wanted.
    Prune(Vec<Identity>),
    /// Make the default custom resource.
    DefaultResource,
    /// One step of the removal.
    Remove,
    /// Nothing more to do in this pass.
    Rest(Rest),
}

/// Why there is nothing more to do in this pass.
#[derive(Debug, Clone, PartialEq)]
pub enum Rest {
    /// All is as wished.
    Ready,
    /// Waiting for the watches' first look at the target.
    Looking,
    /// Waiting until these work (`Kind namespace/name`).
    Progressing(Vec<String>),
    /// These do not work.
    Unhealthy(Vec<String>),
    /// These do not work in time.
    Overdue(Vec<String>),
    /// Somebody changes these again and again; they are left as they are for a while.
    Fought(Vec<String>),
    /// `spec.manager` names this object, which the component does not have.
    StrayManager(String),
    /// Kinds that parts of the content need are missing; the rest is applied.
    MissingKinds(Vec<String>),
    /// Something failed.
    Failed(Failure),
    /// Waiting until these are gone.
    Removing(Vec<String>),
    /// Everything is gone.
    Removed,
}

/// The next thing to do.
pub fn next(seen: &Observed) -> Step {
    match seen.order {
        Order::Remove => remove(seen),
        Order::Install => {
            seen.refusal.clone().map_or_else(|| install(seen), |fault| Step::Rest(Rest::Failed(fault)))
        }
    }
}

fn install(seen: &Observed) -> Step {
    if seen.content == Content::Stale {
        return Step::Load;
    }
    // What was applied before can have changed meanwhile; a first installation need not wait for watches.
    if !seen.watching {
        return Step::Watch;
    }
    if !seen.watched && !seen.inventory.is_empty() && !seen.applied {
        return waiting_for_watches();
    }
    let due = seen.pieces.iter().any(|piece| piece.served && seen.needs_apply(piece));
    if due && !seen.applied {
        return match seen.content {
            Content::Loaded if seen.namespace_ready => Step::Apply,
            Content::Loaded => Step::Namespace,
            Content::Recorded | Content::Stale => Step::Load,
        };
    }
    if let Some(fault) = seen.pieces.iter().find_map(|piece| piece.fault.clone()) {
        return Step::Rest(Rest::Failed(fault));
    }
    prune(seen).unwrap_or_else(|| settle(seen))
}

/// The lists of the watches come as events.
fn waiting_for_watches() -> Step {
    Step::Rest(Rest::Looking)
}

/// What is left over goes once everything wanted is there: until then it does the work of what replaces it.
fn prune(seen: &Observed) -> Option<Step> {
    let surplus = seen.surplus();
    if surplus.is_empty() || !seen.is_complete() {
        return None;
    }
    if !seen.watched {
        return Some(waiting_for_watches());
    }
    if seen.content == Content::Recorded {
        return Some(Step::Load);
    }
    match &seen.pruned {
        Some(Err(fault)) => Some(Step::Rest(Rest::Failed(fault.clone()))),
        // What is still there waits for its finalizers; its watch wakes us.
        Some(Ok(())) => None,
        None => Some(Step::Prune(surplus)),
    }
}

/// All is applied: the default custom resource, then health.
fn settle(seen: &Observed) -> Step {
    match &seen.default_resource {
        DefaultResource::Due => return Step::DefaultResource,
        DefaultResource::Failed(fault) => return Step::Rest(Rest::Failed(fault.clone())),
        DefaultResource::None | DefaultResource::Made | DefaultResource::Unserved => {}
    }
    let missing: BTreeSet<String> = seen
        .pieces
        .iter()
        .filter(|piece| !piece.served)
        .filter(|piece| !seen.comes_with_own_crd(&piece.identity))
        .map(|piece| piece.identity.group_kind().to_string())
        .collect();
    if !missing.is_empty() {
        return Step::Rest(Rest::MissingKinds(missing.into_iter().collect()));
    }
    if !seen.watched {
        return waiting_for_watches();
    }
    if let Some(manager) = &seen.stray_manager {
        return Step::Rest(Rest::StrayManager(manager.clone()));
    }
    let failed = seen.failing();
    if !failed.is_empty() {
        return Step::Rest(Rest::Unhealthy(failed));
    }
    let fought = seen.fought();
    if !fought.is_empty() {
        return Step::Rest(Rest::Fought(fought));
    }
    let mut waiting = seen.unready();
    if !waiting.is_empty() && seen.patience.is_over() {
        return Step::Rest(Rest::Overdue(waiting));
    }
    for piece in seen.pieces.iter().filter(|piece| !seen.is_sent(piece)) {
        let why = piece.waiting.as_deref().unwrap_or("its kind is not served yet");
        waiting.push(format!("{} ({why})", piece.identity));
    }
    if seen.default_resource == DefaultResource::Unserved {
        waiting.push("the kind of the default custom resource".to_owned());
    }
    waiting.dedup();
    Step::Rest(if waiting.is_empty() { Rest::Ready } else { Rest::Progressing(waiting) })
}

fn remove(seen: &Observed) -> Step {
    if !seen.watching {
        return Step::Watch;
    }
    match &seen.removal {
        None => Step::Remove,
        Some(Err(fault)) => {
            let blocked = fault.reason == Reason::DeletionBlocked;
            let repair = blocked.then(|| repair(seen)).flatten();
            repair.unwrap_or_else(|| Step::Rest(Rest::Failed(fault.clone())))
        }
        Some(Ok(left)) if left.is_empty() => Step::Rest(Rest::Removed),
        Some(Ok(left)) => Step::Rest(Rest::Removing(left.clone())),
    }
}

/// While users' objects hold up a removal, what is there keeps working; nothing new is brought.
fn repair(seen: &Observed) -> Option<Step> {
    let due = seen.pieces.iter().any(|piece| piece.served && seen.needs_apply(piece));
    if !due || seen.applied || seen.refusal.is_some() {
        return None;
    }
    match seen.content {
        Content::Recorded => Some(Step::Load),
        Content::Loaded if seen.namespace_ready => Some(Step::Apply),
        Content::Loaded => Some(Step::Namespace),
        Content::Stale => None,
    }
}

impl Observed {
    /// Whether an object has to be sent.
    pub fn needs_apply(&self, piece: &Piece) -> bool {
        let new = piece.changed || !self.inventory.contains(&piece.identity);
        match self.order {
            Order::Install => new || self.needs_repair(piece),
            Order::Remove => !new && self.needs_repair(piece),
        }
    }

    /// Whether everything wanted is on the target, of kinds that it serves: the condition for pruning.
    pub fn is_complete(&self) -> bool {
        self.pieces.iter().all(|piece| piece.served && piece.fault.is_none() && self.is_sent(piece))
    }

    fn is_sent(&self, piece: &Piece) -> bool {
        piece.waiting.is_none() && self.inventory.contains(&piece.identity)
    }

    fn needs_repair(&self, piece: &Piece) -> bool {
        self.drift == DriftMode::Correct && piece.has_drifted() && !piece.fought
    }

    /// Objects that somebody else changed and that are left so for a while.
    pub fn fought(&self) -> Vec<String> {
        let left = |piece: &&Piece| self.drift == DriftMode::Correct && piece.fought && piece.has_drifted();
        self.pieces.iter().filter(left).map(|piece| piece.identity.to_string()).collect()
    }

    /// Objects that count and say that they failed.
    pub fn failing(&self) -> Vec<String> {
        self.named(|health| health == Some(HealthStatus::Failed))
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
        let there = there.map(|piece| (piece.identity.to_string(), piece.health));
        let all = there.chain(self.manager.clone());
        all.filter(|(_, health)| wanted(*health)).map(|(name, _)| name).collect()
    }

    /// What was applied, or carries our label, and is wanted no longer.
    pub fn surplus(&self) -> Vec<Identity> {
        let wanted: BTreeSet<&Identity> = self.pieces.iter().map(|piece| &piece.identity).collect();
        let applied = self.inventory.iter().map(|(identity, _)| identity);
        let surplus: BTreeSet<&Identity> = applied
            .chain(self.owned.iter())
            .filter(|identity| !wanted.contains(identity) && !self.kept.contains(*identity))
            .collect();
        surplus.into_iter().cloned().collect()
    }

    /// Whether the kind of an object is defined by a CRD of the same set, which the target will serve soon.
    fn comes_with_own_crd(&self, identity: &Identity) -> bool {
        self.pieces.iter().any(|piece| {
            piece.identity.is_crd()
                && piece.identity.name.split_once('.').is_some_and(|(_, group)| group == identity.group)
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
