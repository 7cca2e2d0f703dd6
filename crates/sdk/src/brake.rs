//! The brake: a deletion on suspiciously many targets stops until a person says that it is meant.
//!
//! It is a [`Pause`] that the operator makes for itself. Deleting that Pause says that the deletion is meant; that a list
//! lacks it says nothing. What was counted is kept in a `ConfigMap` beside it, so a restart does not free it.

mod window;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, OnceLock},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PostParams},
};
use kyma_api::{Pause, PauseScope, PauseSpec, Reason};
use serde_json::json;
use tokio::sync::Mutex;

pub use window::BrakeLimit;
use window::{Verdict, Window};

use crate::{Failure, Pauses, Settings, call::is_conflict, hub_apply};

/// Key of the counted targets in the `ConfigMap`.
const COUNTED: &str = "targets";

/// Name of the Pause that an operator makes for itself, and of the `ConfigMap` with what it counted.
pub(crate) fn brake_name(operator: &str) -> String {
    format!("brake-{operator}")
}

/// Asked before anything is removed from a target. Cheap to clone; one for each operator.
#[derive(Clone)]
pub struct Brake {
    inner: Arc<Inner>,
}

struct Inner {
    operator: &'static str,
    name: String,
    limit: BrakeLimit,
    records: Api<ConfigMap>,
    makes: Api<Pause>,
    pauses: Pauses,
    /// None until the record of the life before was read.
    held: Mutex<Option<Held>>,
    all: OnceLock<Box<dyn Fn() -> usize + Send + Sync>>,
}

/// What is remembered between two questions.
struct Held {
    window: Window,
    /// The Pause was made, and nobody has taken it away since.
    is_on: bool,
    /// How many of [`Pauses::released`] were taken for a person's word.
    heard: u64,
    /// How many of [`Pauses::lost`] were taken notice of.
    missed: u64,
    /// The record holds all that was counted.
    is_recorded: bool,
}

impl Held {
    /// Whether a person took the Pause away, which says that what goes on is meant. One that is merely missing is made
    /// again as soon as it is due.
    fn hear(&mut self, released: u64, lost: u64, now: Timestamp) -> bool {
        if lost > self.missed {
            self.is_on = false;
            self.missed = lost;
        }
        if released <= self.heard {
            return false;
        }
        self.window.mean_it(now);
        self.is_on = false;
        self.heard = released;
        self.is_recorded = false;
        true
    }
}

impl Brake {
    pub(crate) fn new(operator: &'static str, hub: &Client, settings: &Settings, pauses: Pauses) -> Self {
        let namespace = &settings.hub_namespace;
        let inner = Inner {
            operator,
            name: brake_name(operator),
            limit: settings.brake,
            records: Api::namespaced(hub.clone(), namespace),
            makes: Api::namespaced(hub.clone(), namespace),
            pauses,
            held: Mutex::default(),
            all: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// How many targets there are, asked again for each decision. Said once; until then the share of them counts
    /// for nothing.
    pub fn of_all(&self, count: impl Fn() -> usize + Send + Sync + 'static) {
        // Said before: that stands.
        _ = self.inner.all.set(Box::new(count));
    }

    /// Asks to remove something from a target; `target` is any name that stands for it alone.
    ///
    /// # Errors
    /// `MassDeletion`: too many other targets lost something within ten minutes. What the hub says where it cannot be
    /// recorded: nothing may be removed then.
    pub async fn permit(&self, target: &str) -> Result<(), Failure> {
        // What is remembered stays where it is: a pass may be cut off at every await.
        let mut guard = self.inner.held.lock().await;
        let held = match &mut *guard {
            Some(held) => held,
            none => none.insert(self.restore().await?),
        };
        let pauses = &self.inner.pauses;
        if held.hear(pauses.released(), pauses.lost(), Timestamp::now()) {
            tracing::warn!(pause = self.inner.name, "deletions go on: a person says that they are meant");
        }
        let all = self.inner.all.get().map_or(0, |count| count());
        match held.window.ask(target, self.inner.limit, all, Timestamp::now()) {
            Verdict::Stop { limit } => return Err(self.stop(held, limit, all).await),
            Verdict::Counted => held.is_recorded = false,
            Verdict::Go => {}
        }
        if !held.is_recorded {
            self.record(&held.window).await?;
            held.is_recorded = true;
        }
        Ok(())
    }

    async fn stop(&self, held: &mut Held, limit: usize, all: usize) -> Failure {
        let Inner { operator, name, makes, .. } = &*self.inner;
        let why = format!(
            "{operator} would delete on more than {limit} of {all} targets within 10 minutes; if that is meant, delete this Pause"
        );
        let stopped = || Failure::new(Reason::MassDeletion, format!("Pause {name}: {why}"));
        if held.is_on {
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
        held.is_on = true;
        stopped()
    }

    async fn restore(&self) -> Result<Held, Failure> {
        let Inner { name, records, .. } = &*self.inner;
        let record = records.get_opt(name).await;
        let record = record.map_err(|error| Failure::hub(&format!("read ConfigMap {name}"), &error))?;
        let text = record.and_then(|record| record.data?.remove(COUNTED));
        let counted: BTreeMap<String, Timestamp> = match text.map(|text| serde_json::from_str(&text)) {
            None => BTreeMap::new(),
            Some(Ok(counted)) => counted,
            Some(Err(error)) => {
                tracing::warn!(%error, "ConfigMap {name} is damaged: what was deleted lately is not known");
                BTreeMap::new()
            }
        };
        Ok(Held { window: Window::restored(counted), is_on: false, heard: 0, missed: 0, is_recorded: true })
    }

    async fn record(&self, window: &Window) -> Result<(), Failure> {
        let Inner { operator, name, records, .. } = &*self.inner;
        let counted = json!(window.counted()).to_string();
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { COUNTED: counted },
        });
        let applied = records.patch(name, &hub_apply(operator), &Patch::Apply(&body)).await;
        applied.map(drop).map_err(|error| Failure::hub(&format!("apply ConfigMap {name}"), &error))
    }
}

impl Debug for Brake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Brake").field("limit", &self.inner.limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_a_restored_hub_lacks_is_made_again_and_releases_nothing() {
        let (limit, now) = (BrakeLimit { targets: 1, percent: 0 }, Timestamp::from_second(1).unwrap());
        let window = Window::restored(BTreeMap::from([("a".to_owned(), now)]));
        let mut held = Held { window, is_on: true, heard: 0, missed: 0, is_recorded: true };
        let ask = |held: &mut Held| held.window.ask("b", limit, 1, now);
        assert!(!held.hear(0, 0, now));
        assert!(held.is_on, "it is made once");
        assert!(!held.hear(0, 1, now));
        assert_eq!((ask(&mut held), held.is_on), (Verdict::Stop { limit: 1 }, false));
        held.is_on = true;
        assert!(!held.hear(0, 1, now));
        assert!(held.is_on, "it was missing once");
        assert!(held.hear(1, 1, now), "a person took it away");
        assert_eq!((ask(&mut held), held.is_on), (Verdict::Go, false));
    }
}
