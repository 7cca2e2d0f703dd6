//! Kubernetes events: for people who run `kubectl describe`.

use std::sync::Arc;

use kube::{Client, Resource};
use kube_runtime::events::{Event, EventType, Recorder, Reporter};
use kyma_api::Reason;

/// Longest note of an event, in bytes; the API refuses more than 1 kB.
const NOTE_BYTES: usize = 1000;

/// Publishes events about objects on the hub. Cheap to clone; one for each operator, since it folds repetitions.
#[derive(Clone)]
pub struct Events {
    recorder: Arc<Recorder>,
}

impl Events {
    /// Events reported as coming from `operator`.
    pub fn new(hub: Client, operator: &str) -> Self {
        let instance = std::env::var("POD_NAME").ok();
        let reporter = Reporter { controller: operator.to_owned(), instance };
        Self { recorder: Arc::new(Recorder::new(hub, reporter)) }
    }

    /// Something went as wished: for what happens seldom, such as an installation or an upgrade.
    pub async fn normal<K>(&self, object: &K, reason: Reason, action: &str, note: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        self.publish(object, EventType::Normal, reason, action, note).await;
    }

    /// Something needs a person. Publish it when the condition changes, not on every try.
    pub async fn warning<K>(&self, object: &K, reason: Reason, action: &str, note: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        self.publish(object, EventType::Warning, reason, action, note).await;
    }

    /// An event that cannot be published is logged: nothing depends on it.
    async fn publish<K>(&self, object: &K, type_: EventType, reason: Reason, action: &str, note: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        let end = (0..=NOTE_BYTES.min(note.len())).rev().find(|&at| note.is_char_boundary(at)).unwrap_or(0);
        let event = Event {
            type_,
            reason: reason.as_str().to_owned(),
            note: Some(note[..end].to_owned()),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &object.object_ref(&())).await {
            tracing::debug!(%error, reason = reason.as_str(), "event not published");
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}
