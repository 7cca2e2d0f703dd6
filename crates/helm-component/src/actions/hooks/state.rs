//! State of hooks: their records in the status, and their results in one reconcile. Pure.

use std::sync::Arc;
use std::time::Duration;

use kyma_api::{FreeForm, HelmComponentStatus, HookPhase, Hooks};
use kyma_helm::hooks::{self, Event};
use serde_json::json;

use crate::content::LoadedContent;
use crate::objects::PreparedObjects;
use crate::plan::step::StopReason;

/// Recorded progress of the chart's hooks and tests.
#[derive(Debug, Clone, Default)]
pub(crate) struct HookRecords {
    /// Progress of the release's hooks, `status.hooks`.
    pub(crate) release: Option<Hooks>,
    /// Progress of the chart's tests, `status.tests`.
    pub(crate) tests: Option<Hooks>,
    /// The last handled request for tests, `status.lastHandledTestAt`.
    pub(crate) handled_test_request: Option<String>,
}

impl HookRecords {
    /// Reads the records of a status.
    pub(crate) fn of(status: &HelmComponentStatus) -> Self {
        Self {
            release: status.hooks.clone(),
            tests: status.tests.clone(),
            handled_test_request: status.last_handled_test_at.clone(),
        }
    }

    /// Returns the record of an event's hooks. Tests have a record of their own, since they belong to no release.
    pub(crate) fn of_event(&self, event: Event) -> Option<&Hooks> {
        let record = if event == Event::Test { &self.tests } else { &self.release };
        record.as_ref()
    }

    pub(super) fn of_event_mut(&mut self, event: Event) -> &mut Option<Hooks> {
        if event == Event::Test { &mut self.tests } else { &mut self.release }
    }

    /// Returns all records.
    pub(super) fn all(&self) -> impl Iterator<Item = &Hooks> {
        self.release.iter().chain(&self.tests)
    }

    /// Returns the field of the status with the record of an event's hooks.
    pub(super) fn field(event: Event) -> &'static str {
        if event == Event::Test { "tests" } else { "hooks" }
    }

    /// Returns the field of the status with the record of the release's hooks.
    pub(crate) fn release_field(&self) -> FreeForm {
        [(Self::field(Event::PostInstall).to_owned(), json!(self.release))].into_iter().collect()
    }

    /// Returns all fields of the status; `null` removes a field.
    pub(crate) fn fields(&self) -> FreeForm {
        let mut fields = self.release_field();
        fields.insert(Self::field(Event::Test).to_owned(), json!(self.tests));
        fields.insert("lastHandledTestAt".to_owned(), json!(self.handled_test_request));
        fields
    }
}

/// Results of hooks in one reconcile.
#[derive(Debug, Default)]
pub(crate) struct CompletedHooks {
    /// Whether CRDs were applied ahead of hooks.
    pub(crate) crds_applied: bool,
    /// Cause of the wait for hooks, or their failure.
    pub(crate) stop_reason: Option<StopReason>,
    /// Remaining time of the hook that the component waits for.
    pub(crate) left: Option<Duration>,
}

/// Outcome of the hooks of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// They have ended, or there are none.
    Completed,
    /// The component waits; the text names the hook and its event.
    Waiting(String),
}

impl Outcome {
    /// Returns the cause of a wait.
    pub(crate) fn waiting(self) -> Option<String> {
        match self {
            Self::Completed => None,
            Self::Waiting(cause) => Some(cause),
        }
    }
}

/// Hooks of a removal that this process read or stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct RemovalHooks {
    /// The hooks, once they were read.
    pub(super) prepared: Option<Arc<PreparedObjects>>,
    /// The release whose hooks were stored last, until the status records it.
    pub(super) begun_release: Option<String>,
    /// The release that the status records, whose hooks are stored.
    pub(super) stored_release: Option<String>,
    /// Digest of the hooks that were stored last.
    pub(super) stored_digest: Option<String>,
    /// Stored hooks that remain when those of previous releases are discarded; `None` if no discard is due.
    pub(super) discard_due: Option<RemainingHooks>,
}

/// Change of the stored hooks by the apply of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredHooks {
    /// They are those of the release, or there are none.
    Unchanged,
    /// The hooks of the release are stored beside those of the previous one.
    Replaced,
    /// The release has no hooks of a removal, or they could not be stored.
    Removed,
}

/// Stored hooks that remain after a discard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemainingHooks {
    /// Release of the hooks; `None` if no hooks remain.
    pub(super) release: Option<String>,
}

impl RemovalHooks {
    /// Takes over a change of the stored hooks after the status records their release. Before that, the hooks do not
    /// count as stored: a write for another release may drop them.
    pub(super) fn confirm(&mut self, stored: StoredHooks) {
        if stored == StoredHooks::Unchanged {
            return;
        }
        self.stored_release = self.begun_release.take();
        let release = self.stored_release.clone().filter(|_| stored == StoredHooks::Replaced);
        self.discard_due = Some(RemainingHooks { release });
    }
}

/// Returns the record of hooks for content that Helm installed: the hooks of its installation have run.
pub(crate) fn record_if_adopted(loaded: &LoadedContent) -> Option<Hooks> {
    let own = &loaded.prepared.hooks;
    let has_delete_hooks = hooks::are_of_removal(own);
    (!own.is_empty()).then(|| Hooks {
        digest: loaded.release.clone(),
        event: Event::PostInstall.as_str().to_owned(),
        phase: HookPhase::Succeeded,
        has_delete_hooks,
        ..Hooks::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(digest: &str) -> Hooks {
        Hooks { digest: digest.to_owned(), ..Hooks::default() }
    }

    #[test]
    fn tests_and_hooks_of_the_release_have_separate_records() {
        let mut records = HookRecords::default();
        *records.of_event_mut(Event::PreUpgrade) = Some(record("release"));
        *records.of_event_mut(Event::Test) = Some(record("tests"));
        assert_eq!((&records.release, &records.tests), (&Some(record("release")), &Some(record("tests"))));
        assert_eq!(records.of_event(Event::PostDelete), Some(&record("release")));
        assert_eq!(records.of_event(Event::Test), Some(&record("tests")));
        assert_eq!(records.all().count(), 2);
    }

    #[test]
    fn a_discard_is_due_once_the_status_records_the_stored_hooks() {
        let remaining = |release: Option<&str>| Some(RemainingHooks { release: release.map(str::to_owned) });
        let mut hooks = RemovalHooks { begun_release: Some("b".to_owned()), ..RemovalHooks::default() };
        hooks.confirm(StoredHooks::Unchanged);
        assert_eq!((&hooks.stored_release, &hooks.discard_due), (&None, &None));
        hooks.confirm(StoredHooks::Replaced);
        assert_eq!(hooks.stored_release.as_deref(), Some("b"));
        assert_eq!(hooks.discard_due, remaining(Some("b")));
        hooks.confirm(StoredHooks::Unchanged);
        assert_eq!(hooks.discard_due, remaining(Some("b")), "the discard failed");
        hooks.confirm(StoredHooks::Removed);
        assert_eq!((&hooks.stored_release, &hooks.discard_due), (&None, &remaining(None)));
    }

    #[test]
    fn records_are_read_from_the_fields_that_they_write() {
        let records = HookRecords {
            release: Some(record("release")),
            tests: Some(record("tests")),
            handled_test_request: Some("now".to_owned()),
        };
        let status: HelmComponentStatus = serde_json::from_value(json!(records.fields())).unwrap();
        let read = HookRecords::of(&status);
        assert_eq!((read.release, read.tests), (records.release, records.tests));
        assert_eq!(read.handled_test_request, records.handled_test_request);
        let none = HookRecords::default().fields();
        assert_eq!(json!(none), json!({"hooks": null, "tests": null, "lastHandledTestAt": null}));
    }
}
