//! A set of objects -> the cluster, by server-side apply, in stages.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use futures::{FutureExt as _, StreamExt as _};

use crate::cluster::Cluster;
use crate::cluster::discovery::Kinds;
use crate::error::{CallError, Failure};
use crate::inventory::{Entry, Inventory};
use crate::normalise::normalise;
use crate::object::{Gvk, Identity, Object};
use crate::order::{self, Stage};
use crate::ownership::OWNER_LABEL;
use crate::set::ObjectSet;

mod adoption;
mod context;
mod crd;
mod desired_state;
mod dry_run;
mod live_state;
mod live_values;
mod namespace;
mod object;
mod object_writer;
mod options;
mod outcome;
mod recreation;
mod removed_version;
mod server_side_apply;
mod share;
mod target_object;

pub use adoption::claim;
pub use adoption::system::{System, helm_release};
pub use adoption::take_over::move_fields;
use context::ApplyContext;
use crd::{CrdApply, CrdWait};
use dry_run::accept_without_dry_run;
use namespace::apply_namespace;
use object::ObjectApply;
pub use options::{AdoptionPolicy, ApplyOptions, ForeignObjectPolicy, NoObservations, Observations};
pub use outcome::{ApplyReport, DEADLINE_REACHED, Outcome, Refusal};
use removed_version::apply_in_any_version;

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
    let mut context = ApplyContext { cluster, kinds, own_kinds, recorded, observed, options };
    let mut applied = ApplyReport::starting_from(recorded);
    let mut objects: Vec<Object> = set.objects().to_vec();
    for object in &mut objects {
        applied.warnings.extend(normalise(object));
        let identity = context.kinds.scoped(&object.identity(), options.namespace);
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
        let found = apply_stage(&context, &objects).await;
        let crds_changed = applied.add(found);
        if stage == Stage::Foundation && crds_changed && cluster.dry_run.is_none() {
            after_crds(&mut context, &objects, &mut applied).await;
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

async fn apply_stage(
    context: &ApplyContext<'_>,
    objects: &[Object],
) -> Vec<(Identity, Outcome, Option<Entry>)> {
    // Boxed, so that the compiler can prove that the future is `Send`.
    let work: Vec<_> = objects.iter().map(|object| apply_object(context, object).boxed()).collect();
    futures::stream::iter(work).buffered(context.options.parallel.max(1)).collect().await
}

/// Applies one object by the rules of its kind. Returns its outcome and inventory entry.
async fn apply_object(context: &ApplyContext<'_>, object: &Object) -> (Identity, Outcome, Option<Entry>) {
    let identity = object.identity();
    if context.options.until.is_some_and(|until| Instant::now() >= until) {
        return (identity, Outcome::Waiting(DEADLINE_REACHED), None);
    }
    let _lock = context.cluster.object_locks.lock(&identity).await;
    let Some(mapping) = context.kinds.get(&object.gvk()) else {
        return (identity, Outcome::Missing(object.gvk()), None);
    };
    let desired = context.desired(object, &identity, mapping);
    let result = if identity.is_namespace() {
        apply_namespace(&desired, context.observed).await
    } else if identity.is_crd() {
        CrdApply { context, desired }.apply().await
    } else {
        apply_in_any_version(&ObjectApply { context, desired }).await
    };
    let result = accept_without_dry_run(&desired, result).await;
    if let Err(Refusal::Call(error)) = &result
        && error.may_be_of_group()
        && !context.own_kinds.iter().any(|kind| kind.group == identity.group)
    {
        context.cluster.discovery.invalidate().await;
    }
    match result {
        Ok((outcome, entry)) => (identity, outcome, entry),
        Err(Refusal::Call(error)) if error.is_missing_kind() => {
            // The kind was removed since discovery.
            context.cluster.discovery.invalidate().await;
            (identity, Outcome::Missing(object.gvk()), None)
        }
        Err(Refusal::Call(error)) if error.failure == Failure::NotServedYet => {
            (identity, Outcome::Waiting("its kind is not served yet"), None)
        }
        Err(refusal) => (identity, Outcome::Refused(refusal), None),
    }
}

/// Waits, for a bounded time, until new CRDs are established; the kinds of those that are not stay
/// unavailable in this run. The others get into the cached discovery without another request.
async fn after_crds(context: &mut ApplyContext<'_>, objects: &[Object], applied: &mut ApplyReport) {
    let CrdWait { late, mappings } = crd::wait_for_crds(context.cluster, objects).await;
    match mappings {
        Some(mappings) => context.cluster.discovery.add_crds(&mappings).await,
        None => context.cluster.discovery.invalidate().await,
    }
    if !late.is_empty() {
        let kinds: BTreeSet<Gvk> = late.iter().flat_map(|crd| crd.defined_kinds()).collect();
        Arc::make_mut(&mut context.kinds).forget(&kinds);
        applied.wait_for_crds(late.iter().map(|crd| crd.identity()));
    }
}
