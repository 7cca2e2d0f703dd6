//! Namespaces are ensured, not owned: created if absent, and labelled as the set defines unless another manager
//! disagrees.

use kube::api::{DynamicObject, PostParams};
use serde_json::{Map, Value};

use super::one::{LiveState, revision};
use super::outcome::{ObjectResult, Outcome, Refusal};
use super::share::Share;
use super::{DesiredObject, Run};
use crate::cluster::discovery::Mapping;
use crate::error::{Action, CallError, Failure};
use crate::inventory::Entry;
use crate::object::Object;
use crate::ownership::{CREATED_BY, Guard, OWNER_LABEL, SHARED, is_of_kubernetes};

impl Run<'_> {
    pub(super) async fn namespace(&self, desired: &DesiredObject, mapping: &Mapping) -> ObjectResult {
        let hash = desired.object.intent_hash();
        let recorded = self.recorded.get(&desired.identity);
        let live_state = self.live_state(&desired.identity, mapping).await?;
        if self.options.protection.guard(&desired.identity) == Some(Guard::Always) {
            // A set may require that a protected Namespace exists, and change nothing in it.
            return match live_state {
                LiveState::Absent | LiveState::PresumedAbsent if is_of_kubernetes(&desired.identity.name) => {
                    Err(Refusal::Protected { object: desired.identity.clone() })
                }
                // The operator's own namespace: created without labels, and owned by no component.
                LiveState::Absent | LiveState::PresumedAbsent => {
                    self.create_namespace(&desired.object, mapping, None).await?;
                    Ok((Outcome::Unchanged, None))
                }
                _ => Ok((Outcome::Unchanged, None)),
            };
        }
        let creator = self.options.ownership.owner.as_str();
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
                match self.create_namespace(&desired.object, mapping, Some(creator)).await? {
                    Some(uid) => (uid, true, true),
                    None => return Ok((Outcome::Waiting("the namespace appeared meanwhile"), None)),
                }
            }
        };
        let owner = &self.options.ownership.owner;
        if let Some(dry_run) = self.cluster.dry_run.as_ref().filter(|_| is_new) {
            // The dry run did not create the Namespace, so a dry run of its labels would fail.
            dry_run.record_creation(&desired.identity, Value::Object(desired.object.body().clone()));
            let entry =
                Entry { version: mapping.resource.version.clone(), uid, hash, created, ..Entry::default() };
            return Ok((Outcome::Applied { created: true, revision: None }, Some(entry)));
        }
        let mut share = share_of(&desired.object);
        // The same for all owners, so that one watch of everything owned sees Namespaces too.
        share.labels.insert(OWNER_LABEL.to_owned(), SHARED.into());
        let manager = self.options.ownership.share_manager(owner);
        let metadata = self.share(&desired.identity, mapping, &uid, owner, &manager, share).await?;
        let entry = self.entry(mapping, &metadata, hash, created);
        Ok((Outcome::Applied { created: is_new, revision: revision(&metadata) }, Some(entry)))
    }

    /// Creates a Namespace and returns its uid; `None` if it was created concurrently.
    async fn create_namespace(
        &self,
        object: &Object,
        mapping: &Mapping,
        creator: Option<&str>,
    ) -> Result<Option<String>, CallError> {
        let api = mapping.api(&self.cluster.client, None);
        let ownership = self.options.ownership;
        let mut bare = DynamicObject::new(object.name(), &mapping.resource);
        bare.metadata.annotations = creator.map(|owner| [(CREATED_BY.to_owned(), owner.to_owned())].into());
        let params =
            PostParams { field_manager: Some(ownership.creator()), dry_run: self.cluster.dry_run.is_some() };
        match api.create(&params, &bare).await {
            Ok(created) => Ok(Some(created.metadata.uid.unwrap_or_default())),
            Err(error) => match CallError::new(Action::Create, Some(&object.identity()), error) {
                error if error.failure == Failure::Conflict => Ok(None),
                error => Err(error),
            },
        }
    }
}

fn share_of(object: &Object) -> Share {
    let map = |field: &str| -> Map<String, Value> {
        let value = object.body().get("metadata").and_then(|metadata| metadata.get(field));
        value.and_then(Value::as_object).cloned().unwrap_or_default()
    };
    Share { labels: map("labels"), annotations: map("annotations") }
}
