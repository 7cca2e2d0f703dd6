//! Writes the status of ModuleConfigs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::{Api, ResourceExt};
use kyma_api::{ModuleConfig, ModuleConfigStatus};
use kyma_controller::{Failure, Reconciler, Wait, apply_status, is_absent};
use parking_lot::Mutex;
use serde_json::json;

use crate::FIELD_MANAGER;
use crate::error::Error;
use crate::hub::config::next_status;
use crate::state::State;

/// Minimum time between two writes of one status: decisions about the whole fleet may change at once.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(2);

/// Reports on all ModuleConfigs until the process shuts down.
pub(crate) async fn report(state: Arc<State>, configs: Reconciler<ModuleConfig>) {
    let written = Arc::new(Mutex::new(HashMap::new()));
    configs
        .run(move |config, _| {
            let (state, written) = (Arc::clone(&state), Arc::clone(&written));
            async move { reconcile(&state, &config, &written).await }
        })
        .await;
}

async fn reconcile(
    state: &State,
    object: &ModuleConfig,
    written: &Mutex<HashMap<String, Instant>>,
) -> Result<Wait, Failure> {
    let name = object.name_any();
    // Not indexed yet: the watch that fills the index requeues the ModuleConfig.
    let Some(config) = state.configs().get(&name).cloned() else { return Ok(Wait::Event) };
    let pace = |written: &Instant| MIN_WRITE_INTERVAL.checked_sub(written.elapsed());
    let early = {
        let mut written = written.lock();
        written.retain(|_, at| pace(at).is_some());
        written.get(&name).and_then(pace)
    };
    if let Some(rest) = early {
        return Ok(Wait::Timer(rest));
    }
    let (remaining_wait, are_decided) = {
        let kymas = state.initial_kymas();
        (kymas.remaining_wait(Instant::now()), kymas.are_decided())
    };
    // Cloned under the lock that Kymas need, so at most once per pace.
    let counts =
        remaining_wait.is_none().then(|| state.config_counts().of(&name).mark_incomplete(!are_decided));
    let wait = remaining_wait.map_or(Wait::Event, Wait::Timer);
    let Some(status) = next_status(&config, counts.as_ref(), object.status.as_ref(), Timestamp::now()) else {
        return Ok(wait);
    };
    write(state, object, &status).await?;
    written.lock().insert(name, Instant::now());
    Ok(wait)
}

async fn write(state: &State, object: &ModuleConfig, status: &ModuleConfigStatus) -> Result<(), Error> {
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    let api: Api<ModuleConfig> = Api::namespaced(state.runtime.hub.clone(), &namespace);
    match apply_status(&api, FIELD_MANAGER, &object.metadata, &json!(status)).await {
        // Deleted meanwhile.
        Err(error) if is_absent(&api, &name, &error) => Ok(()),
        other => other.map(drop).map_err(|source| Error::ReportConfig { name, source }),
    }
}
