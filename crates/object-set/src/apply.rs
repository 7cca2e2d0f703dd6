//! A set of objects -> the cluster, by server-side apply, in stages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use futures::{FutureExt as _, StreamExt as _};
use kyma_api::ObjectSelector;

use crate::cluster::{Cluster, Ownership};
use crate::discovery::{Kinds, Mapping};
use crate::drift::Observed;
use crate::error::{CallError, Failure};
use crate::inventory::{Entry, Inventory};
use crate::normalise::normalise;
use crate::object::{Gvk, Identity, Object};
use crate::order::{self, Stage};
use crate::protect::Protection;
use crate::rehearsal::{Rehearsal, Untried};
use crate::set::ObjectSet;
use crate::yielded::Yielded;

mod as_is;
mod as_written;
mod claim;
mod crd;
mod gone;
mod keep;
mod leftovers;
mod namespace;
mod one;
mod outcome;
mod owner;
mod replace;
mod send;
mod share;
mod system;
mod take_over;
mod wish;

pub use claim::claim;
use one::Done;
pub use outcome::{Applied, Outcome, Refusal};
pub(crate) use owner::is_creator;
pub(crate) use send::serving_pauses;
pub use system::{System, helm_release};
pub use take_over::move_fields;

/// What to do with an object that exists and that we have not applied before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Adopt {
    /// Take only what carries our owner label already.
    Never,
    /// Take everything but what an owner holds that is not proven to be gone, whoever wrote it.
    #[default]
    Unowned,
    /// Take everything.
    Always,
}

/// What becomes of objects that another system applied, once they may be adopted. Namespaces and CRDs, which have several
/// owners anyway, are sent whatever it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Foreign {
    /// They become as the set says.
    #[default]
    Take,
    /// They are left alone and told ([`Outcome::Foreign`]).
    Tell,
    /// They become ours, and those that differ from the set stay as they are ([`Outcome::AsIs`]).
    AsIs,
}

/// How a set is applied.
#[derive(Clone, Copy)]
pub struct ApplyOptions<'a> {
    /// In whose name.
    pub ownership: &'a Ownership,
    /// What to do with existing objects.
    pub adopt: Adopt,
    /// Whether the owner of that hash still exists, as far as this operator serves it. [`Adopt::Unowned`] takes
    /// objects of owners that do not, if our field manager marked them; those of other operators stay theirs.
    pub owner_is_live: &'a (dyn Fn(&str) -> bool + Sync),
    /// Whether unknown and duplicate fields are errors (`fieldValidation=Strict`) or ignored.
    pub strict: bool,
    /// Whether the set is the one that was applied, so that where it says something else now, that is by chance:
    /// the values on the target stay where nobody has changed them.
    pub repair: bool,
    /// Namespace of objects that name none and need one.
    pub namespace: &'a str,
    /// Requests at the same time; 8 is a good number.
    pub parallel: usize,
    /// What no set may touch.
    pub protection: &'a Protection,
    /// Field managers whose fields become ours when an object is adopted, besides those of kubectl, Helm, Flux and Argo CD.
    pub take_over: &'a [&'a str],
    /// What becomes of objects of other systems.
    pub foreign: Foreign,
    /// Fields that belong to whoever changes them, once the object is there.
    pub yielded: &'a Yielded,
    /// CRDs that are made where they are missing, and left as they are where they are not.
    pub made_once: &'a BTreeSet<Identity>,
    /// Objects that are deleted and made anew where a field would change that cannot. One that says no kind means no
    /// Namespace, CRD, volume or claim.
    pub recreate: &'a [ObjectSelector],
    /// Whether objects that are not on record are most likely not there, as with the first apply of all. Nobody looks for
    /// such a one then: it is sent so that it can only be made, in one request. Where something has its name it is looked
    /// at, and judged as else. In a rehearsal, and of Namespaces and CRDs, every one is looked for.
    pub are_new: bool,
    /// When to stop sending: what was not sent by then is [`Outcome::Waiting`] for [`TIME_IS_UP`]. `None`: never.
    pub until: Option<Instant>,
}

/// What objects wait for that were not sent in time: nothing but another run.
pub const TIME_IS_UP: &str = "there was no time left to send it";

/// What a watch knows of the objects on the target.
pub trait Observations: Sync {
    /// The object as last seen; `None` where the watch has not seen it, which proves nothing.
    fn get(&self, object: &Identity) -> Option<Observed>;
}

/// No watch: the target is asked about each object.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingObserved;

impl Observations for NothingObserved {
    fn get(&self, _: &Identity) -> Option<Observed> {
        None
    }
}

impl Observations for BTreeMap<Identity, Observed> {
    fn get(&self, object: &Identity) -> Option<Observed> {
        BTreeMap::get(self, object).cloned()
    }
}

/// Everything that stays the same while a set is applied.
struct Run<'a> {
    cluster: &'a Cluster,
    kinds: Arc<Kinds>,
    /// Kinds that CRDs of this set define.
    own_kinds: BTreeSet<Gvk>,
    recorded: &'a Inventory,
    observed: &'a dyn Observations,
    options: &'a ApplyOptions<'a>,
}

/// An object of the set, ready to be sent, and how it is reached.
struct Wanted {
    object: Object,
    identity: Identity,
    mapping: Option<Mapping>,
}

/// Applies a set. Objects that are unchanged on both sides cost no call when `observed` shows them. A kind
/// that the target lacks holds up only its own objects, and so does a webhook that does not answer; an object that is
/// refused holds up the later stages.
///
/// # Errors
/// When the target cannot say what it serves; everything else is an [`Outcome`] of one object.
pub async fn apply(
    cluster: &Cluster,
    set: &ObjectSet,
    recorded: &Inventory,
    observed: &dyn Observations,
    options: &ApplyOptions<'_>,
) -> Result<Applied, CallError> {
    let kinds = kinds_for(cluster, set).await?;
    let own_kinds = set.crds().flat_map(crd::defined_kinds).collect();
    let mut run = Run { cluster, kinds, own_kinds, recorded, observed, options };
    let mut applied = Applied::starting_from(recorded);
    let mut objects: Vec<Object> = set.objects().to_vec();
    for object in &mut objects {
        applied.warnings.extend(normalise(object));
        let identity = run.kinds.scoped(&object.identity(), options.namespace);
        object.set_namespace(identity.namespace.as_deref());
    }
    // With namespaces filled in, two objects may turn out to be one.
    let objects = ObjectSet::new(objects);
    applied.warnings.extend_from_slice(objects.warnings());
    let objects = objects.into_objects();
    if let Some(rehearsal) = &cluster.rehearsal {
        let namespaces = objects.iter().filter(|object| object.identity().is_namespace());
        namespaces.for_each(|namespace| rehearsal.brings(namespace.name()));
    }
    let stages: Vec<(Stage, Vec<Object>)> = order::stages(&objects)
        .into_iter()
        .map(|(stage, objects)| (stage, objects.into_iter().cloned().collect()))
        .collect();
    for (stage, objects) in stages {
        // A rehearsal tells of all that would be refused.
        if applied.is_held_up() && cluster.rehearsal.is_none() {
            applied.skip(objects.iter().map(Object::identity));
            continue;
        }
        let found = run.stage(&objects).await;
        let crds_changed = applied.take(found);
        if stage == Stage::Foundation && crds_changed && cluster.rehearsal.is_none() {
            run.after_crds(&objects, &mut applied).await;
        }
    }
    Ok(applied)
}

/// What the target serves; asked again once when the set needs a kind that neither it nor its own CRDs have.
async fn kinds_for(cluster: &Cluster, set: &ObjectSet) -> Result<Arc<Kinds>, CallError> {
    let seen = cluster.discovery.kinds(&cluster.client).await?;
    let with_own = seen.with_crds(set.crds());
    if set.objects().iter().all(|object| with_own.get(&object.gvk()).is_some()) {
        return Ok(with_own);
    }
    let fresh = cluster.discovery.newer_than(&seen, &cluster.client).await?;
    Ok(fresh.with_crds(set.crds()))
}

impl Run<'_> {
    async fn stage(&self, objects: &[Object]) -> Vec<(Identity, Outcome, Option<Entry>)> {
        // Boxed one by one, so that callers can prove that the whole may move between threads.
        let work: Vec<_> = objects.iter().map(|object| self.one(object).boxed()).collect();
        futures::stream::iter(work).buffered(self.options.parallel.max(1)).collect().await
    }

    /// One object by the rules of its kind: its outcome, and what to remember of it from now on.
    async fn one(&self, object: &Object) -> (Identity, Outcome, Option<Entry>) {
        let wanted = self.wanted(object);
        let identity = wanted.identity.clone();
        if self.options.until.is_some_and(|until| Instant::now() >= until) {
            return (identity, Outcome::Waiting(TIME_IS_UP), None);
        }
        let _turn = self.cluster.turns.at(&identity).await;
        let done = match &wanted.mapping {
            None => Ok((Outcome::Missing(object.gvk()), None)),
            Some(mapping) if wanted.identity.is_namespace() => self.namespace(&wanted, mapping).await,
            Some(mapping) if wanted.identity.is_crd() => self.crd(&wanted, mapping).await,
            Some(mapping) => self.plain_of_any_version(&wanted, mapping).await,
        };
        let done = self.excused(&wanted, done).await;
        if let Err(Refusal::Call(error)) = &done
            && error.may_be_of_group()
            && !self.own_kinds.iter().any(|kind| kind.group == identity.group)
        {
            self.cluster.discovery.invalidate().await;
        }
        match done {
            Ok((outcome, entry)) => (identity, outcome, entry),
            Err(Refusal::Call(error)) if error.is_missing_kind() => {
                // It went since the target was asked.
                self.cluster.discovery.invalidate().await;
                (identity, Outcome::Missing(object.gvk()), None)
            }
            Err(Refusal::Call(error)) if error.failure == Failure::NotServedYet => {
                (identity, Outcome::Waiting("its kind is not served yet"), None)
            }
            Err(refusal) => (identity, Outcome::Refused(refusal), None),
        }
    }

    /// In a rehearsal what cannot be tried counts as sent, where only something of the same set is missing for it.
    async fn excused(&self, wanted: &Wanted, done: Done) -> Done {
        let (Some(rehearsal), Some(mapping)) = (&self.cluster.rehearsal, &wanted.mapping) else {
            return done;
        };
        let Err(Refusal::Call(error)) = &done else { return done };
        let Some(why) = rehearsal.excuse(error, self.is_new(mapping)) else { return done };
        Ok(self.untried(rehearsal, wanted, mapping, why).await)
    }

    async fn untried(
        &self,
        rehearsal: &Rehearsal,
        wanted: &Wanted,
        mapping: &Mapping,
        why: Untried,
    ) -> (Outcome, Option<Entry>) {
        let api = mapping.api(&self.cluster.client, wanted.identity.namespace.as_deref());
        let before = api.get_opt(&wanted.identity.name).await.ok().flatten();
        let created = before.is_none();
        let uid = before.as_ref().and_then(|before| before.metadata.uid.clone()).unwrap_or_default();
        rehearsal.untried(&wanted.object, before, why);
        let entry = Entry {
            version: mapping.resource.version.clone(),
            uid,
            hash: wanted.object.intent_hash(),
            created,
            ..Entry::default()
        };
        (Outcome::Applied { created, revision: None }, Some(entry))
    }

    fn wanted(&self, object: &Object) -> Wanted {
        let mapping = self.kinds.get(&object.gvk()).cloned();
        Wanted { object: object.clone(), identity: object.identity(), mapping }
    }

    /// Waits, for a bounded time, until new CRDs are established; the kinds of those that are not stay
    /// unavailable in this run.
    async fn after_crds(&mut self, objects: &[Object], applied: &mut Applied) {
        self.cluster.discovery.invalidate().await;
        let late = crd::not_established(self.cluster, objects).await;
        if !late.is_empty() {
            let kinds: BTreeSet<Gvk> = late.iter().flat_map(|crd| crd::defined_kinds(crd)).collect();
            Arc::make_mut(&mut self.kinds).forget(&kinds);
            applied.wait_for_crds(late.iter().map(|crd| crd.identity()));
        }
    }
}
