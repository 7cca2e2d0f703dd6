//! The brake: stops deletions on suspiciously many targets until a user confirms them.
//!
//! The brake is a [`Pause`] that the operator creates for itself. Deleting the brake's Pause of any operator confirms
//! the deletions of all operators; a list without that Pause confirms nothing. The counted targets are recorded in a
//! `ConfigMap`, so that a restart does not free them. A second `ConfigMap`, the mark, records that the operator
//! deleted something before: if the record is missing while the mark exists, the record was lost and counts as full.

pub(crate) mod window;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, OnceLock},
    time::Instant,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PostParams},
};
use kyma_api::{Pause, PauseScope, PauseSpec, Reason};
use serde_json::{Value, json};
use tokio::sync::Mutex;

pub use window::BrakeLimit;
use window::{BrakeDecision, ClockReading, Window};

use crate::calls::objects::{find_object, is_conflict};
use crate::failure::Failure;
use crate::hub::hub_apply;
use crate::pauses::cache::Pauses;
use crate::pauses::names::{brake_name, record_name};
use crate::process::settings::Settings;

/// Key of the counted targets in the `ConfigMap`.
const COUNTED_TARGETS_KEY: &str = "targets";
/// Key of the number of targets when the window began.
const ALL_TARGETS_KEY: &str = "all";

/// Returns the name of the `ConfigMap` that records that the operator deleted something before.
fn mark_name(operator: &str) -> String {
    format!("brake-{operator}-mark")
}

/// Returns the names of the `ConfigMaps` that an operator keeps in the hub namespace: those of its brake, and of the
/// Pauses in force.
pub fn record_names(operator: &str) -> [String; 3] {
    [brake_name(operator), mark_name(operator), record_name(operator)]
}

/// Limits the number of targets with deletions. Checked before every removal from a target. Cheap to clone; each
/// operator has one.
#[derive(Clone)]
pub struct Brake {
    inner: Arc<BrakeInner>,
}

struct BrakeInner {
    operator: &'static str,
    name: String,
    limit: BrakeLimit,
    records: Api<ConfigMap>,
    makes: Api<Pause>,
    pauses: Pauses,
    /// `None` until the record of the previous process was read.
    state: Mutex<Option<BrakeState>>,
    target_counter: OnceLock<Box<dyn Fn() -> usize + Send + Sync>>,
}

/// State of the brake between two decisions.
struct BrakeState {
    window: Window,
    /// The brake's Pause was created, and no user has deleted it since.
    is_on: bool,
    /// Count of [`Pauses::released`] that was already processed as confirmations.
    processed_releases: u64,
    /// Count of [`Pauses::lost`] that was already processed.
    processed_losses: u64,
    /// The record holds all counted targets.
    is_recorded: bool,
    /// The mark exists.
    is_marked: bool,
}

impl BrakeState {
    /// Processes releases and losses of the Pause. Returns whether a user deleted it, which confirms the deletions. A
    /// Pause that is merely missing is created again with the next refusal.
    fn process_pause_changes(&mut self, released: u64, lost: u64, now: ClockReading) -> bool {
        if lost > self.processed_losses {
            self.is_on = false;
            self.processed_losses = lost;
        }
        if released <= self.processed_releases {
            return false;
        }
        self.window.confirm_deletions(now);
        self.is_on = false;
        self.processed_releases = released;
        self.is_recorded = false;
        true
    }
}

impl Brake {
    pub(crate) fn new(operator: &'static str, hub: &Client, settings: &Settings, pauses: Pauses) -> Self {
        let namespace = &settings.hub_namespace;
        let inner = BrakeInner {
            operator,
            name: brake_name(operator),
            limit: settings.brake,
            records: Api::namespaced(hub.clone(), namespace),
            makes: Api::namespaced(hub.clone(), namespace),
            pauses,
            state: Mutex::default(),
            target_counter: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Sets the function that counts all targets; each decision calls it. Later calls change nothing. Without it, the
    /// percentage of the limit has no effect.
    pub fn set_target_counter(&self, count: impl Fn() -> usize + Send + Sync + 'static) {
        // The first function stays in force.
        _ = self.inner.target_counter.set(Box::new(count));
    }

    /// Requests permission to remove objects from a target; `target` is any name that is unique to it.
    ///
    /// # Errors
    /// `MassDeletion`: too many other targets had deletions within ten minutes. The failure of the hub if the count
    /// cannot be recorded: nothing may be removed then.
    pub async fn permit(&self, target: &str) -> Result<(), Failure> {
        // The state stays in the guard, since a reconcile may be cancelled at every await.
        let mut guard = self.inner.state.lock().await;
        let state = match &mut *guard {
            Some(state) => state,
            none => none.insert(self.restore().await?),
        };
        let pauses = &self.inner.pauses;
        let now = moment();
        if state.process_pause_changes(pauses.released(), pauses.lost(), now) {
            tracing::warn!(pause = self.inner.name, "deletions continue: a user confirmed them");
        }
        let all = self.inner.target_counter.get().map_or(0, |count| count());
        match state.window.check_target(target, self.inner.limit, all, now) {
            BrakeDecision::LimitReached { limit, all } => {
                return Err(self.stop(state, &over(limit, all)).await);
            }
            BrakeDecision::RecordLost => return Err(self.stop(state, RECORD_LOST).await),
            BrakeDecision::NewlyCounted => state.is_recorded = false,
            BrakeDecision::Allowed => {}
        }
        if !state.is_marked {
            self.apply(&mark_name(self.inner.operator), &json!({})).await?;
            state.is_marked = true;
        }
        if !state.is_recorded {
            self.record(&state.window).await?;
            state.is_recorded = true;
        }
        Ok(())
    }

    /// Reads the record before the first deletion is requested, so that the first start writes an empty record.
    pub(crate) async fn prepare(&self) -> Result<(), Failure> {
        let mut guard = self.inner.state.lock().await;
        if guard.is_none() {
            *guard = Some(self.restore().await?);
        }
        Ok(())
    }

    async fn stop(&self, state: &mut BrakeState, what: &str) -> Failure {
        let BrakeInner { operator, name, makes, .. } = &*self.inner;
        let why = format!("{operator} {what}; if the deletions are intended, delete this Pause");
        let stopped = || Failure::new(Reason::MassDeletion, format!("Pause {name}: {why}"));
        if state.is_on {
            return stopped();
        }
        let spec = PauseSpec {
            scope: PauseScope::Deletes,
            operators: vec![(*operator).to_owned()],
            reason: Some(why.clone()),
            ..PauseSpec::default()
        };
        let params = PostParams { field_manager: Some((*operator).to_owned()), ..PostParams::default() };
        match makes.create(&params, &Pause::new(name, spec)).await {
            Ok(_) => tracing::error!(pause = name, "mass deletion stopped: {why}"),
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Failure::hub(&format!("create Pause {name}"), &error),
        }
        state.is_on = true;
        stopped()
    }

    async fn restore(&self) -> Result<BrakeState, Failure> {
        let BrakeInner { operator, name, .. } = &*self.inner;
        let (record, mark) = (self.read(name).await?, self.read(&mark_name(operator)).await?);
        let (is_new, is_marked, now) = (record.is_none(), mark.is_some(), moment());
        let window = restored(record, is_marked, now).unwrap_or_else(|| {
            tracing::warn!(
                "ConfigMap {name} is missing or damaged: deletions wait for the confirmation of a user"
            );
            Window::without_record(now)
        });
        if is_new && !is_marked {
            self.record(&window).await?;
        }
        Ok(BrakeState {
            window,
            is_on: false,
            processed_releases: 0,
            processed_losses: 0,
            is_recorded: true,
            is_marked,
        })
    }

    async fn read(&self, name: &str) -> Result<Option<ConfigMap>, Failure> {
        let found = find_object(&self.inner.records, name).await;
        found.map_err(|error| Failure::hub(&format!("read ConfigMap {name}"), &error))
    }

    async fn record(&self, window: &Window) -> Result<(), Failure> {
        let counted = json!(window.counted()).to_string();
        let data = json!({ COUNTED_TARGETS_KEY: counted, ALL_TARGETS_KEY: window.all().to_string() });
        self.apply(&self.inner.name, &data).await
    }

    async fn apply(&self, name: &str, data: &Value) -> Result<(), Failure> {
        let BrakeInner { operator, records, .. } = &*self.inner;
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data,
        });
        let applied = records.patch(name, &hub_apply(operator), &Patch::Apply(&body)).await;
        applied.map(drop).map_err(|error| Failure::hub(&format!("apply ConfigMap {name}"), &error))
    }
}

/// Returns the current time on both clocks.
fn moment() -> ClockReading {
    ClockReading { monotonic: Instant::now(), wall: Timestamp::now() }
}

/// Message of the brake after its record was lost.
const RECORD_LOST: &str =
    "cannot determine on how many targets it deleted objects recently, because its record was lost";

fn over(limit: usize, all: usize) -> String {
    format!("would delete on more than {limit} of {all} targets within 10 minutes")
}

/// Returns the window of an earlier process, or `None` if its record was lost or cannot be read. Without the mark,
/// the operator never deleted anything and the window is empty.
fn restored(record: Option<ConfigMap>, is_marked: bool, now: ClockReading) -> Option<Window> {
    let Some(record) = record else {
        return (!is_marked).then(Window::default);
    };
    let mut data = record.data.unwrap_or_default();
    let Some(counted) = data.remove(COUNTED_TARGETS_KEY) else {
        return (!is_marked).then(Window::default);
    };
    let all = data.remove(ALL_TARGETS_KEY).and_then(|all| all.parse().ok()).unwrap_or_default();
    let counted = serde_json::from_str::<BTreeMap<String, Timestamp>>(&counted).ok()?;
    Some(Window::from_record(counted, all, now))
}

impl Debug for Brake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Brake").field("limit", &self.inner.limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(data: &[(&str, &str)]) -> ConfigMap {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        ConfigMap { data: Some(data.collect()), ..ConfigMap::default() }
    }

    #[test]
    fn brake_pause_lost_by_restore_is_recreated_and_stays_in_force() {
        let (limit, now) = (BrakeLimit { targets: 1, percent: 0 }, moment());
        let window = Window::from_record(BTreeMap::from([("a".to_owned(), now.wall)]), 1, now);
        let mut state = BrakeState {
            window,
            is_on: true,
            processed_releases: 0,
            processed_losses: 0,
            is_recorded: true,
            is_marked: true,
        };
        let ask = |state: &mut BrakeState| state.window.check_target("b", limit, 1, now);
        assert!(!state.process_pause_changes(0, 0, now));
        assert!(state.is_on, "it is made once");
        assert!(!state.process_pause_changes(0, 1, now));
        assert_eq!((ask(&mut state), state.is_on), (BrakeDecision::LimitReached { limit: 1, all: 1 }, false));
        state.is_on = true;
        assert!(!state.process_pause_changes(0, 1, now));
        assert!(state.is_on, "it was missing once");
        assert!(state.process_pause_changes(1, 1, now), "a person took it away");
        assert_eq!((ask(&mut state), state.is_on), (BrakeDecision::Allowed, false));
    }

    #[test]
    fn a_record_is_lost_only_if_the_operator_deleted_before() {
        let now = moment();
        let is_known = |record, is_marked| restored(record, is_marked, now).is_some();
        assert!(is_known(None, false), "the first start");
        assert!(!is_known(None, true));
        assert!(!is_known(Some(record(&[])), true) && is_known(Some(record(&[])), false));
        for is_marked in [false, true] {
            assert!(!is_known(Some(record(&[(COUNTED_TARGETS_KEY, "damaged")])), is_marked));
            assert!(is_known(
                Some(record(&[(COUNTED_TARGETS_KEY, "{}"), (ALL_TARGETS_KEY, "7")])),
                is_marked
            ));
        }
        let wall = now.wall.to_string();
        let counted = format!("{{\"a/config\":\"{wall}\"}}");
        let window =
            restored(Some(record(&[(COUNTED_TARGETS_KEY, &counted), (ALL_TARGETS_KEY, "7")])), true, now)
                .unwrap();
        assert_eq!((window.counted().len(), window.all()), (1, 7));
    }
}
