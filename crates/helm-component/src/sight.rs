//! Cache of the owned objects on targets: the latest state from watches, reduced on arrival.
//!
//! One stream for each kind and target serves all components there. A component is woken when something about
//! one of its own objects changed that matters to it: identity, the fields we own, health.

mod index;
mod judged;
mod objects;
mod place;
mod store;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use kyma_api::names;
use kyma_object_set::health::{self, Health};
use kyma_object_set::{Cluster, GroupKind, Identity, Inventory, Kinds, Mapping, Observed};
use kyma_sdk::{Content, Failure, Interest, Listener, Process, Sighting, WatchLimit, Watches};
use kyma_targets::{Acting, SecretKey};

use crate::expressions::Rules;
use crate::looking::Unseen;
use place::Wish;
use store::Store;

/// Time for which discovery may be outdated after a change of CRDs.
const MOTION: Duration = Duration::from_secs(20);
/// The shortest pause between two looks at what a target serves.
const LOOK: Duration = Duration::from_millis(200);

/// Who is woken: a component, by place, name and the hash that its objects carry. Cheap to clone, since each stream has
/// a list of all who depend on it, which is copied when one more does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Dependent {
    /// Namespace on the hub.
    pub namespace: Arc<str>,
    /// Name on the hub.
    pub name: Arc<str>,
    /// Value of the owner label.
    pub owner: Arc<str>,
}

impl Dependent {
    /// The component of this name.
    pub(crate) fn of(namespace: &str, name: &str) -> Self {
        let owner = names::owner_hash(namespace, name).into();
        Self { namespace: namespace.into(), name: name.into(), owner }
    }
}

/// Last watched state of one object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    /// Fields for drift and deletion.
    pub observed: Observed,
    /// Its health; `None` for kinds of which only metadata is watched.
    pub health: Option<Health>,
    /// Since when it is said to have failed, as seen from here; `None` while it is not.
    pub failed_since: Option<Timestamp>,
    /// The module's version that we wrote on it.
    pub version: Option<String>,
}

/// Watched state of a component's objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// Every object with the component's owner label, and those asked for whoever owns them.
    pub objects: BTreeMap<Identity, Seen>,
    /// Those of them that were applied and of which no stream has told since: their health is of before.
    pub untold: BTreeSet<Identity>,
    /// Whether every stream that the component wants is complete and alive; who wants none has seen all there is to see.
    pub complete: bool,
    /// Its objects that were seen before it had the expressions by which they are judged.
    pub unjudged: BTreeSet<Identity>,
}

/// Rules for the health of a component's objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Judging {
    /// The kind of the one object that counts.
    pub manager: Option<GroupKind>,
    /// The component's own expressions.
    pub rules: Arc<Rules>,
}

/// The watches of all components on all targets. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sights {
    watches: Watches<Dependent>,
    store: Arc<Store>,
    /// Held while wishes change: store and streams have to agree on who wants what.
    wishing: Arc<Mutex<()>>,
}

impl Sights {
    /// Returns an empty cache. Streams call `wake`, which must not block.
    pub(crate) fn new(
        operator: &'static str,
        process: &Process,
        wake: impl Fn(&Dependent) + Send + Sync + 'static,
    ) -> Self {
        let store = Arc::new(Store::new(operator));
        let listener = Listening { store: Arc::clone(&store), wake };
        Self { watches: Watches::new(operator, process, listener), store, wishing: Arc::default() }
    }

    /// Watches exactly these kinds for `dependent`, and the target's CRDs where kinds may come that it waits for.
    pub(crate) fn want(
        &self,
        target: &Acting,
        dependent: &Dependent,
        kinds: &BTreeSet<GroupKind>,
        judging: &Judging,
        served: &Kinds,
        kinds_may_come: bool,
    ) -> Result<(), WatchLimit> {
        let interests = interests(kinds, judging, served, kinds_may_come);
        self.wish(target, dependent, interests, &judging.rules)
    }

    fn wish(
        &self,
        target: &Acting,
        dependent: &Dependent,
        interests: Vec<Interest>,
        rules: &Arc<Rules>,
    ) -> Result<(), WatchLimit> {
        let _wishing = self.wishing();
        self.store.want(target.key(), dependent, Wish::new(interests.clone(), Arc::clone(rules)));
        self.watches.want(target, dependent, interests)
    }

    /// What is known of the objects of `dependent`, and of those in `also`.
    pub(crate) fn snapshot(&self, target: &Acting, dependent: &Dependent, also: &Inventory) -> Snapshot {
        let wanted = self.store.wanted(target.key(), dependent);
        let complete = wanted.is_empty()
            || self.store.all_listed(target.key(), &wanted) && self.watches.is_healthy(target, wanted);
        let objects = self.store.objects(target.key(), &dependent.owner, also);
        let unjudged = self.store.unjudged(target.key(), dependent);
        let untold = self.store.untold(target.key(), &objects);
        Snapshot { objects, untold, complete, unjudged }
    }

    /// The kinds of which nothing is shown to `dependent` though it wants them, each with why, where that is known.
    pub(crate) fn unseen(&self, target: &Acting, dependent: &Dependent) -> Vec<Unseen> {
        let wanted = self.store.wanted(target.key(), dependent);
        let unhealthy = self.watches.unhealthy(target, wanted);
        let kind = |interest: Interest| GroupKind::new(&interest.group, &interest.kind);
        let mut unseen = BTreeMap::<GroupKind, Option<Failure>>::new();
        for (interest, why) in unhealthy {
            let known = unseen.entry(kind(interest)).or_default();
            *known = known.take().or(why);
        }
        unseen.into_iter().collect()
    }

    /// Judges an object that was read just now, unless its stream did so meanwhile.
    pub(crate) fn judge(&self, target: &Acting, rules: &Rules, identity: &Identity, object: &DynamicObject) {
        self.store.judge(target.key(), rules, identity, object);
    }

    /// All that was to be judged anew was.
    pub(crate) fn all_judged(&self, target: &Acting, dependent: &Dependent) {
        self.store.all_judged(target.key(), dependent);
    }

    /// Objects of an inventory that were seen to have done their work ([`health::is_finished`]). Those that are gone are
    /// told once.
    pub(crate) fn finished(&self, target: &Acting, inventory: &Inventory) -> Vec<Identity> {
        self.store.finished(target.key(), inventory)
    }

    /// Notes what an apply of our own gave, at that resourceVersion, unless the stream is further already.
    pub(crate) fn note(
        &self,
        target: &Acting,
        identity: &Identity,
        observed: Observed,
        version: Option<String>,
        revision: Option<u64>,
    ) {
        self.store.note(target.key(), identity, (observed, version), revision);
    }

    /// The target, with what is known of it by all components there.
    pub(crate) fn cluster(&self, target: &Acting) -> Cluster {
        let (discovery, turns) = self.store.shared(target.key());
        Cluster { client: target.client(), discovery, turns, rehearsal: None, deleter: None }
    }

    /// Whether CRDs or aggregated APIs of the target changed a moment ago, so that what it serves lags behind.
    pub(crate) fn kinds_in_motion(&self, target: &Acting) -> bool {
        self.next_look(target).is_some()
    }

    /// The pause until another look at what the target serves is worth it; `None` once it has settled.
    pub(crate) fn next_look(&self, target: &Acting) -> Option<Duration> {
        next_look(self.store.kinds_unchanged_for(target.key())?)
    }

    /// The Secret of a target changed: its streams end, and what they showed is no longer known.
    pub(crate) fn access_changed(&self, secret: &str) {
        let _wishing = self.wishing();
        self.watches.access_changed(secret);
        self.store.access_changed(secret);
    }

    /// `dependent` is gone.
    pub(crate) fn forget(&self, dependent: &Dependent) {
        let _wishing = self.wishing();
        self.watches.leave_all(dependent);
        self.store.forget(dependent);
    }

    fn wishing(&self) -> MutexGuard<'_, ()> {
        self.wishing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes what the streams say, and wakes whom it concerns.
struct Listening<W> {
    store: Arc<Store>,
    wake: W,
}

impl<W: Fn(&Dependent) + Send + Sync + 'static> Listener<Dependent> for Listening<W> {
    fn is_expensive(&self, target: Option<&SecretKey>, interest: &Interest) -> bool {
        self.store.has_rules(target, interest)
    }

    fn saw(
        &self,
        target: Option<&SecretKey>,
        interest: &Interest,
        sighting: &Sighting,
        dependents: &[Dependent],
    ) {
        let changed = self.store.take(target, interest, sighting);
        dependents.iter().filter(|dependent| changed.concerns(dependent)).for_each(&self.wake);
    }

    /// Or who is Ready would stay so, whatever becomes of its objects.
    fn refused(&self, _target: Option<&SecretKey>, _interest: &Interest, dependents: &[Dependent]) {
        dependents.iter().for_each(&self.wake);
    }
}

impl std::fmt::Debug for Sights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sights").finish_non_exhaustive()
    }
}

/// The pause before the next look, after kinds changed that long ago: it grows, and in the end only the watches
/// of CRDs and APIServices tell.
fn next_look(unchanged: Duration) -> Option<Duration> {
    (unchanged < MOTION).then(|| (unchanged / 2).max(LOOK))
}

/// The streams for these kinds: scoped by owner label, whole where health needs it.
fn interests(
    kinds: &BTreeSet<GroupKind>,
    judging: &Judging,
    served: &Kinds,
    kinds_may_come: bool,
) -> Vec<Interest> {
    let owned = kinds.iter().filter_map(|kind| served.preferred(kind)).filter(|mapping| mapping.can("watch"));
    let mut wanted: Vec<Interest> = owned.map(|mapping| of_kind(mapping, judging)).collect();
    if kinds_may_come {
        let arrivals =
            [("apiextensions.k8s.io", "CustomResourceDefinition"), ("apiregistration.k8s.io", "APIService")];
        let arrivals =
            arrivals.iter().filter_map(|(group, kind)| served.preferred(&GroupKind::new(*group, *kind)));
        wanted.extend(arrivals.map(|mapping| Interest::in_kind(&mapping.resource)));
    }
    wanted
}

/// Whether the health of objects of a kind counts: of workloads, and of what `helm --wait` waits for too.
pub(crate) fn health_counts(kind: &GroupKind) -> bool {
    let (group, name) = (kind.group.as_str(), kind.kind.as_str());
    health::watched_whole(kind)
        || matches!(
            (group, name),
            ("", "PersistentVolumeClaim" | "Pod" | "Service")
                | ("apps", "ReplicaSet")
                | ("apiregistration.k8s.io", "APIService")
        )
}

fn of_kind(mapping: &Mapping, judging: &Judging) -> Interest {
    let mut interest = Interest::in_kind(&mapping.resource).owned();
    let kind = mapping.gvk().group_kind();
    if health_counts(&kind) || judging.manager.as_ref() == Some(&kind) || judging.rules.has(&kind) {
        interest.content = Content::Whole;
    }
    interest
}

#[cfg(test)]
mod tests;
