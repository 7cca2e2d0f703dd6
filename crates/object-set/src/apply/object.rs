//! Applies one object: checks whether it may and must be changed, and sends the request.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::adoption::system::{System, is_tracked_by_label};
use super::adoption::take_over::take_over;
use super::adoption::{LiveContent, check_adoptable, foreign_system};
use super::context::{ApplyContext, DesiredObject};
use super::desired_state::DesiredState;
use super::live_state::LiveState;
use super::live_values;
use super::object_writer::ObjectWriter;
use super::options::ForeignObjectPolicy;
use super::outcome::{ObjectResult, Outcome, Refusal};
use super::recreation::recreate;
use super::server_side_apply::ServerSideApply;
use super::target_object::Precondition;
use crate::error::{Action, CallError, Failure};
use crate::object::Object;
use crate::ownership::{self, CREATED_BY, Guard};
use crate::prune::holds_data;

/// Apply of an object that is neither a Namespace nor a CRD.
pub(super) struct ObjectApply<'a> {
    pub(super) context: &'a ApplyContext<'a>,
    pub(super) desired: DesiredObject<'a>,
}

impl ObjectApply<'_> {
    pub(super) async fn apply(&self) -> ObjectResult {
        let desired = &self.desired;
        desired.check_size(desired.object)?;
        let guard = desired.guard()?;
        let (mut live_state, mut retries) = if self.is_unlikely() {
            (LiveState::PresumedAbsent, 2)
        } else {
            (LiveState::of(desired, self.context.observed).await?, 1)
        };
        loop {
            let is_presumed_absent = matches!(live_state, LiveState::PresumedAbsent);
            match self.apply_once(guard, live_state).await {
                // The observed state is outdated, so the ownership is checked again.
                Err(Refusal::Call(error))
                    if retries > 0 && (is_race(&error) || is_presumed_absent && is_of_version(&error)) =>
                {
                    retries -= 1;
                    live_state = LiveState::read(desired).await?;
                }
                result => return result,
            }
        }
    }

    /// Reports whether the object has no record and most likely does not exist.
    fn is_unlikely(&self) -> bool {
        let DesiredObject { target, recorded, options, .. } = &self.desired;
        options.are_new && recorded.is_none() && !target.is_dry_run()
    }

    /// Applies the object once.
    async fn apply_once(&self, guard: Option<Guard>, live_state: LiveState) -> ObjectResult {
        let desired = self.desired;
        let DesiredObject { target, recorded, options, .. } = desired;
        let writer = ObjectWriter { desired };
        let mut state = DesiredState::of(desired.object.clone(), options.ignored_fields);
        if let (LiveState::Changed(_), Some(recorded)) = (&live_state, recorded)
            && options.repair
            && !recorded.hash.is_empty()
            && recorded.hash != state.hash
        {
            state.object = keep_values(&desired, state.object).await?;
            state.hash.clone_from(&recorded.hash);
        }
        // Objects that only their creator may delete carry a creator annotation, since a process that crashes after
        // the apply records nothing.
        let is_marked = holds_data(target.identity) || guard == Some(Guard::UnlessCreated);
        let keeps_content = keeps_content(&desired, &live_state);
        let is_adopted = matches!(live_state, LiveState::NotOwned(_));
        let is_tracked = matches!(&live_state, LiveState::NotOwned(found) if is_tracked_by_label(found));
        let is_presumed_absent = matches!(live_state, LiveState::PresumedAbsent);
        let (uid, created) = match live_state {
            LiveState::Deleting => return Ok((Outcome::Waiting("the old object is being deleted"), None)),
            LiveState::Unchanged(_) if recorded.is_some_and(|entry| entry.hash == state.hash) => {
                return Ok((Outcome::Unchanged, None));
            }
            LiveState::Unchanged(observed) | LiveState::Changed(observed) => {
                writer.move_ignored_fields(&mut state, Some(&observed)).await?;
                (Some(observed.uid), recorded.is_some_and(|entry| entry.created))
            }
            LiveState::Absent | LiveState::PresumedAbsent => (None, true),
            LiveState::NotOwned(metadata) => {
                if let Some(system) = adopt(&writer, &mut state, &metadata, guard).await? {
                    return Ok((Outcome::Foreign(system), None));
                }
                let created = is_marked && ownership::is_creator(&metadata, options.ownership);
                (metadata.uid.clone(), created)
            }
        };
        if is_marked && created {
            state.set_annotation(CREATED_BY, &options.ownership.owner);
        }
        if keeps_content
            && let Some(unchanged) = self.object_with_live_content(&state.object, is_tracked).await?
        {
            return self.send_live_content(&unchanged, uid.as_deref(), created).await;
        }
        // The read may have missed an object, which must not count as created here.
        let only_new = is_presumed_absent || uid.is_none() && is_marked && !target.is_dry_run();
        let precondition = if only_new { Precondition::CreateOnly } else { Precondition::of(uid.as_deref()) };
        match writer.send(&state, precondition, is_adopted).await {
            Ok(sent) => Ok(sent.into_outcome(&desired, state.hash, created, uid.is_none())),
            Err(error) if uid.is_some() => recreate(self.context, &desired, error).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Returns an object whose apply leaves the live content unchanged; `None` if the desired object itself leaves it
    /// unchanged, or no such object is known.
    async fn object_with_live_content(
        &self,
        object: &Object,
        is_tracked: bool,
    ) -> Result<Option<Object>, Refusal> {
        let DesiredObject { target, options, .. } = self.desired;
        let manager = options.ownership.manager.as_str();
        let content = LiveContent { object, target, kinds: &self.context.kinds, manager, is_tracked };
        content.object_to_send().await
    }

    async fn send_live_content(&self, object: &Object, uid: Option<&str>, created: bool) -> ObjectResult {
        let target = self.desired.target;
        let mapping = self.context.kinds.get(&object.gvk()).unwrap_or(target.mapping);
        let desired = DesiredObject { target: target.in_version(mapping), ..self.desired };
        let metadata = ServerSideApply::of(&desired).send(object, Precondition::of(uid)).await?;
        // The object keeps content that is not the desired one, so the entry has no hash of it.
        let entry = desired.entry(&metadata, String::new(), created);
        Ok((Outcome::AsIs { resource_version: metadata.resource_version }, Some(entry)))
    }
}

/// Prepares an object for the adoption of the live one. Returns the system that applied the live one, if such objects
/// are only reported.
async fn adopt(
    writer: &ObjectWriter<'_>,
    state: &mut DesiredState<'_>,
    metadata: &ObjectMeta,
    guard: Option<Guard>,
) -> Result<Option<System>, Refusal> {
    let desired = &writer.desired;
    check_adoptable(desired, metadata, guard)?;
    if let Some(system) = foreign_system(metadata, desired.options) {
        return Ok(Some(system));
    }
    take_over(desired, metadata).await?;
    writer.move_ignored_fields(state, None).await?;
    if desired.recorded.is_some_and(|entry| !entry.was_sent()) && was_handed_over(desired, metadata) {
        live_values::annotations(&mut state.object, metadata);
    }
    Ok(None)
}

/// Reports whether an adopted object keeps its content. One that was sent with its desired content is handled like any
/// owned object.
fn keeps_content(desired: &DesiredObject<'_>, live_state: &LiveState) -> bool {
    let is_theirs = match live_state {
        LiveState::Absent | LiveState::PresumedAbsent => false,
        LiveState::NotOwned(_) => true,
        _ => desired.recorded.is_none_or(|entry| entry.hash.is_empty()),
    };
    is_theirs && desired.options.foreign == ForeignObjectPolicy::KeepContent
}

/// Reports whether it is a Deployment that one of the named managers applied.
fn was_handed_over(desired: &DesiredObject<'_>, metadata: &ObjectMeta) -> bool {
    let mut managers = metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.as_deref());
    desired.target.identity.is("apps", "Deployment")
        && managers.any(|name| desired.options.take_over.contains(&name))
}

/// Returns the object with the live values that no other manager changed since they were applied.
async fn keep_values(desired: &DesiredObject<'_>, object: Object) -> Result<Object, CallError> {
    let live = desired.target.read().await?.map(|(_, live)| live).unwrap_or_default();
    let kept = live_values::values(object.body(), &live, &desired.options.ownership.manager);
    // The same object with other values stays a valid object.
    Ok(Object::from_value(Value::Object(kept)).unwrap_or(object))
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
