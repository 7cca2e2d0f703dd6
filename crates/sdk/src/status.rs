//! The status of a component: computed purely, written only if it differs.

mod cache;
mod delayed;

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{self as metav1, ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt};
use kube_runtime::reflector::ObjectRef;
use kyma_api::{
    FreeForm, State,
    condition::{self, Condition},
};
use kyma_controller::{Failure, Metrics, apply_status, is_absent};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::contract::{ComponentResource, Contract};

use cache::StatusCache;
use delayed::{DelayedReports, ReportSubject};

/// Result of a reconcile to write to the status.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// State of the module; `None` keeps it.
    pub(crate) state: Option<State>,
    /// Version on the target; `None` keeps it.
    pub(crate) version: Option<String>,
    /// Conditions that are known now; others stay.
    pub(crate) conditions: Vec<Condition>,
    /// Further fields by top-level name; `null` removes one, others stay.
    pub(crate) fields: FreeForm,
}

/// Returns the status after `report`, given the previous one. Conditions keep their transition time while their
/// status stays. Pure: the same report twice gives the same status.
pub(crate) fn next_status(
    before: &FreeForm,
    report: &Report,
    generation: Option<i64>,
    now: &Time,
) -> FreeForm {
    let mut status = with_fields(before, &report.fields);
    let held = status.remove("conditions").unwrap_or_default();
    let mut conditions: Vec<metav1::Condition> = serde_json::from_value(held).unwrap_or_default();
    for reported in &report.conditions {
        condition::set(&mut conditions, reported, generation, now);
    }
    status.insert("conditions".to_owned(), json!(conditions));
    if let Some(state) = report.state {
        status.insert("state".to_owned(), json!(state));
    }
    if let Some(version) = &report.version {
        status.insert("version".to_owned(), json!(version));
    }
    if let Some(generation) = generation {
        status.insert("observedGeneration".to_owned(), json!(generation));
    }
    status
}

/// Returns `before` with `fields` replaced; removes nulls, which mean absence.
fn with_fields(before: &FreeForm, fields: &FreeForm) -> FreeForm {
    let mut status = before.clone();
    status.extend(fields.clone());
    status.retain(|_, value| !value.is_null());
    status
}

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

#[cfg(test)]
mod tests {
    use kyma_api::Reason;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn ready(status: condition::Status, message: &str) -> Report {
        let ready =
            Condition::new(condition::types::READY, status, Reason::Progressing).with_message(message);
        Report { state: Some(State::Processing), conditions: vec![ready], ..Report::default() }
    }

    #[test]
    fn the_same_report_twice_changes_nothing() {
        let report = ready(condition::Status::False, "waiting");
        let first = next_status(&FreeForm::new(), &report, Some(1), &at(1));
        assert_eq!(first["observedGeneration"], 1);
        assert_eq!(next_status(&first, &report, Some(1), &at(2)), first);
    }

    #[test]
    fn transition_time_moves_with_the_status_only() {
        let first = next_status(&FreeForm::new(), &ready(condition::Status::False, "a"), Some(1), &at(1));
        let second = next_status(&first, &ready(condition::Status::False, "b"), Some(2), &at(2));
        assert_eq!(
            second["conditions"][0]["lastTransitionTime"],
            first["conditions"][0]["lastTransitionTime"]
        );
        assert_eq!(second["conditions"][0]["observedGeneration"], 2);
        let third = next_status(&second, &ready(condition::Status::True, "b"), Some(2), &at(3));
        assert_ne!(
            third["conditions"][0]["lastTransitionTime"],
            first["conditions"][0]["lastTransitionTime"]
        );
    }

    #[test]
    fn fields_that_are_not_named_stay_and_null_removes_one() {
        let held: FreeForm =
            serde_json::from_value(json!({"inventory": [1], "version": "1.0.0", "digests": {"a": "b"}}))
                .unwrap();
        let fields: FreeForm = serde_json::from_value(json!({"digests": null, "more": 1})).unwrap();
        let next = next_status(&held, &Report { fields, ..Report::default() }, None, &at(1));
        assert_eq!(next["inventory"], json!([1]));
        assert_eq!(next["version"], "1.0.0");
        assert_eq!(next["more"], 1);
        assert!(!next.contains_key("digests"));
    }

    #[test]
    fn a_status_of_another_form_is_replaced_not_fatal() {
        let held: FreeForm = serde_json::from_value(json!({"conditions": "none", "state": 7})).unwrap();
        let next = next_status(&held, &ready(condition::Status::True, ""), Some(1), &at(1));
        assert_eq!(next["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(next["state"], "Processing");
    }
}
