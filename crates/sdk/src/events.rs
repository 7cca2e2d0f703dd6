//! Kubernetes events: for people who run `kubectl describe`.
//!
//! They are published beside the reconciles, which do not wait for them, and no faster than the hub's etcd has to bear: a
//! whole fleet that changes at once would else write as many events as statuses.

mod pace;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource};
use kube_runtime::events::{Event, EventType, Recorder, Reporter};
use kyma_api::Reason;
use tokio::sync::{
    mpsc::{Receiver, Sender, channel},
    oneshot,
};
use tokio_util::sync::CancellationToken;

use crate::Metrics;
use pace::Pace;

/// Longest note of an event, in bytes; the API refuses more than 1 kB.
const NOTE_BYTES: usize = 1000;
/// Events that wait, as in client-go; more are dropped and counted.
const WAITING: usize = 1000;
/// Time for one call.
const CALL: Duration = Duration::from_secs(10);
/// Time for what still waits when the process stops.
const LAST: Duration = Duration::from_secs(2);

/// Publishes events about objects on the hub: 25 at once, then ten a second. Cheap to clone; one for each
/// operator, since it folds repetitions.
#[derive(Clone)]
pub struct Events {
    inner: Arc<Inner>,
}

struct Inner {
    operator: &'static str,
    metrics: Metrics,
    queue: Sender<Message>,
    /// Until somebody publishes.
    waiting: Mutex<Option<Receiver<Message>>>,
}

enum Message {
    Event(Box<Event>, Box<ObjectReference>),
    /// Answered once all before it are published.
    Flush(oneshot::Sender<()>),
}

impl Events {
    /// Events reported as coming from `operator`. They wait until [`Events::publish`].
    pub(crate) fn new(operator: &'static str, metrics: Metrics) -> Self {
        // So that it is there before the first one is dropped.
        metrics.events_dropped(operator, 0);
        let (queue, waiting) = channel(WAITING);
        Self { inner: Arc::new(Inner { operator, metrics, queue, waiting: Mutex::new(Some(waiting)) }) }
    }

    /// Something went as wished: for what happens seldom, such as an installation or an upgrade.
    pub fn normal<K>(&self, object: &K, reason: Reason, action: &str, note: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        self.tell(object, EventType::Normal, reason, action, note);
    }

    /// Something needs a person. Publish it when the condition changes, not on every try.
    pub fn warning<K>(&self, object: &K, reason: Reason, action: &str, note: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        self.tell(object, EventType::Warning, reason, action, note);
    }

    fn tell<K>(&self, object: &K, type_: EventType, reason: Reason, action: &str, note: &str)
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
        let message = Message::Event(Box::new(event), Box::new(object.object_ref(&())));
        if self.inner.queue.try_send(message).is_err() {
            self.inner.metrics.events_dropped(self.inner.operator, 1);
        }
    }

    /// Publishes what is told, until nobody can tell any more; after `shutdown` without pauses. A second call publishes
    /// nothing. One that the hub does not take is logged: nothing depends on it.
    pub(crate) async fn publish(self, hub: Client, shutdown: CancellationToken) {
        let waiting = self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut waiting) = waiting else { return };
        let instance = std::env::var("POD_NAME").ok();
        let recorder = Recorder::new(hub, Reporter { controller: self.inner.operator.to_owned(), instance });
        // Or it would wait for itself.
        drop(self);
        let mut pace = Pace::default();
        while let Some(message) = waiting.recv().await {
            match message {
                Message::Event(event, regarding) => {
                    // Limits the rate of published events.
                    let turn = tokio::time::sleep(pace.turn(Instant::now()));
                    shutdown.run_until_cancelled(turn).await;
                    let published = tokio::time::timeout(CALL, recorder.publish(&event, &regarding)).await;
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

    /// Waits until what was told before is published, for two seconds at most.
    pub(crate) async fn flush(&self) {
        let (done, published) = oneshot::channel();
        let flushed = async {
            if self.inner.queue.send(Message::Flush(done)).await.is_ok() {
                let _ = published.await;
            }
        };
        if tokio::time::timeout(LAST, flushed).await.is_err() {
            tracing::debug!("the hub did not take all events in time");
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}
