//! One stream: list, watch, and again after every gap.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt, TryStreamExt, future::Either};
use kube::{
    Api, Client,
    api::{ListParams, ObjectList, PartialObjectMeta, WatchParams},
    core::{DynamicObject, TypeMeta, WatchEvent},
};
use kyma_api::Reason;
use kyma_targets::{Streams, classify, is_initializing};

use super::bounds::{Implausible, Tally, is_bearable, is_plausible, is_plausible_version};
use super::delivered::DeliveredObjects;
use super::gap::{Gap, GapCount, Panics, pause_after};
use super::pulse::Pulse;
use super::spec::{Content, ObjectEvent, WatchSpec};
use crate::failure::Failure;
use crate::informer::ResourceVersion;
use crate::reconciler::jitter::{jitter, shorten_randomly};

/// Number of objects in one page of a list.
const LIST_PAGE_SIZE: u32 = 500;
/// Minimum time between two watch requests.
const MIN_WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum duration of one watch request; shortened at random by up to half, so that the requests of many streams are
/// spread.
const MAX_WATCH_DURATION: Duration = Duration::from_mins(10);
/// Share by which the time between two verifications is shortened at random.
const VERIFY_SHARE: f64 = 0.1;

/// One stream on a target.
pub(super) struct Source {
    pub(super) target: Streams,
    pub(super) client: Client,
    pub(super) watch_spec: WatchSpec,
    pub(super) pulse: Arc<Pulse>,
    /// Time after which the stream is verified by a list.
    pub(super) verify: Duration,
}

impl Source {
    /// Runs until the registry drops it. `on_event` returns false if the listener panicked. Calls `missed` with the
    /// number of changes that only a verification found, and `refused` when the target starts to refuse the stream.
    pub(super) async fn run<Processing: Future<Output = bool> + Send>(
        &self,
        on_event: impl Fn(ObjectEvent) -> Processing,
        restarted: impl Fn(&'static str),
        missed: impl Fn(usize),
        refused: impl Fn(),
    ) {
        let mut count = GapCount::default();
        let (mut delivered, mut panics) = (DeliveredObjects::default(), Panics::default());
        let mut gap = Gap::Expired;
        let mut reports_refusal = false;
        loop {
            let (next_gap, followed) = match self.list_watchable().await {
                Ok((objects, version)) => {
                    reports_refusal = true;
                    self.pulse.complete();
                    let unseen = delivered.listed(&objects, &version);
                    if gap == Gap::Due {
                        missed(unseen);
                    }
                    let is_processed =
                        on_event(ObjectEvent::Listed { objects, version: version.clone() }).await;
                    let verify = shorten_randomly(self.verify, VERIFY_SHARE);
                    let repeat = panics.after_list(is_processed, jitter());
                    let due = Instant::now() + repeat.map_or(verify, |repeat| repeat.min(verify));
                    let start = Instant::now();
                    let ended = self.follow((version, due), &mut delivered, &mut panics, &on_event).await;
                    (ended, Some(start.elapsed()))
                }
                Err(failed) => (failed, None),
            };
            gap = next_gap;
            let gaps_in_a_row = count.after(gap, followed);
            if gap == Gap::Due {
                continue;
            }
            self.pulse.stop(matches!(gap, Gap::Failed | Gap::Initializing));
            restarted(gap.as_str());
            if self.pulse.is_refused() && std::mem::take(&mut reports_refusal) {
                refused();
            }
            self.pause(gaps_in_a_row).await;
        }
    }

    /// Waits before a retry: for the target's recovery while the breaker refuses calls, then for a growing delay.
    async fn pause(&self, gaps: u32) {
        if !self.target.calls_pass() {
            self.target.healthy_again().await;
        }
        tokio::time::sleep(pause_after(gaps, self.pulse.age(), jitter())).await;
    }

    fn api(&self) -> Api<DynamicObject> {
        let resource = self.watch_spec.resource();
        match &self.watch_spec.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Reads the list. After a refusal it counts only if a watch can be opened too: a role that allows list but not
    /// watch would otherwise seem to recover with each retry.
    async fn list_watchable(&self) -> Result<(Vec<DynamicObject>, String), Gap> {
        let listed = self.list().await?;
        if self.pulse.is_refused() {
            let opened = self.open(&self.api(), &self.watch_params(MIN_WATCH_INTERVAL), &listed.1).await;
            drop(opened.map_err(|error| self.record_failure(&error))?);
        }
        Ok(listed)
    }

    /// Reads all objects, page by page. Returns them with the resourceVersion of the list.
    async fn list(&self) -> Result<(Vec<DynamicObject>, String), Gap> {
        let (api, mut params) = (self.api(), self.list_params(LIST_PAGE_SIZE));
        let (mut objects, mut tally) = (vec![], Tally::default());
        loop {
            let page = self.page(&api, &params).await.map_err(|error| self.record_failure(&error))?;
            tally.page(&page.items).map_err(|what| self.record_implausible(what))?;
            objects.extend(page.items);
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                let version = page.metadata.resource_version.unwrap_or_default();
                is_plausible_version(&version).map_err(|what| self.record_implausible(what))?;
                return Ok((objects, version));
            }
        }
    }

    async fn page(
        &self,
        api: &Api<DynamicObject>,
        params: &ListParams,
    ) -> kube::Result<ObjectList<DynamicObject>> {
        match self.watch_spec.content {
            Content::Whole => api.list(params).await,
            Content::Metadata => {
                let ObjectList { types, metadata, items } = api.list_metadata(params).await?;
                Ok(ObjectList { types, metadata, items: items.into_iter().map(reduced).collect() })
            }
        }
    }

    /// Watches from `version` on, with a new request whenever one ends, until a gap. The next list is due at `due`.
    async fn follow<Processing: Future<Output = bool> + Send>(
        &self,
        (mut version, mut due): (String, Instant),
        delivered: &mut DeliveredObjects,
        panics: &mut Panics,
        on_event: &impl Fn(ObjectEvent) -> Processing,
    ) -> Gap {
        let (api, mut early_ends) = (self.api(), GapCount::default());
        loop {
            let asked = shorten_randomly(MAX_WATCH_DURATION, 0.5);
            let opens = tokio::time::Instant::now();
            let opened = self.open(&api, &self.watch_params(asked), &version).await;
            let mut events = match opened {
                Ok(events) => pin!(events),
                Err(error) => return self.record_failure(&error),
            };
            loop {
                let left = due.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Gap::Due;
                }
                match tokio::time::timeout(self.pulse.silence().min(left), events.try_next()).await {
                    Err(_) if left < self.pulse.silence() => return Gap::Due,
                    Err(_) => return Gap::Silence,
                    Ok(Err(error)) => return self.record_failure(&error),
                    // The request ended early: the watch continues from its last version if the target still has
                    // that.
                    Ok(Ok(None)) if opens.elapsed() < asked.mul_f64(0.9) => {
                        let ends = early_ends.after_early_end(opens.elapsed());
                        let delay = pause_after(ends, self.pulse.age(), jitter()).max(MIN_WATCH_INTERVAL);
                        tokio::time::sleep_until(opens + delay).await;
                        match self.has_reached(&version).await {
                            Ok(true) => break,
                            Ok(false) => return Gap::Expired,
                            Err(gap) => return gap,
                        }
                    }
                    Ok(Ok(None)) => break,
                    Ok(Ok(Some(event))) => match self.process_event(event, delivered) {
                        Ok((seen, event)) => {
                            version = seen;
                            if let Some(event) = event {
                                let repeat = panics.after_event(on_event(event).await, jitter());
                                due = repeat.map_or(due, |repeat| due.min(Instant::now() + repeat));
                            }
                        }
                        Err(gap) => return gap,
                    },
                }
                self.pulse.beat();
            }
        }
    }

    /// Returns the parameters of a list with pages of this size.
    fn list_params(&self, page_size: u32) -> ListParams {
        let mut params = ListParams::default().limit(page_size);
        params.label_selector.clone_from(&self.watch_spec.labels);
        params.field_selector.clone_from(&self.watch_spec.fields);
        params
    }

    /// Returns the parameters of a watch request with this timeout.
    fn watch_params(&self, life: Duration) -> WatchParams {
        let mut params = WatchParams::default().timeout(seconds(life));
        params.label_selector.clone_from(&self.watch_spec.labels);
        params.field_selector.clone_from(&self.watch_spec.fields);
        params
    }

    /// Reports whether the target has reached `version`. One that was restored from a backup has not, and a watch
    /// from a future version would receive no event until it does (kubernetes/kubernetes#107457).
    ///
    /// Lists with the selectors of the watch: a role with `resourceNames` permits a list only with the name as selector.
    async fn has_reached(&self, version: &str) -> Result<bool, Gap> {
        let page = self.page(&self.api(), &self.list_params(1)).await;
        let newest =
            page.map_err(|error| self.record_failure(&error))?.metadata.resource_version.unwrap_or_default();
        let versions = ResourceVersion::parse(&newest).zip(ResourceVersion::parse(version));
        Ok(versions.is_some_and(|(newest, version)| !version.is_lost(newest)))
    }

    async fn open(
        &self,
        api: &Api<DynamicObject>,
        params: &WatchParams,
        version: &str,
    ) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + use<>> {
        Ok(match self.watch_spec.content {
            Content::Whole => Either::Left(api.watch(params, version).await?),
            Content::Metadata => {
                let events = api.watch_metadata(params, version).await?;
                Either::Right(events.map(|event| event.map(reduced_event)))
            }
        })
    }

    /// Processes an event. Returns the resourceVersion from which to continue, and the event for the listener.
    fn process_event(
        &self,
        event: WatchEvent<DynamicObject>,
        delivered: &mut DeliveredObjects,
    ) -> Result<(String, Option<ObjectEvent>), Gap> {
        let version = |object: &DynamicObject| {
            let version = object.metadata.resource_version.clone();
            version.ok_or_else(|| self.record_implausible(Implausible::Object))
        };
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let seen = version(&object)?;
                is_plausible(&object.metadata).map_err(|what| self.record_implausible(what))?;
                delivered.applied(&object);
                is_bearable(delivered.len()).map_err(|what| self.record_implausible(what))?;
                Ok((seen, Some(ObjectEvent::Applied(Box::new(object)))))
            }
            WatchEvent::Deleted(object) => {
                let seen = version(&object)?;
                is_plausible(&object.metadata).map_err(|what| self.record_implausible(what))?;
                delivered.deleted(&object);
                Ok((seen, Some(ObjectEvent::Deleted(Box::new(object)))))
            }
            WatchEvent::Bookmark(bookmark) => {
                let seen = bookmark.metadata.resource_version;
                is_plausible_version(&seen).map_err(|what| self.record_implausible(what))?;
                delivered.reached(ResourceVersion::parse(&seen).unwrap_or_default());
                Ok((seen, None))
            }
            WatchEvent::Error(status) if status.code == 410 => Err(Gap::Expired),
            WatchEvent::Error(status) => Err(self.record_failure(&kube::Error::Api(status))),
        }
    }

    /// Records an answer that exceeds the bounds, and returns the gap.
    fn record_implausible(&self, what: Implausible) -> Gap {
        let WatchSpec { group, kind, .. } = &self.watch_spec;
        tracing::warn!(group, kind, target = ?self.target.key(), "watch on target is closed: {what}");
        self.pulse.fail(Failure::new(Reason::TargetAnswerInvalid, format!("watch {kind}: {what}")));
        Gap::Failed
    }

    /// Records a failed call, and returns the gap.
    fn record_failure(&self, error: &kube::Error) -> Gap {
        if let kube::Error::Api(status) = error
            && status.code == 410
        {
            return Gap::Expired;
        }
        let WatchSpec { group, kind, .. } = &self.watch_spec;
        tracing::info!(group, kind, target = ?self.target.key(), "watch on target: {}", classify(error));
        self.pulse.fail(Failure::target(&format!("watch {kind}"), error));
        match error {
            kube::Error::Api(status) if is_initializing(status) => Gap::Initializing,
            _ => Gap::Failed,
        }
    }
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

fn reduced(meta: PartialObjectMeta<DynamicObject>) -> DynamicObject {
    let types = meta.types.map(|types| TypeMeta { api_version: types.api_version, kind: types.kind });
    DynamicObject { types, metadata: meta.metadata, data: serde_json::Value::Null }
}

fn reduced_event(event: WatchEvent<PartialObjectMeta<DynamicObject>>) -> WatchEvent<DynamicObject> {
    match event {
        WatchEvent::Added(meta) => WatchEvent::Added(reduced(meta)),
        WatchEvent::Modified(meta) => WatchEvent::Modified(reduced(meta)),
        WatchEvent::Deleted(meta) => WatchEvent::Deleted(reduced(meta)),
        WatchEvent::Bookmark(bookmark) => WatchEvent::Bookmark(bookmark),
        WatchEvent::Error(status) => WatchEvent::Error(status),
    }
}
