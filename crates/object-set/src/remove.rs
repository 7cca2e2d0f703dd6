//! Deletes owned objects from the cluster, step by step and without waiting: the caller repeats the call on an event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PropagationPolicy;
use kyma_api::{DeleteProof, Reason};

use crate::cluster::discovery::{Kinds, Mapping};
use crate::cluster::{Cluster, Deletion};
use crate::error::{Action, CallError, Failure};
use crate::inventory::{Entry, Inventory};
use crate::object::{Gvk, Identity};
use crate::order::{self, DeletionStage};
use crate::ownership::{OWNER_LABEL, Ownership, Protection, sharers};
use crate::prune::{KeepReason, PrunePlan, holds_data};

mod contents;
mod crd_hold;
mod release;
mod removal;
mod rules;
mod webhooks;

pub(crate) use crd_hold::remove_hold;
pub use crd_hold::{CrdContents, hold_creation, release_creation, release_kept_crd};
use removal::ObjectRemoval;
pub use removal::Removal;
use rules::{Purpose, Rules};
pub use webhooks::remove_webhook;

/// Maximum number of concurrent requests.
const MAX_PARALLEL_REQUESTS: usize = 8;

/// Maximum number of tries for an object that other writers keep changing.
const MAX_REMOVAL_TRIES: usize = 4;

/// Result of the deletion of an object that is to be created again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplacementState {
    /// The object is gone or being deleted; its DELETE event shows the end.
    Free,
    /// The object is not this owner's, or its deletion is not allowed.
    Blocked,
}

struct Run<'a> {
    cluster: &'a Cluster,
    kinds: Arc<Kinds>,
    rules: Rules<'a>,
    /// New owners of released objects.
    new_owners: BTreeMap<Identity, String>,
}

impl<'a> Run<'a> {
    fn of(cluster: &'a Cluster, kinds: Arc<Kinds>, rules: Rules<'a>) -> Self {
        Self { cluster, kinds, rules, new_owners: BTreeMap::new() }
    }
}

/// Carries out a prune plan. Released and deleted objects leave the inventory ([`Removal::remaining`]); the next plan
/// contains the waiting ones again. A Namespace is deleted only if it contains no object that stays.
///
/// # Errors
/// If discovery of the target fails.
pub async fn prune(
    cluster: &Cluster,
    plan: &PrunePlan,
    inventory: &Inventory,
    ownership: &Ownership,
    protection: &Protection,
) -> Result<Removal, CallError> {
    let kinds = cluster.discovery.covering(&cluster.client, &inventory.kinds()).await?;
    let going = plan.delete.iter().cloned().collect();
    let rules = Rules { inventory, ownership, protection, purpose: Purpose::Prune, going };
    let run = Run { cluster, kinds, rules, new_owners: plan.new_owners.clone() };
    // Objects that stay lose this owner's marks, or get those of the next owner, before the first deletion, so that a
    // crash leaves no outdated mark.
    let mut released = Vec::with_capacity(plan.release.len());
    for (identity, reason) in &plan.release {
        let result = run.remove_with_retries(identity, Some(*reason)).await;
        released.push((identity.clone(), result));
    }
    let mut removal = run.steps(plan.delete.clone()).await;
    for (identity, result) in released {
        removal.add(identity, result);
    }
    Ok(removal)
}

/// Runs one step of an uninstallation: custom resources are deleted first and awaited, CRDs and Namespaces last. Done
/// when [`Removal::is_done`]; otherwise to be called again, with [`Removal::remaining`], on an event.
///
/// # Errors
/// If discovery of the target fails.
pub async fn uninstall(
    cluster: &Cluster,
    inventory: &Inventory,
    ownership: &Ownership,
    protection: &Protection,
) -> Result<Removal, CallError> {
    let kinds = cluster.discovery.covering(&cluster.client, &inventory.kinds()).await?;
    let (purpose, going) = (Purpose::Uninstall, BTreeSet::new());
    let run = Run::of(cluster, kinds, Rules { inventory, ownership, protection, purpose, going });
    Ok(run.steps(inventory.iter().map(|(identity, _)| identity.clone()).collect()).await)
}

/// Deletes an object so that it can be created again. Its dependents are deleted first, but the Pods of a StatefulSet
/// stay for the new one.
///
/// # Errors
/// If the target refuses a call or does not answer.
pub(crate) async fn delete_for_replacement(
    cluster: &Cluster,
    kinds: Arc<Kinds>,
    inventory: &Inventory,
    ownership: &Ownership,
    protection: &Protection,
    identity: &Identity,
) -> Result<ReplacementState, CallError> {
    let (purpose, going) = (Purpose::Replace, BTreeSet::new());
    let run = Run::of(cluster, kinds, Rules { inventory, ownership, protection, purpose, going });
    let Some(entry) = inventory.get(identity) else { return Ok(ReplacementState::Blocked) };
    let Some(mapping) = run.mapping(identity, entry) else { return Ok(ReplacementState::Blocked) };
    let Some(live) = cluster.metadata(mapping, identity).await? else { return Ok(ReplacementState::Free) };
    let live = live.metadata;
    if live.uid.as_deref() != Some(entry.uid.as_str()) {
        return Ok(ReplacementState::Blocked);
    }
    if live.deletion_timestamp.is_some() {
        return Ok(ReplacementState::Free);
    }
    match run.must_stay(identity, entry, mapping, &live).await? {
        Ok(proof) => run.delete_gated(identity, mapping, &live, proof).await.map(|_| ReplacementState::Free),
        Err(_) => Ok(ReplacementState::Blocked),
    }
}

/// Returns the other owners that own an object or share it; none if the object does not exist.
///
/// # Errors
/// If the target does not answer or refuses a call.
pub async fn other_owners(
    cluster: &Cluster,
    object: &Identity,
    ownership: &Ownership,
) -> Result<BTreeSet<String>, CallError> {
    let kinds = cluster.discovery.kinds(&cluster.client).await?;
    let Some(mapping) = kinds.preferred(&object.group_kind()) else { return Ok(BTreeSet::new()) };
    let found = cluster.proven_metadata(mapping, object).await?;
    let labels = found.and_then(|found| found.metadata.labels).unwrap_or_default();
    let holder = labels.get(OWNER_LABEL).cloned();
    let owners = sharers(labels.keys()).into_iter().chain(holder);
    Ok(owners.filter(|owner| *owner != ownership.owner).collect())
}

impl Run<'_> {
    /// Deletes step by step, and stops after the first step that leaves objects waiting or failed.
    async fn steps(&self, mut identities: Vec<Identity>) -> Removal {
        order::sort_for_deletion(&mut identities);
        let mut removal = Removal::default();
        for step in DeletionStage::ALL {
            let of_step: Vec<&Identity> = identities
                .iter()
                .filter(|id| order::deletion_stage(id) == step && !removal.gone.contains(id))
                .collect();
            let held_up = !removal.waiting.is_empty() || !removal.failed.is_empty();
            if held_up && self.cluster.dry_run.is_none() {
                removal.later.extend(of_step.into_iter().cloned());
                continue;
            }
            let deletions = of_step.into_iter().map(|identity| {
                async move {
                    let result = self.remove_with_retries(identity, None).await;
                    (identity.clone(), result)
                }
                .boxed()
            });
            let deletions: Vec<_> = deletions.collect();
            let results: Vec<(Identity, ObjectRemoval)> =
                futures::stream::iter(deletions).buffered(MAX_PARALLEL_REQUESTS).collect().await;
            for (identity, result) in results {
                removal.add(identity, result);
            }
            self.remove_dead_webhooks(&mut removal, &identities).await;
        }
        removal
    }

    /// Deletes or releases one object, and tries again if it changed between read and write.
    async fn remove_with_retries(&self, identity: &Identity, kept: Option<KeepReason>) -> ObjectRemoval {
        let mut settled = self.remove_object(identity, kept).await;
        for _ in 1..MAX_REMOVAL_TRIES {
            if !settled.as_ref().is_err_and(|error| error.failure == Failure::Conflict) {
                break;
            }
            settled = self.remove_object(identity, kept).await;
        }
        if settled.as_ref().is_err_and(CallError::may_be_of_group) {
            self.cluster.discovery.invalidate().await;
        }
        settled.unwrap_or_else(ObjectRemoval::Failed)
    }

    /// Deletes an object, or releases it if it must stay; `kept`: the reason, if it is known before.
    async fn remove_object(
        &self,
        identity: &Identity,
        kept: Option<KeepReason>,
    ) -> Result<ObjectRemoval, CallError> {
        let Some(entry) = self.rules.inventory.get(identity) else { return Ok(ObjectRemoval::Gone) };
        let Some(mapping) = self.mapping(identity, entry) else {
            return Ok(self.without_kind(identity));
        };
        match self.in_version(identity, entry, mapping, kept).await {
            // The stored version needs no conversion.
            Err(error) if matches!(error.failure, Failure::ConversionFailed(_)) => {
                let kind = identity.group_kind();
                let others = self.kinds.versions(&kind).iter().filter(|other| *other != mapping);
                for other in others {
                    match self.in_version(identity, entry, other, kept).await {
                        Err(error) if matches!(error.failure, Failure::ConversionFailed(_)) => {}
                        settled => return settled,
                    }
                }
                Err(error)
            }
            settled => settled,
        }
    }

    async fn in_version(
        &self,
        identity: &Identity,
        entry: &Entry,
        mapping: &Mapping,
        kept: Option<KeepReason>,
    ) -> Result<ObjectRemoval, CallError> {
        let live = match self.read_metadata(identity, mapping).await? {
            Ok(live) => live,
            Err(result) => return Ok(result),
        };
        if live.uid.as_deref() != Some(entry.uid.as_str()) {
            return Ok(ObjectRemoval::Kept(KeepReason::NotTheSame));
        }
        if live.deletion_timestamp.is_some() {
            return Ok(kept.map_or(ObjectRemoval::Waiting, ObjectRemoval::Kept));
        }
        let judged = match kept {
            Some(reason) => Err(reason),
            None => self.must_stay(identity, entry, mapping, &live).await?,
        };
        let reason = match judged {
            // A dry run sends no DELETE: the body of a DELETE has the option, and the client only checks the
            // query.
            Ok(_) if self.cluster.dry_run.is_some() => return Ok(ObjectRemoval::Waiting),
            Ok(proof) => return self.delete_gated(identity, mapping, &live, proof).await,
            Err(reason) => reason,
        };
        if self.cluster.dry_run.is_some() {
            return Ok(ObjectRemoval::Kept(reason));
        }
        if identity.is_crd() {
            // An interrupted removal may have stopped the creation of its objects.
            let manager = self.rules.ownership.creator();
            release_kept_crd(&self.cluster.client, &identity.name, &manager).await;
        }
        let is_handed_over = self.release(identity, mapping, &live).await?;
        Ok(if is_handed_over { ObjectRemoval::HandedOver } else { ObjectRemoval::Kept(reason) })
    }

    /// Reads an object; returns its result if it is gone or its kind is no longer served. The kind may have been
    /// removed since discovery.
    async fn read_metadata(
        &self,
        identity: &Identity,
        mapping: &Mapping,
    ) -> Result<Result<ObjectMeta, ObjectRemoval>, CallError> {
        if let Some(claimed) =
            self.cluster.dry_run.as_ref().and_then(|dry_run| dry_run.marked_metadata(identity))
        {
            return Ok(Ok(claimed));
        }
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        match api.get_metadata(&identity.name).await {
            Ok(found) => Ok(Ok(found.metadata)),
            Err(error) => match CallError::new(Action::Get, Some(identity), error) {
                error if error.is_about_no_object() => self.unserved(identity, mapping, error).await.map(Err),
                error if error.is_absence(mapping) => Ok(Err(ObjectRemoval::Gone)),
                error => Err(error.without_proof_of_absence()),
            },
        }
    }

    /// Returns the result for a 404 that names no object: the object is gone if the target no longer serves its kind.
    async fn unserved(
        &self,
        identity: &Identity,
        mapping: &Mapping,
        mut error: CallError,
    ) -> Result<ObjectRemoval, CallError> {
        let newer = self.cluster.discovery.newer_than(&self.kinds, &self.cluster.client).await?;
        if newer.is_unknown(&identity.group) {
            return Err(CallError::group_unknown(identity));
        }
        if newer.preferred(&identity.group_kind()).is_none() {
            return Ok(ObjectRemoval::Unserved);
        }
        if newer.get(&mapping.gvk()).is_some() {
            return Err(error.without_proof_of_absence());
        }
        // The kind is served in another version, in which the next try reads it.
        error.failure = Failure::Conflict;
        Err(error)
    }

    /// Returns the result for an object of an absent kind: the object is gone with its kind, unless the API group
    /// does not answer, which proves nothing.
    fn without_kind(&self, identity: &Identity) -> ObjectRemoval {
        let unknown = self.kinds.is_unknown(&identity.group);
        if unknown {
            ObjectRemoval::Failed(CallError::group_unknown(identity))
        } else {
            ObjectRemoval::Unserved
        }
    }

    fn mapping(&self, identity: &Identity, entry: &Entry) -> Option<&Mapping> {
        self.kinds.any(&Gvk::new(&identity.group, &entry.version, &identity.kind))
    }

    /// Returns the reason against a deletion, from the live object; otherwise the proof for the delete gate.
    async fn must_stay(
        &self,
        identity: &Identity,
        entry: &Entry,
        mapping: &Mapping,
        live: &ObjectMeta,
    ) -> Result<Result<DeleteProof, KeepReason>, CallError> {
        if let Some(reason) = self.rules.stays(identity, entry, live) {
            return Ok(Err(reason));
        }
        if identity.is_crd() {
            let used = self.crd_in_use(identity, mapping).await?;
            return Ok(used.map(|resource_version| DeleteProof::CreatedAndEmpty { resource_version }));
        }
        if identity.is_namespace() {
            let resource_version = live.resource_version.clone().unwrap_or_default();
            let held = self.held_by_contents(&identity.name).await?;
            return Ok(held.map_or(Ok(DeleteProof::CreatedAndEmpty { resource_version }), Err));
        }
        Ok(Ok(if entry.created && holds_data(identity) { DeleteProof::Created } else { DeleteProof::None }))
    }

    /// Asks the delete gate to delete an object.
    async fn delete_gated(
        &self,
        identity: &Identity,
        mapping: &Mapping,
        live: &ObjectMeta,
        proof: DeleteProof,
    ) -> Result<ObjectRemoval, CallError> {
        let propagation = match self.rules.purpose {
            Purpose::Replace if identity.is("apps", "StatefulSet") => PropagationPolicy::Orphan,
            Purpose::Replace => PropagationPolicy::Foreground,
            // Foreground: a workload stays until its Pods are gone, since they need the objects of later steps.
            Purpose::Uninstall if order::makes_pods(&identity.group_kind()) => PropagationPolicy::Foreground,
            Purpose::Prune | Purpose::Uninstall => PropagationPolicy::Background,
        };
        let Some(deleter) = &self.cluster.deleter else {
            let message = "no delete gate is configured, so nothing is deleted";
            return Err(CallError::halted(identity, Reason::Internal, message));
        };
        let ownership = self.rules.ownership;
        let managers =
            [ownership.manager.clone(), ownership.creator(), ownership.share_manager(&ownership.owner)];
        let managers = managers.each_ref().map(String::as_str);
        let deletion =
            Deletion { identity, resource: &mapping.resource, live, managers: &managers, proof, propagation };
        match deleter.carry_out(&self.cluster.client, deletion).await {
            Ok(true) => Ok(ObjectRemoval::Gone),
            Ok(false) => Ok(ObjectRemoval::Waiting),
            Err(error) if error.is_absence(mapping) => Ok(ObjectRemoval::Gone),
            Err(error) if error.is_about_no_object() => self.unserved(identity, mapping, error).await,
            Err(error) => {
                if identity.is_crd() && error.failure != Failure::Conflict {
                    release_kept_crd(&self.cluster.client, &identity.name, &ownership.creator()).await;
                }
                Err(error.without_proof_of_absence())
            }
        }
    }
}
