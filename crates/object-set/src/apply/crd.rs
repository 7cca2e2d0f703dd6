//! CRDs, which several owners may ship: the highest version wins, and nothing that other owners use is removed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;

use super::desired_state::DesiredState;
use super::one::{LiveState, check_size, is_race, revision};
use super::outcome::{ObjectResult, Outcome, Refusal};
use super::send::Precondition;
use super::share::Share;
use super::{DesiredObject, Run};
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

impl Run<'_> {
    pub(super) async fn crd(&self, desired: &DesiredObject, mapping: &Mapping) -> ObjectResult {
        let ownership = self.options.ownership;
        let mut object = desired.object.clone();
        // A CRD that is only created has another hash, so that it is sent once updates are enabled.
        let once = self.options.made_once.contains(&desired.identity).then(|| object.intent_hash());
        object.set_annotation(SET_VERSION, &ownership.version);
        check_size(&object, &desired.identity)?;
        let mut state = DesiredState::of(object, self.options.ignored_fields);
        let hash = once.clone().unwrap_or_else(|| state.hash.clone());
        self.guard(&desired.identity)?;
        let live_state = self.live_state(&desired.identity, mapping).await?;
        let recorded = self.recorded.get(&desired.identity);
        match live_state {
            LiveState::Deleting => return Ok((Outcome::Waiting("the old CRD is being deleted"), None)),
            LiveState::Unchanged(_) | LiveState::Changed(_) if once.is_some() => {
                let as_it_is = |entry: &Entry| Entry { hash, fingerprint: String::new(), ..entry.clone() };
                return Ok((Outcome::Unchanged, recorded.map(as_it_is)));
            }
            LiveState::NotOwned(metadata) if once.is_some() => {
                return self.share_only(desired, mapping, &metadata, hash).await;
            }
            LiveState::Unchanged(observed) => {
                // Without a fingerprint another owner wrote it; this owner writes it once the label names this owner.
                let inherited = recorded.is_some_and(|entry| entry.fingerprint.is_empty())
                    && observed.owner.as_deref() == Some(ownership.owner.as_str());
                if !inherited && recorded.is_some_and(|entry| entry.hash == hash) {
                    return Ok((Outcome::Unchanged, None));
                }
            }
            LiveState::Changed(_) | LiveState::NotOwned(_) => {}
            LiveState::Absent | LiveState::PresumedAbsent => {
                state.set_annotation(CREATED_BY, &ownership.owner);
                let precondition =
                    if self.cluster.dry_run.is_some() { Precondition::New } else { Precondition::CreateOnly };
                return match self.send_and_settle(&state, desired, mapping, precondition, false).await {
                    Ok(sent) => {
                        let (outcome, entry) = self.outcome_and_entry(mapping, sent, hash, true, true);
                        let entry = entry.map(|entry| if once.is_some() { entry.unwatched() } else { entry });
                        Ok((outcome, entry))
                    }
                    // The read missed it, or another owner created it since.
                    Err(error) if is_race(&error) && once.is_none() => {
                        let mut object = desired.object.clone();
                        object.set_annotation(SET_VERSION, &ownership.version);
                        self.crd_over(desired, mapping, object, hash).await
                    }
                    Err(error) => Err(error.into()),
                };
            }
        }
        self.crd_over(desired, mapping, state.into_whole(), hash).await
    }

    /// Applies a CRD over an existing one.
    async fn crd_over(
        &self,
        desired: &DesiredObject,
        mapping: &Mapping,
        object: Object,
        hash: String,
    ) -> ObjectResult {
        let ownership = self.options.ownership;
        let api = mapping.api(&self.cluster.client, None);
        let live = api
            .get(&desired.identity.name)
            .await
            .map_err(|error| CallError::new(Action::Get, Some(&desired.identity), error))?;
        let live = LiveCrd::of(live);
        let decision = decide(object, &live, ownership, self.options.owner_is_live);
        let metadata = live.metadata;
        let uid = metadata.uid.clone().unwrap_or_default();
        let was_ours = self.recorded.get(&desired.identity).is_some_and(Entry::was_sent);
        let CrdDecision::Send { object, shares, lost } = decision else {
            return self.share_only(desired, mapping, &metadata, hash).await;
        };
        if shares.is_empty() && !was_ours {
            self.may_adopt(&desired.identity, &metadata, None)?;
        }
        if !lost.is_empty() && self.has_objects(crd_mappings(&live.spec).first()).await? {
            return Err(Refusal::VersionInUse { object: desired.identity.clone(), versions: lost });
        }
        for owner in &shares {
            let manager = share_manager(owner, &metadata, ownership);
            self.share(&desired.identity, mapping, &uid, owner, &manager, Share::default()).await?;
        }
        if !was_ours {
            self.take_over(desired, mapping, &metadata).await?;
        }
        let created = object.annotation(CREATED_BY).is_some();
        let mut state = DesiredState::of(*object, self.options.ignored_fields);
        self.move_ignored_fields(&mut state, desired, mapping, None).await?;
        match self.send_and_settle(&state, desired, mapping, Precondition::Uid(&uid), !was_ours).await {
            Ok(sent) => Ok(self.outcome_and_entry(mapping, sent, hash, created, false)),
            Err(error) => self.replace(desired, error).await,
        }
    }

    /// Leaves a CRD unchanged except for this owner's share.
    async fn share_only(
        &self,
        desired: &DesiredObject,
        mapping: &Mapping,
        live: &ObjectMeta,
        hash: String,
    ) -> ObjectResult {
        let Ownership { owner, .. } = self.options.ownership;
        let uid = live.uid.clone().unwrap_or_default();
        let manager = self.options.ownership.share_manager(owner);
        let shared = self.share(&desired.identity, mapping, &uid, owner, &manager, Share::default()).await?;
        let created = live.annotations.as_ref().is_some_and(|all| all.contains_key(CREATED_BY));
        let version = mapping.resource.version.clone();
        let entry = Entry { version, uid, hash, created, ..Entry::default() };
        Ok((Outcome::Applied { created: false, revision: revision(&shared) }, Some(entry)))
    }

    /// Reports whether objects of a kind exist. Returns true if no version is served, since then they cannot be
    /// listed.
    async fn has_objects(&self, served: Option<&Mapping>) -> Result<bool, CallError> {
        let Some(mapping) = served else { return Ok(true) };
        let one = ListParams::default().limit(1);
        let kind = Identity::new(&mapping.resource.group, &mapping.resource.kind, None, "");
        let list = mapping.api(&self.cluster.client, None).list_metadata(&one).await;
        Ok(!list.map_err(|error| CallError::new(Action::List, Some(&kind), error))?.items.is_empty())
    }

    /// Reports whether a CRD of this set defines the kind.
    pub(super) fn is_new(&self, mapping: &Mapping) -> bool {
        self.own_kinds.contains(&mapping.gvk())
    }
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
