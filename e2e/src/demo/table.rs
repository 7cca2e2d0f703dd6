//! Table of cluster, module, version and state, read from the hub's Kymas.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use futures::TryStreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use kyma_api::Kyma;
use tokio::task::JoinHandle;

use super::{HUB_NAMESPACE, screen::Screen};
use crate::landscape::Landscape;

/// Follows the Kymas until stopped.
pub(super) struct Table {
    task: JoinHandle<()>,
}

/// (cluster, module) → (version, state)
type Rows = BTreeMap<(String, String), (String, String)>;

impl Table {
    pub(super) fn follow(landscape: &Landscape, screen: &Arc<Screen>) -> Result<Self> {
        let kymas: Api<Kyma> = Api::namespaced(landscape.hub().client()?, HUB_NAMESPACE);
        let screen = Arc::clone(screen);
        let task = tokio::spawn(async move {
            let mut rows = Rows::new();
            let mut events = std::pin::pin!(watcher(kymas, watcher::Config::default()).default_backoff());
            while let Ok(Some(event)) = events.try_next().await {
                for line in take(&mut rows, event) {
                    screen.change(&line);
                }
                screen.table(&render(&rows));
            }
        });
        Ok(Self { task })
    }

    pub(super) fn stop(&self) {
        self.task.abort();
    }
}

/// Applies an event and returns the changed rows.
fn take(rows: &mut Rows, event: watcher::Event<Kyma>) -> Vec<String> {
    match event {
        watcher::Event::Apply(kyma) | watcher::Event::InitApply(kyma) => update(rows, &kyma),
        watcher::Event::Delete(kyma) => {
            rows.retain(|(cluster, _), _| *cluster != kyma.name_any());
            vec![format!("{}: gone", kyma.name_any())]
        }
        watcher::Event::Init | watcher::Event::InitDone => Vec::new(),
    }
}

fn update(rows: &mut Rows, kyma: &Kyma) -> Vec<String> {
    let cluster = kyma.name_any();
    let modules = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
    let new: Rows = modules
        .map(|module| {
            let version = module.version.clone().unwrap_or_default();
            ((cluster.clone(), module.name.clone()), (version, module.state.to_string()))
        })
        .collect();
    let changed = new.iter().filter(|(key, value)| rows.get(*key) != Some(*value));
    let changed =
        changed.map(|((cluster, module), (version, state))| format!("{cluster} {module} {version} {state}"));
    let changed = changed.collect();
    rows.retain(|(other, _), _| *other != cluster);
    rows.extend(new);
    changed
}

fn render(rows: &Rows) -> String {
    let mut text = format!("\n  {:<12} {:<12} {:<10} {}", "CLUSTER", "MODULE", "VERSION", "STATE");
    for ((cluster, module), (version, state)) in rows {
        text.push_str(&format!("\n  {cluster:<12} {module:<12} {version:<10} {state}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kyma(state: &str) -> Kyma {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "one"}, "spec": {"channel": "regular"},
            "status": {"modules": [{"name": "lantern", "version": "1.0.0", "state": state}]}
        }))
        .unwrap()
    }

    #[test]
    fn only_changed_rows_are_printed() {
        let mut rows = Rows::new();
        assert_eq!(update(&mut rows, &kyma("Processing")), ["one lantern 1.0.0 Processing"]);
        assert!(update(&mut rows, &kyma("Processing")).is_empty());
        assert_eq!(update(&mut rows, &kyma("Ready")), ["one lantern 1.0.0 Ready"]);
        assert!(render(&rows).contains("one          lantern      1.0.0      Ready"));
    }
}
