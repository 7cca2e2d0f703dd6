//! The brake: a deletion on suspiciously many targets stops until a person says that it is meant.
//!
//! It is a [`Pause`] that the operator makes for itself. Deleting that Pause says that the deletion is meant. What
//! was counted is kept in a `ConfigMap` beside it, so a restart does not free it.

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

use crate::{Failure, Pauses, Settings, call::is_conflict, hub_apply, is_in_force};

/// Key of the counted targets in the `ConfigMap`.
const COUNTED: &str = "targets";

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
    window: Mutex<Option<Window>>,
    all: OnceLock<Box<dyn Fn() -> usize + Send + Sync>>,
}

impl Brake {
    pub(crate) fn new(operator: &'static str, hub: &Client, settings: &Settings, pauses: Pauses) -> Self {
        let namespace = &settings.hub_namespace;
        let inner = Inner {
            operator,
            name: format!("brake-{operator}"),
            limit: settings.brake,
            records: Api::namespaced(hub.clone(), namespace),
            makes: Api::namespaced(hub.clone(), namespace),
            pauses,
            window: Mutex::default(),
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
        let mut held = self.inner.window.lock().await;
        let mut window = match held.take() {
            Some(window) => window,
            None => self.restore().await?,
        };
        let all = self.inner.all.get().map_or(0, |count| count());
        let before = window.clone();
        let verdict = window.ask(target, self.inner.limit, all, Timestamp::now());
        if verdict == Verdict::Counted
            && let Err(failure) = self.record(&window).await
        {
            *held = Some(before);
            return Err(failure);
        }
        *held = Some(window);
        match verdict {
            Verdict::Go | Verdict::Counted => Ok(()),
            Verdict::Stop { limit } => Err(self.stop(limit, all).await),
        }
    }

    /// Takes the end of its own Pause for a person's word that what goes on is meant; for ever.
    pub(crate) async fn listen(self) {
        let mut changes = self.inner.pauses.changes();
        let mut was_on = self.is_on();
        loop {
            changes.next().await;
            let is_on = self.is_on();
            if was_on && !is_on {
                self.mean_it().await;
            }
            was_on = is_on;
        }
    }

    fn is_on(&self) -> bool {
        self.inner
            .pauses
            .all()
            .get(&self.inner.name)
            .is_some_and(|pause| is_in_force(pause, Timestamp::now()))
    }

    async fn mean_it(&self) {
        let mut held = self.inner.window.lock().await;
        let mut window = held.take().unwrap_or_default();
        window.mean_it(Timestamp::now());
        if let Err(failure) = self.record(&window).await {
            tracing::warn!(reason = %failure.reason, "brake: {}", failure.message);
        }
        *held = Some(window);
        tracing::warn!(pause = self.inner.name, "deletions go on: a person says that they are meant");
    }

    async fn stop(&self, limit: usize, all: usize) -> Failure {
        let Inner { operator, name, makes, .. } = &*self.inner;
        let why = format!(
            "{operator} would delete on more than {limit} of {all} targets within 10 minutes; if that is meant, delete this Pause"
        );
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
        Failure::new(Reason::MassDeletion, format!("Pause {name}: {why}"))
    }

    async fn restore(&self) -> Result<Window, Failure> {
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
        Ok(Window::restored(counted))
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
