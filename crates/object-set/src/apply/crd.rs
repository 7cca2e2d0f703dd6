//! CRDs, which several owners may ship: the highest version wins, and nothing that other owners use is removed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;

use super::adoption::check_adoptable;
use super::adoption::take_over::take_over;
use super::context::{ApplyContext, DesiredObject};
use super::desired_state::DesiredState;
use super::live_state::LiveState;
use super::object::is_race;
use super::object_writer::ObjectWriter;
use super::outcome::{ObjectResult, Outcome, Refusal};
use super::recreation::recreate;
use super::share::Share;
use super::target_object::Precondition;
use crate::cluster::Cluster;
use crate::cluster::discovery::{Mapping, crd_mappings};
use crate::error::{Action, CallError};
use crate::inventory::Entry;
use crate::object::{Identity, Object};
use crate::ownership::{self, CREATED_BY, OWNER_LABEL, Ownership, SET_VERSION};

mod decision;
mod established;
mod versions;

use decision::{CrdDecision, decide};
pub(super) use established::{CrdWait, wait_for_crds};
use versions::LiveCrd;

/// Apply of a CRD.
pub(super) struct CrdApply<'a> {
    pub(super) context: &'a ApplyContext<'a>,
    pub(super) desired: DesiredObject<'a>,
}

impl CrdApply<'_> {
    pub(super) async fn apply(&self) -> ObjectResult {
        let desired = self.desired;
        let DesiredObject { target, recorded, options, .. } = desired;
        let mut object = desired.object.clone();
        // A CRD that is only created has another hash, so that it is sent once updates are enabled.
        let once = options.made_once.contains(target.identity).then(|| object.intent_hash());
        object.set_annotation(SET_VERSION, &options.ownership.version);
        desired.check_size(&object)?;
        let state = DesiredState::of(object, options.ignored_fields);
        let hash = once.clone().unwrap_or_else(|| state.hash.clone());
        desired.guard()?;
        match LiveState::of(&desired, self.context.observed).await? {
            LiveState::Deleting => return Ok((Outcome::Waiting("the old CRD is being deleted"), None)),
            LiveState::Unchanged(_) | LiveState::Changed(_) if once.is_some() => {
                let as_it_is = |entry: &Entry| Entry { hash, fingerprint: String::new(), ..entry.clone() };
                return Ok((Outcome::Unchanged, recorded.map(as_it_is)));
            }
            LiveState::NotOwned(metadata) if once.is_some() => {
                return self.share_only(&metadata, hash).await;
            }
            LiveState::Unchanged(observed) => {
                // Without a fingerprint another owner wrote it; this owner writes it once the label names this owner.
                let inherited = recorded.is_some_and(|entry| entry.fingerprint.is_empty())
                    && observed.owner.as_deref() == Some(options.ownership.owner.as_str());
                if !inherited && recorded.is_some_and(|entry| entry.hash == hash) {
                    return Ok((Outcome::Unchanged, None));
                }
            }
            LiveState::Changed(_) | LiveState::NotOwned(_) => {}
            LiveState::Absent | LiveState::PresumedAbsent => {
                return self.create(state, hash, once.is_some()).await;
            }
        }
        self.apply_over(state.into_whole(), hash).await
    }

    /// Creates a CRD. `once`: whether it is never updated.
    async fn create(&self, mut state: DesiredState<'_>, hash: String, once: bool) -> ObjectResult {
        let DesiredObject { object, target, options, .. } = self.desired;
        state.set_annotation(CREATED_BY, &options.ownership.owner);
        let precondition = if target.is_dry_run() { Precondition::New } else { Precondition::CreateOnly };
        let writer = ObjectWriter { desired: self.desired };
        match writer.send(&state, precondition, false).await {
            Ok(sent) => {
                let (outcome, entry) = sent.into_outcome(&self.desired, hash, true, true);
                let entry = entry.map(|entry| if once { entry.unwatched() } else { entry });
                Ok((outcome, entry))
            }
            // The read missed it, or another owner created it since.
            Err(error) if is_race(&error) && !once => {
                let mut object = object.clone();
                object.set_annotation(SET_VERSION, &options.ownership.version);
                self.apply_over(object, hash).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Applies a CRD over an existing one.
    async fn apply_over(&self, object: Object, hash: String) -> ObjectResult {
        let desired = self.desired;
        let DesiredObject { target, recorded, options, .. } = desired;
        let live = target.api().get(&target.identity.name).await;
        let live = LiveCrd::of(live.map_err(|error| target.error(Action::Get, error))?);
        let decision = decide(object, &live, options.ownership, options.owner_is_live);
        let metadata = live.metadata;
        let uid = metadata.uid.clone().unwrap_or_default();
        let was_ours = recorded.is_some_and(Entry::was_sent);
        let CrdDecision::Send { object, shares, lost } = decision else {
            return self.share_only(&metadata, hash).await;
        };
        if shares.is_empty() && !was_ours {
            check_adoptable(&desired, &metadata, None)?;
        }
        if !lost.is_empty() && has_objects(target.cluster, crd_mappings(&live.spec).first()).await? {
            return Err(Refusal::VersionInUse { object: target.identity.clone(), versions: lost });
        }
        for owner in &shares {
            let manager = share_manager(owner, &metadata, options.ownership);
            Share::default().mark(&target, &uid, owner, &manager).await?;
        }
        if !was_ours {
            take_over(&desired, &metadata).await?;
        }
        let created = object.annotation(CREATED_BY).is_some();
        let mut state = DesiredState::of(*object, options.ignored_fields);
        let writer = ObjectWriter { desired };
        writer.move_ignored_fields(&mut state, None).await?;
        match writer.send(&state, Precondition::Uid(&uid), !was_ours).await {
            Ok(sent) => Ok(sent.into_outcome(&desired, hash, created, false)),
            Err(error) => recreate(self.context, &desired, error).await,
        }
    }

    /// Leaves a CRD unchanged except for this owner's share.
    async fn share_only(&self, live: &ObjectMeta, hash: String) -> ObjectResult {
        let DesiredObject { target, options, .. } = self.desired;
        let owner = options.ownership.owner.as_str();
        let uid = live.uid.clone().unwrap_or_default();
        let manager = options.ownership.share_manager(owner);
        let shared = Share::default().mark(&target, &uid, owner, &manager).await?;
        let created = live.annotations.as_ref().is_some_and(|all| all.contains_key(CREATED_BY));
        let version = target.mapping.resource.version.clone();
        let entry = Entry { version, uid, hash, created, ..Entry::default() };
        Ok((Outcome::Applied { created: false, resource_version: shared.resource_version }, Some(entry)))
    }
}

/// Reports whether objects of a kind exist. Returns true if no version is served, since then they cannot be listed.
async fn has_objects(cluster: &Cluster, served: Option<&Mapping>) -> Result<bool, CallError> {
    let Some(mapping) = served else { return Ok(true) };
    let one = ListParams::default().limit(1);
    let kind = Identity::new(&mapping.resource.group, &mapping.resource.kind, None, "");
    let list = mapping.api(&cluster.client, None).list_metadata(&one).await;
    Ok(!list.map_err(|error| CallError::new(Action::List, Some(&kind), error))?.items.is_empty())
}

/// The field manager under which an owner's share is marked: one of the operator that serves the owner, so that
/// this operator can end the share again.
fn share_manager(owner: &str, live: &ObjectMeta, us: &Ownership) -> String {
    if owner != us.owner
        && let Some(manager) = ownership::writers(live, OWNER_LABEL).next()
        && manager != us.creator()
    {
        return Ownership { manager: manager.to_owned(), ..us.clone() }.share_manager(owner);
    }
    us.share_manager(owner)
}

#[cfg(test)]
mod request_tests;
#[cfg(test)]
mod tests;
