//! The record of Pauses in force: a Pause stays in force although the hub lost it while no operator ran.
//!
//! It is a `ConfigMap` for each operator. A Pause enters it when a watch shows it, and leaves it with the requested
//! deletion of the Pause or at its end.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::{Pause, PauseSpec};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;

use super::names::record_name;
use super::snapshot::{PauseSnapshot, is_in_force};
use crate::calls::objects::find_object;
use crate::failure::cause::describe_cause;
use crate::process::runtime::Runtime;

/// Key of the Pauses in the `ConfigMap`.
const PAUSES: &str = "pauses";
/// Maximum number of recorded Pauses: the first by name.
const MAX_RECORDED_PAUSES: usize = 200;
/// Delay before the record is read or written again after a failure, which no event ends.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// A Pause as it is recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedPause {
    /// The uid of the Pause.
    uid: Option<String>,
    spec: PauseSpec,
}

/// Content of the record on the hub.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredRecord {
    pub(super) pauses: BTreeMap<String, RecordedPause>,
    /// Detects writes of another process of the operator.
    resource_version: Option<String>,
}

/// Returns the content of the record: the Pauses in force except that of the brake, which creates it again.
pub(super) fn recorded(
    snapshot: &PauseSnapshot,
    brake: &str,
    now: Timestamp,
) -> BTreeMap<String, RecordedPause> {
    let pauses = snapshot.pauses.iter().filter(|(name, pause)| *name != brake && is_in_force(pause, now));
    let recorded = pauses
        .map(|(name, pause)| (name.clone(), RecordedPause { uid: pause.uid(), spec: pause.spec.clone() }));
    recorded.take(MAX_RECORDED_PAUSES).collect()
}

/// The Pauses of a record that are still in force.
pub(super) fn restored(record: BTreeMap<String, RecordedPause>, now: Timestamp) -> Vec<Pause> {
    let pauses = record.into_iter().map(|(name, RecordedPause { uid, spec })| {
        let mut pause = Pause::new(&name, spec);
        pause.metadata.uid = uid;
        pause
    });
    pauses.filter(|pause| is_in_force(pause, now)).collect()
}

/// An operator's record on the hub.
pub(super) struct PauseRecord {
    api: Api<ConfigMap>,
    operator: &'static str,
    name: String,
    brake: String,
}

impl PauseRecord {
    pub(super) fn new(runtime: &Runtime, brake: &str) -> Self {
        let operator = runtime.operator.name;
        let api = Api::namespaced(runtime.hub.clone(), &runtime.settings.hub_namespace);
        Self { api, operator, name: record_name(operator), brake: brake.to_owned() }
    }

    /// Reads the record and retries until it succeeds: before that nothing may be written. Returns an empty record if
    /// the operator may not read it or if it is damaged.
    pub(super) async fn read(&self) -> StoredRecord {
        let Self { api, name, .. } = self;
        loop {
            match find_object(api, name).await {
                Ok(record) => {
                    let resource_version = record.as_ref().and_then(ResourceExt::resource_version);
                    let text = record.and_then(|record| record.data?.remove(PAUSES)).unwrap_or_default();
                    let parsed =
                        if text.is_empty() { Ok(BTreeMap::new()) } else { serde_json::from_str(&text) };
                    let pauses = parsed.unwrap_or_else(|_| {
                        tracing::error!("ConfigMap {name} is damaged: Pauses that the hub lost are unknown");
                        BTreeMap::new()
                    });
                    return StoredRecord { pauses, resource_version };
                }
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    tracing::error!(
                        "the role lacks get and patch of ConfigMap {name}: update the operator's role"
                    );
                    return StoredRecord::default();
                }
                Err(error) => {
                    let error = describe_cause(&error);
                    tracing::warn!(
                        error,
                        "ConfigMap {name} cannot be read; nothing is written until it can be"
                    );
                    // No event announces that the hub answers again.
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    /// Writes the record whenever the Pauses in force change, without end. `stored` is its last known content.
    pub(super) async fn follow(
        &self,
        mut snapshot: watch::Receiver<PauseSnapshot>,
        mut stored: StoredRecord,
    ) {
        loop {
            let wanted = recorded(&snapshot.borrow_and_update(), &self.brake, Timestamp::now());
            if wanted != stored.pauses {
                match self.write(&wanted, stored.resource_version.as_deref()).await {
                    Ok(resource_version) => stored = StoredRecord { pauses: wanted, resource_version },
                    // Another process of the operator wrote, or the record is gone, perhaps with its namespace.
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                        if status.code == 404 {
                            // No event announces that the namespace exists again.
                            tokio::time::sleep(RETRY_DELAY).await;
                        }
                        stored = self.read().await;
                        continue;
                    }
                    Err(kube::Error::Api(status)) if status.code == 403 => {
                        tracing::error!("the role lacks get and patch of ConfigMap {}", self.name);
                    }
                    Err(error) => {
                        let error = describe_cause(&error);
                        tracing::warn!(error, "ConfigMap {} cannot be written", self.name);
                        // No event announces that the hub answers again.
                        tokio::time::sleep(RETRY_DELAY).await;
                        continue;
                    }
                }
            }
            if snapshot.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Writes the record over this resourceVersion and returns the new one.
    async fn write(
        &self,
        pauses: &BTreeMap<String, RecordedPause>,
        resource_version: Option<&str>,
    ) -> kube::Result<Option<String>> {
        let Self { api, operator, name, .. } = self;
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "resourceVersion": resource_version },
            "data": { PAUSES: json!(pauses).to_string() },
        });
        // Has its own field manager, since the operator's other applies do not contain the record.
        let params = PatchParams::apply(&format!("{operator}-pauses")).force();
        Ok(api.patch(name, &params, &Patch::Apply(&body)).await?.resource_version())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn record_gives_back_the_pauses_in_force_but_the_brakes_own() {
        let pause = |name: &str, until: Option<i64>| {
            let mut pause = Pause::new(name, PauseSpec::default());
            pause.metadata.uid = Some(format!("uid-{name}"));
            pause.spec.until = until.map(|second| {
                serde_json::from_value(json!(Timestamp::from_second(second).unwrap())).unwrap()
            });
            (name.to_owned(), Arc::new(pause))
        };
        let pauses = [pause("a", None), pause("b", Some(10)), pause("c", Some(30)), pause("brake-x", None)];
        let snapshot = PauseSnapshot { pauses: pauses.into(), ..PauseSnapshot::default() };
        let record = recorded(&snapshot, "brake-x", Timestamp::from_second(20).unwrap());
        assert_eq!(record.keys().collect::<Vec<_>>(), ["a", "c"]);
        let text = json!(record).to_string();
        let back = restored(serde_json::from_str(&text).unwrap(), Timestamp::from_second(40).unwrap());
        assert_eq!(back.len(), 1);
        assert_eq!((back[0].name_any(), back[0].uid()), ("a".to_owned(), Some("uid-a".to_owned())));
    }
}
