//! Deletes owned objects from the cluster, step by step and without waiting: the caller repeats the call on an event.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{FutureExt as _, StreamExt as _};

use crate::cluster::Cluster;
use crate::cluster::discovery::Kinds;
use crate::error::CallError;
use crate::inventory::Inventory;
use crate::object::Identity;
use crate::order::{self, DeletionStage};
use crate::ownership::{OWNER_LABEL, Ownership, Protection, sharers};
use crate::prune::PrunePlan;

mod contents;
mod crd_hold;
mod object;
mod release;
mod removal;
mod rules;
mod webhooks;

pub(crate) use crd_hold::remove_required_property;
pub use crd_hold::{CrdContents, block_creation, unblock_creation, unblock_kept_crd};
use object::ObjectRemover;
use removal::ObjectRemoval;
pub use removal::Removal;
use rules::{Purpose, Rules};
use webhooks::remove_dead_webhooks;
pub use webhooks::remove_webhook;

/// Maximum number of concurrent requests.
const MAX_PARALLEL_REQUESTS: usize = 8;

/// Result of the deletion of an object that is to be created again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplacementState {
    /// The object is gone or being deleted; its DELETE event shows the end.
    Free,
    /// The object is not this owner's, or its deletion is not allowed.
    Blocked,
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
    let remover = ObjectRemover { cluster, kinds, rules, new_owners: plan.new_owners.clone() };
    // Objects that stay lose this owner's marks, or get those of the next owner, before the first deletion, so that a
    // crash leaves no outdated mark.
    let mut released = Vec::with_capacity(plan.release.len());
    for (identity, reason) in &plan.release {
        let result = remover.remove_with_retries(identity, Some(*reason)).await;
        released.push((identity.clone(), result));
    }
    let mut removal = remove_in_stages(&remover, plan.delete.clone()).await;
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
    let rules = Rules { inventory, ownership, protection, purpose, going };
    let remover = ObjectRemover::new(cluster, kinds, rules);
    let identities = inventory.iter().map(|(identity, _)| identity.clone()).collect();
    Ok(remove_in_stages(&remover, identities).await)
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
    let rules = Rules { inventory, ownership, protection, purpose, going };
    let remover = ObjectRemover::new(cluster, kinds, rules);
    let Some(entry) = inventory.get(identity) else { return Ok(ReplacementState::Blocked) };
    let Some(mapping) = remover.mapping(identity, entry) else { return Ok(ReplacementState::Blocked) };
    let Some(live) = cluster.metadata(mapping, identity).await? else { return Ok(ReplacementState::Free) };
    let live = live.metadata;
    if live.uid.as_deref() != Some(entry.uid.as_str()) {
        return Ok(ReplacementState::Blocked);
    }
    if live.deletion_timestamp.is_some() {
        return Ok(ReplacementState::Free);
    }
    match remover.must_stay(identity, entry, mapping, &live).await? {
        Ok(proof) => {
            remover.delete_gated(identity, mapping, &live, proof).await.map(|_| ReplacementState::Free)
        }
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

/// Deletes step by step, and stops after the first step that leaves objects waiting or failed.
async fn remove_in_stages(remover: &ObjectRemover<'_>, mut identities: Vec<Identity>) -> Removal {
    order::sort_for_deletion(&mut identities);
    let mut removal = Removal::default();
    for step in DeletionStage::ALL {
        let of_step: Vec<&Identity> = identities
            .iter()
            .filter(|id| order::deletion_stage(id) == step && !removal.gone.contains(id))
            .collect();
        let held_up = !removal.waiting.is_empty() || !removal.failed.is_empty();
        if held_up && remover.cluster.dry_run.is_none() {
            removal.later.extend(of_step.into_iter().cloned());
            continue;
        }
        let deletions = of_step.into_iter().map(|identity| {
            async move {
                let result = remover.remove_with_retries(identity, None).await;
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
        remove_dead_webhooks(remover, &mut removal, &identities).await;
    }
    removal
}
