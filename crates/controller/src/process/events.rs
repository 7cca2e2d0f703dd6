//! Publishes Kubernetes events, which `kubectl describe` shows.
//!
//! Reconciles do not wait for events. The rate is limited to protect the hub's etcd: otherwise a change of the whole
//! fleet would write as many events as statuses.

mod pace;

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource};
use kube_runtime::events::{Event, EventType, Recorder, Reporter};
use kyma_api::Reason;
use parking_lot::Mutex;
use tokio::sync::{
    mpsc::{Receiver, Sender, channel},
    oneshot,
};
use tokio_util::sync::CancellationToken;

use crate::process::metrics::Metrics;
use pace::Pace;

/// Longest note of an event, in bytes; the API refuses more than 1 kB.
const MAX_NOTE_BYTES: usize = 1000;
/// Maximum number of queued events, as in client-go; further events are dropped and counted.
const MAX_QUEUED_EVENTS: usize = 1000;
/// Timeout of one call.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for queued events when the process stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Publishes events about objects on the hub: 25 at once, then ten per second. Cheap to clone; each operator has one,
/// since it aggregates repeated events.
#[derive(Clone)]
pub struct Events {
    inner: Arc<EventsInner>,
}

struct EventsInner {
    operator: &'static str,
    metrics: Metrics,
    queue: Sender<Message>,
    /// The queue, until [`Events::publish`] takes it.
    waiting: Mutex<Option<Receiver<Message>>>,
}

enum Message {
    Event(Box<Event>, Box<ObjectReference>),
    /// Answered once all earlier events are published.
    Flush(oneshot::Sender<()>),
}

impl Events {
    /// Returns a publisher whose events name `operator` as their source. Events are queued until [`Events::publish`]
    /// runs.
    pub(crate) fn new(operator: &'static str, metrics: Metrics) -> Self {
        // Creates the series before the first event is dropped.
        metrics.events_dropped(operator, 0);
        let (queue, waiting) = channel(MAX_QUEUED_EVENTS);
        Self { inner: Arc::new(EventsInner { operator, metrics, queue, waiting: Mutex::new(Some(waiting)) }) }
    }

    /// Queues an event of type Normal. For rare successes, such as an installation or an upgrade.
    pub fn normal<K>(&self, object: &K, reason: Reason, action: &str, note: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        self.queue_event(object, EventType::Normal, reason, action, note);
    }

    /// Queues an event of type Warning, for problems that a user has to solve. Call it when the condition changes,
    /// not on every retry.
    pub fn warning<K>(&self, object: &K, reason: Reason, action: &str, note: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        self.queue_event(object, EventType::Warning, reason, action, note);
    }

    fn queue_event<K>(&self, object: &K, type_: EventType, reason: Reason, action: &str, note: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        let end =
            (0..=MAX_NOTE_BYTES.min(note.len())).rev().find(|&at| note.is_char_boundary(at)).unwrap_or(0);
        let event = Event {
            type_,
            reason: reason.as_str().to_owned(),
            note: Some(note[..end].to_owned()),
            action: action.to_owned(),
            secondary: None,
        };
        let message = Message::Event(Box::new(event), Box::new(object.object_ref(&())));
        if self.inner.queue.try_send(message).is_err() {
            self.inner.metrics.events_dropped(self.inner.operator, 1);
        }
    }

    /// Publishes queued events until all other clones are dropped; after `shutdown` without rate limit. A second call
    /// publishes nothing. An event that the hub refuses is only logged.
    pub(crate) async fn publish(self, hub: Client, shutdown: CancellationToken) {
        let waiting = self.inner.waiting.lock().take();
        let Some(mut waiting) = waiting else { return };
        let instance = std::env::var("POD_NAME").ok();
        let recorder = Recorder::new(hub, Reporter { controller: self.inner.operator.to_owned(), instance });
        // A remaining sender would keep the queue open forever.
        drop(self);
        let mut pace = Pace::default();
        while let Some(message) = waiting.recv().await {
            match message {
                Message::Event(event, regarding) => {
                    // Limits the rate of published events.
                    let delay = tokio::time::sleep(pace.next_delay(Instant::now()));
                    shutdown.run_until_cancelled(delay).await;
                    let published =
                        tokio::time::timeout(PUBLISH_TIMEOUT, recorder.publish(&event, &regarding)).await;
                    let failure = match published {
                        Ok(Ok(())) => continue,
                        Ok(Err(error)) => error.to_string(),
                        Err(late) => late.to_string(),
                    };
                    tracing::debug!(failure, reason = event.reason, "event not published");
                }
                Message::Flush(done) => {
                    let _ = done.send(());
                }
            }
        }
    }

    /// Waits until all queued events are published, for two seconds at most.
    pub(crate) async fn flush(&self) {
        let (done, published) = oneshot::channel();
        let flushed = async {
            if self.inner.queue.send(Message::Flush(done)).await.is_ok() {
                let _ = published.await;
            }
        };
        if tokio::time::timeout(FLUSH_TIMEOUT, flushed).await.is_err() {
            tracing::debug!("the hub did not accept all events in time");
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}
