//! The status of a component: computed purely, written only if it differs.

mod cache;
mod delayed;
mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, ResourceExt};
use kube_runtime::reflector::ObjectRef;
use kyma_api::{FreeForm, condition};
use kyma_controller::{Failure, Metrics, apply_status, is_absent};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::contract::{ComponentResource, Contract};

use cache::StatusCache;
use delayed::{DelayedReports, ReportSubject};
pub(crate) use report::Report;
use report::{next_status, with_fields};

/// Writes statuses of one kind. Caches written statuses until the watch shows them, so that a reconcile in between
/// does not write them again.
pub(crate) struct StatusWriter<R: ComponentResource> {
    inner: Arc<StatusWriterInner<R>>,
}

struct StatusWriterInner<R: ComponentResource> {
    hub: Client,
    manager: &'static str,
    metrics: Metrics,
    cache: Mutex<StatusCache<R>>,
    delayed: Mutex<DelayedReports<R>>,
}

/// Result of writing a report.
#[derive(Debug)]
pub(crate) enum WriteOutcome {
    /// The hub had the same status already.
    Unchanged,
    /// The status was written.
    Now(FreeForm),
    /// The status is written after this time, unless another report replaces it.
    Later(Duration),
}

impl<R: ComponentResource> Clone for StatusWriter<R> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<R: ComponentResource> StatusWriter<R> {
    pub(crate) fn new(hub: Client, manager: &'static str, metrics: Metrics) -> Self {
        Self {
            inner: Arc::new(StatusWriterInner {
                hub,
                manager,
                metrics,
                cache: Mutex::default(),
                delayed: Mutex::default(),
            }),
        }
    }

    fn cache(&self) -> MutexGuard<'_, StatusCache<R>> {
        self.inner.cache.lock()
    }

    fn delayed(&self) -> MutexGuard<'_, DelayedReports<R>> {
        self.inner.delayed.lock()
    }

    /// Returns the latest known status: that of `resource`, or a newer one of the writer's own last write.
    pub(crate) fn current(&self, resource: &R) -> Result<FreeForm, Failure> {
        if let Some(own) = self.cache().newer_than(resource) {
            return Ok(own);
        }
        let mut status = Contract::of(resource)?.whole_status;
        status.retain(|_, value| !value.is_null());
        Ok(status)
    }

    /// Writes `report` if the status differs. A report of work in progress is delayed by at most one second, in case
    /// the next one replaces it; the caller then reconciles again after the returned time. With `is_final` the report
    /// is written at once.
    pub(crate) async fn write(
        &self,
        resource: &R,
        report: &Report,
        is_final: bool,
    ) -> Result<WriteOutcome, Failure> {
        let of = ReportSubject::resource(resource);
        let now = Time(Timestamp::now());
        let before = self.current(resource)?;
        let (base, report) = self.delayed().with(&of, &before, report, &now);
        let next = next_status(&base, &report, of.generation, &now);
        let is_new = next != before;
        let may_wait = is_new && !is_final;
        if let Some(left) = may_wait.then(|| self.delayed().hold(&of, &report, Instant::now())).flatten() {
            return Ok(WriteOutcome::Later(left));
        }
        if is_new {
            self.apply(resource, &next).await?;
        }
        self.delayed().forget(&of.key);
        Ok(if is_new { WriteOutcome::Now(next) } else { WriteOutcome::Unchanged })
    }

    /// Writes single fields if they differ. They replace the same fields of a delayed report.
    pub(crate) async fn write_fields(&self, resource: &R, fields: FreeForm) -> Result<(), Failure> {
        let before = self.current(resource)?;
        let next = with_fields(&before, &fields);
        self.delayed().overtaken(&ObjectRef::from_obj(resource), &fields);
        if next == before { Ok(()) } else { self.apply(resource, &next).await }
    }

    /// Marks the start of a reconcile of `resource`. Dropping the guard marks its end.
    pub(crate) fn begin_reconcile(&self, resource: &R) -> ReconcileGuard<R> {
        let key = ObjectRef::from_obj(resource);
        self.cache().begin(key.clone());
        ReconcileGuard { writer: self.clone(), key }
    }

    /// Records the metadata after the running reconcile wrote something other than the status.
    pub(crate) fn touched(&self, resource: &R, meta: &ObjectMeta) {
        self.cache().touched(&ObjectRef::from_obj(resource), meta);
    }

    /// Processes a watch event of `resource`. Returns true if its status has to be reconciled again.
    pub(crate) fn process_event(&self, resource: &R) -> bool {
        self.cache().process_event(resource)
    }

    /// Marks the start of a list.
    pub(crate) fn listing(&self) {
        self.cache().listing();
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget(&self, key: &ObjectRef<R>) {
        self.cache().forget(key);
        self.delayed().forget(key);
    }

    async fn apply(&self, resource: &R, status: &FreeForm) -> Result<(), Failure> {
        let (name, namespace) = (resource.name_any(), resource.namespace().unwrap_or_default());
        let seen = self.cache().latest(resource);
        let api: Api<R> = Api::namespaced(self.inner.hub.clone(), &namespace);
        let written = match apply_status(&api, self.inner.manager, &seen, &json!(status)).await {
            // Deleted meanwhile: there is nothing to report on.
            Err(error) if is_absent(&api, &name, &error) => return Ok(()),
            other => other.map_err(|error| Failure::hub(&format!("status of {namespace}/{name}"), &error))?,
        };
        self.inner.metrics.status_written(self.inner.manager);
        self.cache().wrote(&written, status.clone());
        Ok(())
    }
}

/// Guard of a running reconcile.
pub(crate) struct ReconcileGuard<R: ComponentResource> {
    writer: StatusWriter<R>,
    key: ObjectRef<R>,
}

impl<R: ComponentResource> Drop for ReconcileGuard<R> {
    fn drop(&mut self) {
        self.writer.cache().end(&self.key);
    }
}

/// Returns status and reason of the condition Ready, which decide whether an event is published.
pub(crate) fn ready_of(status: &FreeForm) -> Option<(String, String)> {
    let conditions = status.get("conditions")?.as_array()?;
    let ready = conditions
        .iter()
        .find(|one| one.get("type").and_then(Value::as_str) == Some(condition::types::READY))?;
    let text = |key| ready.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some((text("status"), text("reason")))
}

#[cfg(test)]
impl<R: ComponentResource> StatusWriter<R> {
    /// Reports whether no object has an entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.cache().is_empty() && self.delayed().is_empty()
    }
}
