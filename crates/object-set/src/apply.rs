//! A set of objects -> the cluster, by server-side apply, in stages.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use futures::{FutureExt as _, StreamExt as _};

use crate::cluster::Cluster;
use crate::cluster::discovery::{Kinds, Mapping};
use crate::cluster::dry_run::{DryRun, NoDryRunReason};
use crate::error::{CallError, Failure};
use crate::inventory::{Entry, Inventory};
use crate::normalise::normalise;
use crate::object::{Gvk, Identity, Object};
use crate::order::{self, Stage};
use crate::ownership::OWNER_LABEL;
use crate::set::ObjectSet;

mod as_is;
mod as_written;
mod claim;
mod crd;
mod desired_state;
mod keep;
mod leftovers;
mod namespace;
mod one;
mod options;
mod outcome;
mod removed_version;
mod replace;
mod send;
mod share;
mod system;
mod take_over;

pub use claim::claim;
use crd::CrdWait;
pub use options::{AdoptionPolicy, ApplyOptions, ForeignObjectPolicy, NoObservations, Observations};
use outcome::ObjectResult;
pub use outcome::{ApplyReport, DEADLINE_REACHED, Outcome, Refusal};
pub use system::{System, helm_release};
pub use take_over::move_fields;

/// Parameters of one apply of a set.
struct Run<'a> {
    cluster: &'a Cluster,
    kinds: Arc<Kinds>,
    /// Kinds that CRDs of this set define.
    own_kinds: BTreeSet<Gvk>,
    recorded: &'a Inventory,
    observed: &'a dyn Observations,
    options: &'a ApplyOptions<'a>,
}

/// An object of the set, ready to be sent, with the mapping of its kind.
struct DesiredObject {
    object: Object,
    identity: Identity,
    mapping: Option<Mapping>,
}

/// Applies a set. Objects that are unchanged on both sides cost no call when `observed` shows them. A kind
/// that the target lacks holds up only its own objects, and so does a webhook that does not answer; an object that is
/// refused holds up the later stages.
///
/// # Errors
/// If discovery of the target fails; any other failure is an [`Outcome`] of one object.
pub async fn apply(
    cluster: &Cluster,
    set: &ObjectSet,
    recorded: &Inventory,
    observed: &dyn Observations,
    options: &ApplyOptions<'_>,
) -> Result<ApplyReport, CallError> {
    let kinds = kinds_for(cluster, set).await?;
    let own_kinds = set.crds().flat_map(Object::defined_kinds).collect();
    let mut run = Run { cluster, kinds, own_kinds, recorded, observed, options };
    let mut applied = ApplyReport::starting_from(recorded);
    let mut objects: Vec<Object> = set.objects().to_vec();
    for object in &mut objects {
        applied.warnings.extend(normalise(object));
        let identity = run.kinds.scoped(&object.identity(), options.namespace);
        object.set_namespace(identity.namespace.as_deref());
        if !identity.is_namespace() {
            // Before the objects are shared, since a later change copies them. Namespaces have no single owner.
            object.set_label(OWNER_LABEL, &options.ownership.owner);
        }
    }
    // With default namespaces, two objects may have the same identity.
    let objects = ObjectSet::new(objects);
    applied.warnings.extend_from_slice(objects.warnings());
    let objects = objects.into_objects();
    if let Some(dry_run) = &cluster.dry_run {
        let namespaces = objects.iter().filter(|object| object.identity().is_namespace());
        namespaces.for_each(|namespace| dry_run.add_namespace(namespace.name()));
    }
    for (stage, objects) in order::stages(objects) {
        // A dry run reports every object that would be refused.
        if applied.is_held_up() && cluster.dry_run.is_none() {
            applied.skip(objects.iter().map(Object::identity));
            continue;
        }
        let found = run.stage(&objects).await;
        let crds_changed = applied.add(found);
        if stage == Stage::Foundation && crds_changed && cluster.dry_run.is_none() {
            run.after_crds(&objects, &mut applied).await;
        }
    }
    Ok(applied)
}

/// Returns the kinds that the target serves. Repeats discovery once if the set needs a kind that neither the target
/// nor the set's CRDs define.
async fn kinds_for(cluster: &Cluster, set: &ObjectSet) -> Result<Arc<Kinds>, CallError> {
    let kinds = cluster.discovery.kinds(&cluster.client).await?;
    let with_own = kinds.with_crds(set.crds());
    if set.objects().iter().all(|object| with_own.get(&object.gvk()).is_some()) {
        return Ok(with_own);
    }
    let fresh = cluster.discovery.newer_than(&kinds, &cluster.client).await?;
    Ok(fresh.with_crds(set.crds()))
}

impl Run<'_> {
    async fn stage(&self, objects: &[Object]) -> Vec<(Identity, Outcome, Option<Entry>)> {
        // Boxed, so that the compiler can prove that the future is `Send`.
        let work: Vec<_> = objects.iter().map(|object| self.apply_object(object).boxed()).collect();
        futures::stream::iter(work).buffered(self.options.parallel.max(1)).collect().await
    }

    /// Applies one object by the rules of its kind. Returns its outcome and inventory entry.
    async fn apply_object(&self, object: &Object) -> (Identity, Outcome, Option<Entry>) {
        let desired = self.desired(object);
        let identity = desired.identity.clone();
        if self.options.until.is_some_and(|until| Instant::now() >= until) {
            return (identity, Outcome::Waiting(DEADLINE_REACHED), None);
        }
        let _lock = self.cluster.object_locks.lock(&identity).await;
        let result = match &desired.mapping {
            None => Ok((Outcome::Missing(object.gvk()), None)),
            Some(mapping) if desired.identity.is_namespace() => self.namespace(&desired, mapping).await,
            Some(mapping) if desired.identity.is_crd() => self.crd(&desired, mapping).await,
            Some(mapping) => self.apply_plain_of_any_version(&desired, mapping).await,
        };
        let result = self.accept_without_dry_run(&desired, result).await;
        if let Err(Refusal::Call(error)) = &result
            && error.may_be_of_group()
            && !self.own_kinds.iter().any(|kind| kind.group == identity.group)
        {
            self.cluster.discovery.invalidate().await;
        }
        match result {
            Ok((outcome, entry)) => (identity, outcome, entry),
            Err(Refusal::Call(error)) if error.is_missing_kind() => {
                // The kind was removed since discovery.
                self.cluster.discovery.invalidate().await;
                (identity, Outcome::Missing(object.gvk()), None)
            }
            Err(Refusal::Call(error)) if error.failure == Failure::NotServedYet => {
                (identity, Outcome::Waiting("its kind is not served yet"), None)
            }
            Err(refusal) => (identity, Outcome::Refused(refusal), None),
        }
    }

    /// In a dry run, counts a refused object as sent if a real apply may succeed: for example,
    /// if its Namespace or CRD is in the same set.
    async fn accept_without_dry_run(&self, desired: &DesiredObject, result: ObjectResult) -> ObjectResult {
        let (Some(dry_run), Some(mapping)) = (&self.cluster.dry_run, &desired.mapping) else {
            return result;
        };
        let Err(Refusal::Call(error)) = &result else { return result };
        let Some(why) = dry_run.no_dry_run_reason(error, self.is_new(mapping)) else { return result };
        Ok(self.record_without_dry_run(dry_run, desired, mapping, why).await)
    }

    async fn record_without_dry_run(
        &self,
        dry_run: &DryRun,
        desired: &DesiredObject,
        mapping: &Mapping,
        why: NoDryRunReason,
    ) -> (Outcome, Option<Entry>) {
        let api = mapping.api(&self.cluster.client, desired.identity.namespace.as_deref());
        let before = api.get_opt(&desired.identity.name).await.ok().flatten();
        let created = before.is_none();
        let uid = before.as_ref().and_then(|before| before.metadata.uid.clone()).unwrap_or_default();
        dry_run.record_without_dry_run(&desired.object, before, why);
        let entry = Entry {
            version: mapping.resource.version.clone(),
            uid,
            hash: desired.object.intent_hash(),
            created,
            ..Entry::default()
        };
        (Outcome::Applied { created, revision: None }, Some(entry))
    }

    fn desired(&self, object: &Object) -> DesiredObject {
        let mapping = self.kinds.get(&object.gvk()).cloned();
        DesiredObject { object: object.clone(), identity: object.identity(), mapping }
    }

    /// Waits, for a bounded time, until new CRDs are established; the kinds of those that are not stay
    /// unavailable in this run. The others get into the cached discovery without another request.
    async fn after_crds(&mut self, objects: &[Object], applied: &mut ApplyReport) {
        let CrdWait { late, mappings } = crd::wait_for_crds(self.cluster, objects).await;
        match mappings {
            Some(mappings) => self.cluster.discovery.add_crds(&mappings).await,
            None => self.cluster.discovery.invalidate().await,
        }
        if !late.is_empty() {
            let kinds: BTreeSet<Gvk> = late.iter().flat_map(|crd| crd.defined_kinds()).collect();
            Arc::make_mut(&mut self.kinds).forget(&kinds);
            applied.wait_for_crds(late.iter().map(|crd| crd.identity()));
        }
    }
}
