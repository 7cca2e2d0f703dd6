//! Follows the Pauses of the hub: watch, record, causes of deletions, and the end of each Pause.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use kyma_api::Pause;

use super::cache::{Pauses, READYZ_PART};
use super::deletion::judge_deletion;
use super::kymas::KymaLabelFollower;
use super::record::{self, PauseRecord, StoredRecord};
use crate::hub::crd_check::await_crds;
use crate::hub::feed::{FeedEvent, feed};
use crate::process::runtime::Runtime;

/// Maximum sleep until the end of a Pause, since the wall clock may be changed meanwhile.
const MAX_SLEEP: Duration = Duration::from_mins(5);

impl Pauses {
    /// Watches the Pauses without end. An object that becomes unreadable keeps its last readable state.
    pub(crate) async fn run(self, runtime: Runtime) {
        // The start of the operator reports CRDs that are too old.
        if let Err(error) = await_crds(&runtime.hub, &[kyma_api::crds::pause()]).await {
            tracing::error!(%error, "Pauses cannot be read, so nothing is written");
            return;
        }
        let record = PauseRecord::new(&runtime, &self.brake);
        let recorded = record.read().await;
        self.restore(record::restored(recorded.pauses.clone(), Timestamp::now()));
        let mut writing = pin!(self.record(&record, recorded));
        let mut events = pin!(feed::<Pause>(&runtime));
        let labels = KymaLabelFollower::new(&runtime, self.snapshot.clone());
        let mut labels = pin!(labels.follow());
        let mut deletions: FuturesUnordered<BoxFuture<'_, (Arc<Pause>, bool)>> = FuturesUnordered::new();
        loop {
            let end = self.snapshot.borrow().next_end(Timestamp::now());
            runtime
                .process
                .metrics
                .pauses(runtime.operator.name, &self.snapshot.borrow().in_force(Timestamp::now()));
            tokio::select! {
                event = events.next() => match event {
                    Some(event) => {
                        if let Some(deleted) = self.process_event(event, &runtime) {
                            let namespace = &runtime.settings.hub_namespace;
                            deletions.push(judge_deletion(&runtime.hub, namespace, deleted).boxed());
                        }
                    }
                    None => return,
                },
                Some((pause, is_requested)) = deletions.next() => self.process_deletion(&pause, is_requested),
                () = nap(end) => {
                    let is_over = end.is_some_and(|end| end <= Timestamp::now());
                    self.snapshot.send_if_modified(|_| is_over);
                }
                () = &mut labels => return,
                () = &mut writing => return,
            }
        }
    }

    /// Writes the record after the first list was merged into it.
    async fn record(&self, record: &PauseRecord, recorded: StoredRecord) {
        self.listed().await;
        record.follow(self.snapshot.subscribe(), recorded).await;
    }

    /// Processes an event. Returns the Pause of a DELETE event, which stays in force until its cause is known.
    fn process_event(&self, event: FeedEvent<Pause>, runtime: &Runtime) -> Option<Arc<Pause>> {
        match event {
            FeedEvent::Applied(pause) => self.applied(pause),
            FeedEvent::Deleted(name) => return self.snapshot.borrow().pauses.get(&name).cloned(),
            FeedEvent::Listed(names) => {
                self.keep(&names);
                self.listed.send_replace(true);
                runtime.process.health.ready(READYZ_PART);
            }
        }
        None
    }
}

/// Sleeps until a time on the wall clock, or without end for `None`.
async fn nap(until: Option<Timestamp>) {
    let Some(until) = until else { return std::future::pending().await };
    let left = Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default();
    // The end of a Pause is a time of the wall clock, which may be set meanwhile, so it is read again.
    tokio::time::sleep((left + Duration::from_millis(10)).min(MAX_SLEEP)).await;
}
