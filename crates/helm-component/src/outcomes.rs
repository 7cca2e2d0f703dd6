//! Results of hooks on targets, as separate streams show them. Kubernetes may delete a Job as soon as it is done,
//! before a reconcile reads it, so a result that a stream showed counts after the deletion.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::core::DynamicObject;
use kyma_api::{annotations, labels};
use kyma_object_set::{GroupKind, Identity};
use kyma_sdk::{Interest, Process, Sighting, Watches};
use kyma_targets::{Acting, SecretKey};

use crate::hooks::{self, Told};
use crate::sight::Dependent;

/// How long the first list of a stream is awaited: what a hook does before that, nobody sees.
const OPENING: Duration = Duration::from_secs(5);
/// How long a stream may take to tell of an object that is gone already.
const NEWS: Duration = Duration::from_secs(5);
/// Characters of a failure that are kept.
const WORDS: usize = 1024;

/// Results of the hooks that components wait for, as streams show them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Outcomes {
    watches: Watches<Dependent>,
    held: Arc<Mutex<Held>>,
    /// Held while wishes change: what is known and the streams have to agree on who wants what.
    wishing: Arc<Mutex<()>>,
}

#[derive(Default)]
struct Held {
    wishes: HashMap<Dependent, Wish>,
}

/// Hooks that a component waits for.
#[derive(Default)]
struct Wish {
    target: Option<SecretKey>,
    /// By the mark that the objects of a run bear.
    runs: BTreeMap<String, Run>,
}

/// The hooks of one moment that have an end to wait for.
#[derive(Default)]
struct Run {
    interests: Vec<Interest>,
    hooks: BTreeMap<Identity, Awaited>,
    /// Since when the first lists of its streams have been awaited.
    opening: Option<Instant>,
}

/// What is known of one of them.
#[derive(Default)]
struct Awaited {
    told: Told,
    /// Time of the first read that did not find it.
    missed: Option<Instant>,
}

impl Outcomes {
    /// Returns an empty registry. Streams call `wake`, which must not block.
    pub(crate) fn new(
        operator: &'static str,
        process: &Process,
        wake: impl Fn(&Dependent) + Send + Sync + 'static,
    ) -> Self {
        let held = Arc::<Mutex<Held>>::default();
        let listening = Arc::clone(&held);
        let listener = move |target: Option<&SecretKey>,
                             interest: &Interest,
                             sighting: &Sighting,
                             dependents: &[Dependent]| {
            let concerned: Vec<&Dependent> =
                dependents.iter().filter(|dependent| concerns(sighting, dependent)).collect();
            {
                let mut held = lock(&listening);
                for dependent in &concerned {
                    held.take(dependent, target, interest, sighting);
                }
            }
            concerned.into_iter().for_each(&wake);
        };
        Self { watches: Watches::new(operator, process, listener), held, wishing: Arc::default() }
    }

    /// Says that `dependent` waits for the hooks of a run. Gives how long the first lists of the streams that tell how they
    /// end may still take; `None` once they are there, or are known not to come, or took too long. A list wakes it.
    pub(crate) fn want(
        &self,
        target: &Acting,
        dependent: &Dependent,
        mark: &str,
        interests: &[Interest],
        hooks: BTreeSet<Identity>,
    ) -> Option<Duration> {
        if interests.is_empty() || !self.open(target, dependent, (mark, interests), hooks) {
            return None;
        }
        let unhealthy = self.watches.unhealthy(target, interests.to_vec());
        let is_awaited = unhealthy.iter().any(|(_, why)| why.is_none());
        is_awaited.then(|| lock(&self.held).opening(dependent, mark, Instant::now())).flatten()
    }

    fn open(
        &self,
        target: &Acting,
        dependent: &Dependent,
        (mark, interests): (&str, &[Interest]),
        hooks: BTreeSet<Identity>,
    ) -> bool {
        let _wishing = lock(&self.wishing);
        // Nothing is opened with it: the change of the Secret brings the component back.
        if target.is_withdrawn() {
            return false;
        }
        let wanted = lock(&self.held).want(target.key(), dependent, (mark, interests), hooks);
        let refused = self.watches.want(target, dependent, wanted).err();
        if let Some(limit) = &refused {
            tracing::info!(component = %dependent.name, "{limit}; hooks are asked how they end");
        }
        refused.is_none()
    }

    /// Returns the state of a hook of the run with this mark, as streams showed it.
    pub(crate) fn told(&self, dependent: &Dependent, mark: &str, hook: &Identity) -> Told {
        let mut held = lock(&self.held);
        held.awaited(dependent, mark, hook).map(|awaited| awaited.told.clone()).unwrap_or_default()
    }

    /// How long a stream may still take to tell of a hook whose object is missing.
    pub(crate) fn left(&self, dependent: &Dependent, mark: &str, hook: &Identity) -> Duration {
        let mut held = lock(&self.held);
        let awaited = held.awaited(dependent, mark, hook);
        awaited.map(|awaited| awaited.left(Instant::now())).unwrap_or_default()
    }

    /// Says that `dependent` waits for these runs alone; what is known of others is forgotten.
    pub(crate) fn retain(&self, target: &Acting, dependent: &Dependent, marks: &[String]) {
        let _wishing = lock(&self.wishing);
        let left = lock(&self.held).retain(dependent, marks);
        match left {
            Some(left) if left.is_empty() => self.watches.leave_all(dependent),
            Some(left) => {
                if let Err(limit) = self.watches.want(target, dependent, left) {
                    tracing::info!(component = %dependent.name, "{limit}; hooks are asked how they end");
                }
            }
            None => {}
        }
    }

    /// The Secret of a target changed: its streams end. How hooks of a run ended stays as it is.
    pub(crate) fn access_changed(&self, secret: &str) {
        let _wishing = lock(&self.wishing);
        self.watches.access_changed(secret);
    }

    /// `dependent` is gone.
    pub(crate) fn forget(&self, dependent: &Dependent) {
        let _wishing = lock(&self.wishing);
        self.watches.leave_all(dependent);
        lock(&self.held).wishes.remove(dependent);
    }
}

impl Held {
    /// Notes a run; gives all streams that the component wants by now.
    fn want(
        &mut self,
        target: Option<&SecretKey>,
        dependent: &Dependent,
        (mark, interests): (&str, &[Interest]),
        hooks: BTreeSet<Identity>,
    ) -> Vec<Interest> {
        let wish = self.wishes.entry(dependent.clone()).or_default();
        if wish.target.as_ref() != target {
            *wish = Wish { target: target.cloned(), runs: BTreeMap::new() };
        }
        let run = wish.runs.entry(mark.to_owned()).or_default();
        run.interests = interests.to_vec();
        for hook in hooks {
            run.hooks.entry(hook).or_default();
        }
        wish.interests()
    }

    /// Time in which the first lists of a run's streams may still come.
    fn opening(&mut self, dependent: &Dependent, mark: &str, now: Instant) -> Option<Duration> {
        let run = self.wishes.get_mut(dependent)?.runs.get_mut(mark)?;
        let since = *run.opening.get_or_insert(now);
        OPENING.checked_sub(now.saturating_duration_since(since)).filter(|left| !left.is_zero())
    }

    /// Forgets other runs; gives the streams that are still wanted, where that changed.
    fn retain(&mut self, dependent: &Dependent, marks: &[String]) -> Option<Vec<Interest>> {
        let wish = self.wishes.get_mut(dependent)?;
        let before = wish.runs.len();
        wish.runs.retain(|mark, _| marks.contains(mark));
        let (after, left) = (wish.runs.len(), wish.interests());
        if after == 0 {
            self.wishes.remove(dependent);
        }
        (after != before).then_some(left)
    }

    fn awaited(&mut self, dependent: &Dependent, mark: &str, hook: &Identity) -> Option<&mut Awaited> {
        self.wishes.get_mut(dependent)?.runs.get_mut(mark)?.hooks.get_mut(hook)
    }

    fn take(
        &mut self,
        dependent: &Dependent,
        target: Option<&SecretKey>,
        interest: &Interest,
        sighting: &Sighting,
    ) {
        let Some(wish) = self.wishes.get_mut(dependent) else { return };
        if wish.target.as_ref() != target {
            return;
        }
        let kind = GroupKind::new(&interest.group, &interest.kind);
        for (mark, run) in &mut wish.runs {
            match sighting {
                Sighting::Listed { objects, .. } => run.take_list(mark, &kind, objects),
                Sighting::Applied(object) => run.take_one(mark, &kind, object, false),
                Sighting::Deleted(object) => run.take_one(mark, &kind, object, true),
            }
        }
    }
}

impl Wish {
    fn interests(&self) -> Vec<Interest> {
        self.runs.values().flat_map(|run| run.interests.clone()).collect()
    }
}

impl Run {
    fn take_list(&mut self, mark: &str, kind: &GroupKind, objects: &[DynamicObject]) {
        let listed: BTreeSet<Identity> = objects
            .iter()
            .filter(|object| is_of(mark, object))
            .map(|object| identity(kind, object))
            .collect();
        // It was deleted in a gap of the stream.
        let is_lost = |hook: &Identity, awaited: &Awaited| {
            hook.group_kind() == *kind && awaited.told == Told::Running && !listed.contains(hook)
        };
        for (hook, awaited) in &mut self.hooks {
            if is_lost(hook, awaited) {
                awaited.told = Told::Gone;
            }
        }
        for object in objects {
            self.take_one(mark, kind, object, false);
        }
    }

    fn take_one(&mut self, mark: &str, kind: &GroupKind, object: &DynamicObject, gone: bool) {
        if !is_of(mark, object) {
            return;
        }
        let Some(awaited) = self.hooks.get_mut(&identity(kind, object)) else { return };
        // An end is one, whatever becomes of the object.
        if matches!(awaited.told, Told::Ended(_)) {
            return;
        }
        let deleting = object.metadata.deletion_timestamp.is_some();
        awaited.told = match hooks::end(&object.data, deleting) {
            Some(end) => Told::Ended(end.map_err(|why| why.chars().take(WORDS).collect())),
            None if gone => Told::Gone,
            None => Told::Running,
        };
    }
}

impl Awaited {
    fn left(&mut self, now: Instant) -> Duration {
        let missed = *self.missed.get_or_insert(now);
        NEWS.saturating_sub(now.saturating_duration_since(missed))
    }
}

impl std::fmt::Debug for Outcomes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outcomes").finish_non_exhaustive()
    }
}

/// Whether it is a hook of this component, or a list, after which whoever looked before has to look again.
fn concerns(sighting: &Sighting, dependent: &Dependent) -> bool {
    match sighting {
        Sighting::Listed { .. } => true,
        Sighting::Applied(object) | Sighting::Deleted(object) => {
            object.labels().get(labels::HOOK_OF).is_some_and(|owner| **owner == *dependent.owner)
        }
    }
}

fn is_of(mark: &str, object: &DynamicObject) -> bool {
    object.annotations().get(annotations::HOOK_RUN).is_some_and(|run| run == mark)
}

fn identity(kind: &GroupKind, object: &DynamicObject) -> Identity {
    let metadata = &object.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    Identity::new(&kind.group, &kind.kind, metadata.namespace.as_deref(), name)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
