//! Deletes or releases one owned object.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PropagationPolicy;
use kyma_api::{DeleteProof, Reason};

use super::contents::{NamespaceContents, crd_in_use};
use super::crd_hold::unblock_kept_crd;
use super::release::ObjectRelease;
use super::removal::ObjectRemoval;
use super::rules::{Purpose, Rules};
use crate::cluster::discovery::{Kinds, Mapping};
use crate::cluster::{Cluster, Deletion};
use crate::error::{Action, CallError, Failure};
use crate::inventory::Entry;
use crate::object::{Gvk, Identity};
use crate::order;
use crate::prune::{KeepReason, holds_data};

/// Maximum number of tries for an object that other writers keep changing.
const MAX_REMOVAL_TRIES: usize = 4;

/// Deletes or releases the objects of one removal, one by one.
pub(super) struct ObjectRemover<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) kinds: Arc<Kinds>,
    pub(super) rules: Rules<'a>,
    /// New owners of released objects.
    pub(super) new_owners: BTreeMap<Identity, String>,
}

impl<'a> ObjectRemover<'a> {
    pub(super) fn new(cluster: &'a Cluster, kinds: Arc<Kinds>, rules: Rules<'a>) -> Self {
        Self { cluster, kinds, rules, new_owners: BTreeMap::new() }
    }

    /// Deletes or releases one object, and tries again if it changed between read and write.
    pub(super) async fn remove_with_retries(
        &self,
        identity: &Identity,
        kept: Option<KeepReason>,
    ) -> ObjectRemoval {
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
            // An interrupted removal may have blocked the creation of its objects.
            let manager = self.rules.ownership.creator();
            unblock_kept_crd(&self.cluster.client, &identity.name, &manager).await;
        }
        let ownership = self.rules.ownership;
        let release = ObjectRelease { cluster: self.cluster, ownership, identity, mapping };
        let is_transferred = release.send(&live, self.new_owners.get(identity)).await?;
        Ok(if is_transferred { ObjectRemoval::Transferred } else { ObjectRemoval::Kept(reason) })
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

    pub(super) fn mapping(&self, identity: &Identity, entry: &Entry) -> Option<&Mapping> {
        self.kinds.any(&Gvk::new(&identity.group, &entry.version, &identity.kind))
    }

    /// Returns the reason against a deletion, from the live object; otherwise the proof for the delete gate.
    pub(super) async fn must_stay(
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
            let used = crd_in_use(self.cluster, self.rules.ownership, identity, mapping).await?;
            return Ok(used.map(|resource_version| DeleteProof::CreatedAndEmpty { resource_version }));
        }
        if identity.is_namespace() {
            let resource_version = live.resource_version.clone().unwrap_or_default();
            let contents =
                NamespaceContents { cluster: self.cluster, kinds: &self.kinds, rules: &self.rules };
            let held = contents.held_by(&identity.name).await?;
            return Ok(held.map_or(Ok(DeleteProof::CreatedAndEmpty { resource_version }), Err));
        }
        Ok(Ok(if entry.created && holds_data(identity) { DeleteProof::Created } else { DeleteProof::None }))
    }

    /// Asks the delete gate to delete an object.
    pub(super) async fn delete_gated(
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
                    unblock_kept_crd(&self.cluster.client, &identity.name, &ownership.creator()).await;
                }
                Err(error.without_proof_of_absence())
            }
        }
    }
}
