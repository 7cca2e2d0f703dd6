//! Applies one object: checks whether it may and must be changed, and sends the request.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kyma_api::labels::HOOK_OF;
use serde_json::Value;

use super::desired_state::{DesiredState, SentObject};
use super::options::{AdoptionPolicy, ForeignObjectPolicy};
use super::outcome::{ObjectResult, Outcome, Refusal};
use super::send::Precondition;
use super::system::{System, is_tracked_by_label};
use super::{DesiredObject, Run, keep};
use crate::cluster::discovery::Mapping;
use crate::error::{Action, CallError, Failure};
use crate::inventory::Entry;
use crate::managed_fields::drift::{self, Drift, ObservedObject};
use crate::object::{Identity, Object};
use crate::ownership::{self, CREATED_BY, Guard, OWNER_LABEL};
use crate::prune::holds_data;

/// Maximum size of a sent object, in bytes of JSON: API servers read no more of a request. Smaller limits, such as
/// those of etcd or of a Secret's data, are reported by the API server.
const MAX_OBJECT_BYTES: usize = 3 << 20;

/// Live state at the identity of a desired object.
pub(super) enum LiveState {
    /// Owned and unchanged: nothing to send if the desired state is also unchanged.
    Unchanged(ObservedObject),
    /// Owned, but changed by another manager.
    Changed(ObservedObject),
    /// No object.
    Absent,
    /// Presumably no object; it was not read.
    PresumedAbsent,
    /// An object that is not in the inventory, or no longer owned.
    NotOwned(Box<ObjectMeta>),
    /// The object is being deleted.
    Deleting,
}

impl Run<'_> {
    /// Applies any object except Namespaces and CRDs.
    pub(super) async fn apply_plain(&self, desired: &DesiredObject, mapping: &Mapping) -> ObjectResult {
        check_size(&desired.object, &desired.identity)?;
        let guard = self.guard(&desired.identity)?;
        let (mut live_state, mut retries) = if self.is_unlikely(&desired.identity) {
            (LiveState::PresumedAbsent, 2)
        } else {
            (self.live_state(&desired.identity, mapping).await?, 1)
        };
        loop {
            let is_presumed_absent = matches!(live_state, LiveState::PresumedAbsent);
            match self.apply_once(desired, mapping, guard, live_state).await {
                // The observed state is outdated, so the ownership is checked again.
                Err(Refusal::Call(error))
                    if retries > 0 && (is_race(&error) || is_presumed_absent && is_of_version(&error)) =>
                {
                    retries -= 1;
                    live_state = self.read_live_state(&desired.identity, mapping).await?;
                }
                result => return result,
            }
        }
    }

    /// Reports whether the object has no record and most likely does not exist.
    fn is_unlikely(&self, identity: &Identity) -> bool {
        self.options.are_new && self.recorded.get(identity).is_none() && self.cluster.dry_run.is_none()
    }

    /// Applies an object once.
    async fn apply_once(
        &self,
        desired: &DesiredObject,
        mapping: &Mapping,
        guard: Option<Guard>,
        live_state: LiveState,
    ) -> ObjectResult {
        let mut state = DesiredState::of(desired.object.clone(), self.options.ignored_fields);
        let recorded = self.recorded.get(&desired.identity);
        if let (LiveState::Changed(_), Some(recorded)) = (&live_state, recorded)
            && self.options.repair
            && !recorded.hash.is_empty()
            && recorded.hash != state.hash
        {
            state.object = self.keep_values(state.object, &desired.identity, mapping).await?;
            state.hash.clone_from(&recorded.hash);
        }
        // Objects that only their creator may delete carry a creator annotation, since a process that crashes after
        // the apply records nothing.
        let is_marked = holds_data(&desired.identity) || guard == Some(Guard::UnlessCreated);
        let ownership = self.options.ownership;
        let stays = self.stays(&live_state, recorded);
        let is_adopted = matches!(live_state, LiveState::NotOwned(_));
        let is_tracked = matches!(&live_state, LiveState::NotOwned(found) if is_tracked_by_label(found));
        let is_presumed_absent = matches!(live_state, LiveState::PresumedAbsent);
        let (uid, created) = match live_state {
            LiveState::Deleting => return Ok((Outcome::Waiting("the old object is being deleted"), None)),
            LiveState::Unchanged(_) if recorded.is_some_and(|entry| entry.hash == state.hash) => {
                return Ok((Outcome::Unchanged, None));
            }
            LiveState::Unchanged(observed) | LiveState::Changed(observed) => {
                self.move_ignored_fields(&mut state, desired, mapping, Some(&observed)).await?;
                (Some(observed.uid), recorded.is_some_and(|entry| entry.created))
            }
            LiveState::Absent | LiveState::PresumedAbsent => (None, true),
            LiveState::NotOwned(metadata) => {
                self.may_adopt(&desired.identity, &metadata, guard)?;
                if let Some(system) = self.foreign(&metadata) {
                    return Ok((Outcome::Foreign(system), None));
                }
                self.take_over(desired, mapping, &metadata).await?;
                self.move_ignored_fields(&mut state, desired, mapping, None).await?;
                if recorded.is_some_and(|entry| !entry.was_sent()) && self.was_handed_over(desired, &metadata)
                {
                    keep::annotations(&mut state.object, &metadata);
                }
                (metadata.uid.clone(), is_marked && ownership::is_creator(&metadata, ownership))
            }
        };
        if is_marked && created {
            state.set_annotation(CREATED_BY, &ownership.owner);
        }
        if stays
            && let Some(as_is) = self.as_is(&state.object, &desired.identity, mapping, is_tracked).await?
        {
            return self.send_as_is(&as_is, &desired.identity, mapping, uid.as_deref(), created).await;
        }
        // The read may have missed an object, which must not count as created here.
        let only_new = is_presumed_absent || uid.is_none() && is_marked && self.cluster.dry_run.is_none();
        let precondition = if only_new { Precondition::CreateOnly } else { Precondition::of(uid.as_deref()) };
        match self.send_and_settle(&state, desired, mapping, precondition, is_adopted).await {
            Ok(sent) => Ok(self.outcome_and_entry(mapping, sent, state.hash, created, uid.is_none())),
            Err(error) if uid.is_some() => self.replace(desired, error).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Reports whether an adopted object keeps its content. One that was sent with its desired content is handled
    /// like any owned object.
    fn stays(&self, live_state: &LiveState, recorded: Option<&Entry>) -> bool {
        let is_theirs = match live_state {
            LiveState::Absent | LiveState::PresumedAbsent => false,
            LiveState::NotOwned(_) => true,
            _ => recorded.is_none_or(|entry| entry.hash.is_empty()),
        };
        is_theirs && self.options.foreign == ForeignObjectPolicy::KeepContent
    }

    /// Returns the outcome and the inventory entry of a sent object.
    pub(super) fn outcome_and_entry(
        &self,
        mapping: &Mapping,
        sent: SentObject,
        hash: String,
        created: bool,
        is_new: bool,
    ) -> (Outcome, Option<Entry>) {
        let SentObject { metadata, unsettled } = sent;
        // Without the desired hash, the next run sends an unsettled object again.
        let hash = if unsettled.is_some() { String::new() } else { hash };
        let entry = self.entry(mapping, &metadata, hash, created);
        let outcome = match unsettled {
            Some(refusal) => Outcome::Refused(refusal),
            None => Outcome::Applied { created: is_new, revision: revision(&metadata) },
        };
        (outcome, Some(entry))
    }

    /// Reports whether it is a Deployment that one of the named managers applied.
    fn was_handed_over(&self, desired: &DesiredObject, metadata: &ObjectMeta) -> bool {
        let mut managers =
            metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.as_deref());
        desired.identity.is("apps", "Deployment")
            && managers.any(|name| self.options.take_over.contains(&name))
    }

    async fn send_as_is(
        &self,
        object: &Object,
        identity: &Identity,
        mapping: &Mapping,
        uid: Option<&str>,
        created: bool,
    ) -> ObjectResult {
        let mapping = self.kinds.get(&object.gvk()).unwrap_or(mapping);
        let metadata = self.send(object, identity, mapping, Precondition::of(uid)).await?;
        // The object keeps content that is not the desired one, so the entry has no hash of it.
        let entry = self.entry(mapping, &metadata, String::new(), created);
        Ok((Outcome::AsIs { revision: revision(&metadata) }, Some(entry)))
    }

    /// Returns the object with the live values that no other manager changed since they were applied.
    async fn keep_values(
        &self,
        object: Object,
        identity: &Identity,
        mapping: &Mapping,
    ) -> Result<Object, CallError> {
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        let found = api.get_opt(&identity.name).await;
        let found = found.map_err(|error| CallError::new(Action::Get, Some(identity), error))?;
        let live = found.and_then(|found| serde_json::to_value(found).ok()).unwrap_or_default();
        let kept = super::keep::values(object.body(), &live, &self.options.ownership.manager);
        // The same object with other values stays a valid object.
        Ok(Object::from_value(Value::Object(kept)).unwrap_or(object))
    }

    /// Returns the guard of an object, or an error if it is protected completely.
    pub(super) fn guard(&self, identity: &Identity) -> Result<Option<Guard>, Refusal> {
        match self.options.protection.guard(identity) {
            Some(Guard::Always) => Err(Refusal::Protected { object: identity.clone() }),
            guard => Ok(guard),
        }
    }

    /// Returns the live state: from the watch if that is proof, otherwise from the target.
    pub(super) async fn live_state(
        &self,
        identity: &Identity,
        mapping: &Mapping,
    ) -> Result<LiveState, CallError> {
        // An object that was only recorded still carries the marks of its previous system.
        let recorded = self.recorded.get(identity).filter(|entry| entry.was_sent());
        let us = self.options.ownership.owner.as_str();
        if let (Some(recorded), Some(observed)) = (recorded, self.observed.get(identity)) {
            match drift::compare(recorded, Some(&observed), us) {
                Drift::Unchanged => return Ok(LiveState::Unchanged(observed)),
                Drift::Changed => return Ok(LiveState::Changed(observed)),
                Drift::Deleting => return Ok(LiveState::Deleting),
                Drift::Gone | Drift::Recreated | Drift::Taken => {}
            }
        }
        self.read_live_state(identity, mapping).await
    }

    /// Reads the live state from the target.
    async fn read_live_state(&self, identity: &Identity, mapping: &Mapping) -> Result<LiveState, CallError> {
        let recorded = self.recorded.get(identity).filter(|entry| entry.was_sent());
        let us = self.options.ownership.owner.as_str();
        let Some(found) = self.cluster.metadata(mapping, identity).await? else {
            return Ok(LiveState::Absent);
        };
        if found.metadata.deletion_timestamp.is_some() {
            return Ok(LiveState::Deleting);
        }
        let Some(recorded) = recorded else { return Ok(LiveState::NotOwned(Box::new(found.metadata))) };
        let observed =
            ObservedObject::from_metadata(&found.metadata, &self.options.ownership.manager, OWNER_LABEL);
        Ok(match drift::compare(recorded, Some(&observed), us) {
            Drift::Unchanged => LiveState::Unchanged(observed),
            Drift::Changed => LiveState::Changed(observed),
            _ => LiveState::NotOwned(Box::new(found.metadata)),
        })
    }

    /// Checks that an existing object may be adopted. An object or hook of this owner passes.
    ///
    /// # Errors
    /// If it may not be adopted.
    pub(super) fn may_adopt(
        &self,
        identity: &Identity,
        metadata: &ObjectMeta,
        guard: Option<Guard>,
    ) -> Result<(), Refusal> {
        let us = self.options.ownership.owner.as_str();
        let label =
            |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
        let owner = label(OWNER_LABEL);
        if owner == Some(us) {
            return Ok(());
        }
        if guard == Some(Guard::UnlessCreated) {
            return Err(Refusal::Protected { object: identity.clone() });
        }
        let refused = match self.options.adopt {
            AdoptionPolicy::Always => false,
            AdoptionPolicy::Unowned => owner.is_some_and(|owner| {
                !ownership::is_dead(owner, metadata, self.options.ownership, self.options.owner_is_live)
            }),
            // A hook of this owner may become an ordinary object.
            AdoptionPolicy::Never => owner.is_some() || label(HOOK_OF) != Some(us),
        };
        if refused {
            let owner = owner.unwrap_or("somebody else").to_owned();
            return Err(Refusal::OwnedByOther { object: identity.clone(), owner });
        }
        Ok(())
    }

    /// Returns the system that applied an object, if such objects are only reported
    /// (`ForeignObjectPolicy::Report`) and this one lacks this owner's label.
    fn foreign(&self, metadata: &ObjectMeta) -> Option<System> {
        let owner = metadata.labels.as_ref().and_then(|labels| labels.get(OWNER_LABEL));
        let tells = self.options.foreign == ForeignObjectPolicy::Report
            && owner != Some(&self.options.ownership.owner);
        tells.then(|| System::of(metadata, self.options.take_over)).flatten()
    }

    /// Returns the inventory entry of an object after an apply.
    pub(super) fn entry(
        &self,
        mapping: &Mapping,
        metadata: &ObjectMeta,
        hash: String,
        created: bool,
    ) -> Entry {
        Entry {
            version: mapping.resource.version.clone(),
            uid: metadata.uid.clone().unwrap_or_default(),
            hash,
            fingerprint: drift::fingerprint(metadata, &self.options.ownership.manager),
            created,
            finished: false,
        }
    }
}

/// The resourceVersion as a number, to be compared with others of its kind (KEP-5504).
pub(super) fn revision(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_deref()?.parse().ok()
}

/// Reports whether the object was changed, created or deleted between read and apply. A replaced object has another
/// uid.
pub(super) fn is_race(error: &CallError) -> bool {
    error.failure == Failure::Conflict && error.action == Action::Apply
}

/// Reports whether the resourceVersion may be the cause: aggregated API servers may refuse one in a creation.
fn is_of_version(error: &CallError) -> bool {
    let refused = matches!(error.failure, Failure::Refused(_) | Failure::Server(_) | Failure::VersionGone(_));
    refused && error.action == Action::Apply
}

/// Refuses an object that the API server would refuse for its size.
pub(super) fn check_size(object: &Object, identity: &Identity) -> Result<(), Refusal> {
    let bytes = serde_json::to_vec(object.body()).map_or(0, |json| json.len());
    if bytes > MAX_OBJECT_BYTES {
        return Err(Refusal::TooLarge { object: identity.clone(), bytes, limit: MAX_OBJECT_BYTES });
    }
    Ok(())
}
