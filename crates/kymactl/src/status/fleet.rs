//! What Kymas say about their clusters' modules.

use kube::ResourceExt as _;
use kyma_api::{Kyma, State};
use serde::Serialize;

/// One module on one cluster; `module` is empty for a cluster without modules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    pub(crate) namespace: String,
    pub(crate) cluster: String,
    pub(crate) module: String,
    pub(crate) version: String,
    pub(crate) channel: String,
    pub(crate) state: &'static str,
    pub(crate) message: String,
}

impl Row {
    /// The row in words, for a log.
    pub(crate) fn line(&self) -> String {
        let subject = format!("{} {} {}", self.cluster, self.module, self.version);
        let subject = subject.split_whitespace().collect::<Vec<_>>().join(" ");
        let state = if self.state.is_empty() { "Unknown" } else { self.state };
        if self.message.is_empty() || state == State::Ready.as_str() {
            format!("{subject}: {state}")
        } else {
            format!("{subject}: {state}: {}", self.message)
        }
    }
}

/// All rows, in the order of the Kymas and of their modules' names.
pub(crate) fn rows<'a>(kymas: impl Iterator<Item = &'a Kyma>) -> Vec<Row> {
    kymas.flat_map(of_kyma).collect()
}

/// What is not Ready yet, in words; empty once everything is.
pub(crate) fn unsettled<'a>(kymas: impl Iterator<Item = &'a Kyma>) -> Vec<String> {
    kymas.flat_map(open_of_kyma).collect()
}

fn of_kyma(kyma: &Kyma) -> Vec<Row> {
    let status = kyma.status.clone().unwrap_or_default();
    let row = |module: &str, state: State| Row {
        namespace: kyma.namespace().unwrap_or_default(),
        cluster: kyma.name_any(),
        module: module.to_owned(),
        version: String::new(),
        channel: String::new(),
        state: state.as_str(),
        message: String::new(),
    };
    let mut rows: Vec<Row> = status
        .modules
        .unwrap_or_default()
        .into_iter()
        .map(|module| Row {
            version: module.version.unwrap_or_default(),
            channel: module.channel.unwrap_or_default(),
            message: module.message.unwrap_or_default(),
            ..row(&module.name, module.state)
        })
        .collect();
    // Wished on the hub, and the operator has not said anything yet.
    for module in kyma.spec.modules.iter().flatten() {
        if !rows.iter().any(|row| row.module == module.name) {
            rows.push(row(&module.name, State::Unset));
        }
    }
    rows.sort_by(|a, b| a.module.cmp(&b.module));
    if rows.is_empty() {
        let message = status.last_operation.map(|operation| operation.operation).unwrap_or_default();
        rows.push(Row { message, ..row("", status.state.unwrap_or_default()) });
    }
    rows
}

fn open_of_kyma(kyma: &Kyma) -> Vec<String> {
    let done = |state: &str| [State::Ready.as_str(), State::Unmanaged.as_str()].contains(&state);
    let mut open: Vec<String> = of_kyma(kyma).iter().filter(|row| !done(row.state)).map(Row::line).collect();
    let status = kyma.status.clone().unwrap_or_default();
    let state = status.state.unwrap_or_default();
    if open.is_empty() && (!done(state.as_str()) || is_outdated(kyma)) {
        let operation = status.last_operation.map(|operation| operation.operation).unwrap_or_default();
        open.push(format!("{}: {state} {operation}", kyma.name_any()).trim_end().to_owned());
    }
    open
}

/// Whether the status was written for an older spec.
fn is_outdated(kyma: &Kyma) -> bool {
    let generation = kyma.metadata.generation;
    let conditions = kyma.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let seen = conditions
        .filter(|one| one.type_ == kyma_api::condition::types::MODULES)
        .find_map(|one| one.observed_generation);
    kyma.metadata.deletion_timestamp.is_some() || seen.is_some_and(|seen| Some(seen) < generation)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn kyma(generation: i64, modules: &Value, status: &Value) -> Kyma {
        let kyma = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2",
            "kind": "Kyma",
            "metadata": {"name": "one", "namespace": "kcp-system", "generation": generation},
            "spec": {"channel": "regular", "modules": modules},
            "status": status,
        });
        serde_json::from_value(kyma).unwrap()
    }

    fn open(kyma: &Kyma) -> Vec<String> {
        unsettled(std::iter::once(kyma))
    }

    #[test]
    fn a_kyma_is_settled_when_it_and_all_modules_are_ready() {
        let ready =
            json!({"state": "Ready", "modules": [{"name": "keda", "state": "Ready", "version": "1.0.0"}]});
        let wished = json!([{"name": "keda"}]);
        assert!(open(&kyma(1, &wished, &ready)).is_empty());
        let warning =
            json!({"state": "Warning", "modules": [{"name": "keda", "state": "Warning", "message": "no"}]});
        assert_eq!(open(&kyma(1, &wished, &warning)), ["one keda: Warning: no"]);
    }

    #[test]
    fn a_module_without_a_status_is_open() {
        let ready = json!({"state": "Ready", "modules": []});
        assert_eq!(open(&kyma(1, &json!([{"name": "keda"}]), &ready)), ["one keda: Unknown"]);
    }

    #[test]
    fn a_status_of_an_older_spec_is_not_believed() {
        let status = |generation: i64| {
            json!({"state": "Ready", "conditions": [{
                "type": "Modules", "status": "True", "reason": "Ready", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation,
            }]})
        };
        assert!(open(&kyma(2, &json!([]), &status(2))).is_empty());
        assert_eq!(open(&kyma(2, &json!([]), &status(1))), ["one: Ready"]);
    }

    #[test]
    fn a_cluster_without_modules_is_a_row_too() {
        let rows = rows(std::iter::once(&kyma(1, &json!([]), &json!({"state": "Ready"}))));
        assert_eq!((rows.len(), rows[0].state, rows[0].module.as_str()), (1, "Ready", ""));
    }
}
