//! Namespaces are ensured, not owned: created if absent, and labelled as the set defines unless another manager
//! disagrees.

use kube::api::{DynamicObject, PostParams};
use serde_json::{Map, Value};

use super::context::DesiredObject;
use super::live_state::LiveState;
use super::options::Observations;
use super::outcome::{ObjectResult, Outcome, Refusal};
use super::share::Share;
use crate::error::{Action, CallError, Failure};
use crate::inventory::Entry;
use crate::object::Object;
use crate::ownership::{CREATED_BY, Guard, OWNER_LABEL, SHARED, is_of_kubernetes};

/// Applies a Namespace.
pub(super) async fn apply_namespace(
    desired: &DesiredObject<'_>,
    observed: &dyn Observations,
) -> ObjectResult {
    let DesiredObject { object, target, recorded, options } = *desired;
    let hash = object.intent_hash();
    let live_state = LiveState::of(desired, observed).await?;
    if options.protection.guard(target.identity) == Some(Guard::Always) {
        // A set may require that a protected Namespace exists, and change nothing in it.
        return match live_state {
            LiveState::Absent | LiveState::PresumedAbsent if is_of_kubernetes(&target.identity.name) => {
                Err(Refusal::Protected { object: target.identity.clone() })
            }
            // The operator's own namespace: created without labels, and owned by no component.
            LiveState::Absent | LiveState::PresumedAbsent => {
                create_namespace(desired, None).await?;
                Ok((Outcome::Unchanged, None))
            }
            _ => Ok((Outcome::Unchanged, None)),
        };
    }
    let owner = options.ownership.owner.as_str();
    let (uid, created, is_new) = match live_state {
        LiveState::Deleting => return Ok((Outcome::Waiting("the namespace is being deleted"), None)),
        LiveState::Unchanged(_) if recorded.is_some_and(|entry| entry.hash == hash) => {
            return Ok((Outcome::Unchanged, None));
        }
        LiveState::Unchanged(observed) | LiveState::Changed(observed) => {
            (observed.uid, recorded.is_some_and(|entry| entry.created), false)
        }
        LiveState::NotOwned(found) => {
            let created = found.annotations.as_ref().is_some_and(|all| all.contains_key(CREATED_BY));
            (found.uid.unwrap_or_default(), created, false)
        }
        LiveState::Absent | LiveState::PresumedAbsent => {
            match create_namespace(desired, Some(owner)).await? {
                Some(uid) => (uid, true, true),
                None => return Ok((Outcome::Waiting("the namespace was created in the meantime"), None)),
            }
        }
    };
    if let Some(dry_run) = target.cluster.dry_run.as_ref().filter(|_| is_new) {
        // The dry run did not create the Namespace, so a dry run of its labels would fail.
        dry_run.record_creation(target.identity, Value::Object(object.body().clone()));
        let version = target.mapping.resource.version.clone();
        let entry = Entry { version, uid, hash, created, ..Entry::default() };
        return Ok((Outcome::Applied { created: true, resource_version: None }, Some(entry)));
    }
    let mut share = share_of(object);
    // The same for all owners, so that one watch of everything owned sees Namespaces too.
    share.labels.insert(OWNER_LABEL.to_owned(), SHARED.into());
    let manager = options.ownership.share_manager(owner);
    let metadata = share.mark(&target, &uid, owner, &manager).await?;
    let entry = desired.entry(&metadata, hash, created);
    Ok((Outcome::Applied { created: is_new, resource_version: metadata.resource_version }, Some(entry)))
}

/// Creates a Namespace and returns its uid; `None` if it was created concurrently.
async fn create_namespace(
    desired: &DesiredObject<'_>,
    creator: Option<&str>,
) -> Result<Option<String>, CallError> {
    let target = desired.target;
    let mut bare = DynamicObject::new(desired.object.name(), &target.mapping.resource);
    bare.metadata.annotations = creator.map(|owner| [(CREATED_BY.to_owned(), owner.to_owned())].into());
    let manager = desired.options.ownership.creator();
    let params = PostParams { field_manager: Some(manager), dry_run: target.is_dry_run() };
    match target.api().create(&params, &bare).await {
        Ok(created) => Ok(Some(created.metadata.uid.unwrap_or_default())),
        Err(error) => match target.error(Action::Create, error) {
            error if error.failure == Failure::Conflict => Ok(None),
            error => Err(error),
        },
    }
}

fn share_of(object: &Object) -> Share {
    let map = |field: &str| -> Map<String, Value> {
        let value = object.body().get("metadata").and_then(|metadata| metadata.get(field));
        value.and_then(Value::as_object).cloned().unwrap_or_default()
    };
    Share { labels: map("labels"), annotations: map("annotations") }
}
