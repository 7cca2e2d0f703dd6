//! State of modules by the status of their Kymas.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use kyma_api::{
    Kyma, State,
    condition::{self, types},
};
use serde::Serialize;

/// State of a module or cluster if it is unknown.
const UNKNOWN: &str = "Unknown";

/// One module on one cluster. A row without a module is about the cluster: it has no modules, or it is not Ready
/// although its modules are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) namespace: String,
    pub(crate) cluster: String,
    pub(crate) module: String,
    pub(crate) version: String,
    pub(crate) channel: String,
    pub(crate) state: &'static str,
    pub(crate) message: String,
    /// State of the Kyma.
    pub(crate) cluster_state: &'static str,
}

impl Row {
    /// Formats the row for a log.
    pub(crate) fn line(&self) -> String {
        let subject = format!("{} {} {}", self.cluster, self.module, self.version);
        let subject = subject.split_whitespace().collect::<Vec<_>>().join(" ");
        if self.message.is_empty() || self.state == State::Ready.as_str() {
            format!("{subject}: {}", self.state)
        } else {
            format!("{subject}: {}: {}", self.state, self.message)
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        [State::Ready.as_str(), State::Unmanaged.as_str()].contains(&self.state)
    }
}

/// Returns all rows in the order of the Kymas and of their modules' names.
pub(crate) fn rows<'a>(kymas: impl Iterator<Item = &'a Kyma>) -> Vec<Row> {
    kymas.flat_map(of_kyma).collect()
}

/// Returns the modules that are not Ready, as text; empty once everything is Ready.
pub(crate) fn list_unready_modules<'a>(kymas: impl Iterator<Item = &'a Kyma>) -> Vec<String> {
    kymas
        .flat_map(|kyma| of_kyma(kyma).into_iter().filter(|row| !row.is_settled()))
        .map(|row| row.line())
        .collect()
}

fn of_kyma(kyma: &Kyma) -> Vec<Row> {
    let (cluster_state, why) = cluster(kyma);
    let row = |module: &str, state: &'static str| Row {
        namespace: kyma.namespace().unwrap_or_default(),
        cluster: kyma.name_any(),
        module: module.to_owned(),
        version: String::new(),
        channel: String::new(),
        state,
        message: String::new(),
        cluster_state,
    };
    let unreachable = unreachable(kyma);
    let modules = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
    let mut rows: Vec<Row> = modules
        .map(|module| Row {
            version: module.version.clone().unwrap_or_default(),
            channel: module.channel.clone().unwrap_or_default(),
            message: module.message.clone().unwrap_or_default(),
            ..row(&module.name, word(module.state))
        })
        .collect();
    // Selected in the hub's spec, but not reported by the operator yet.
    for module in kyma.spec.modules.iter().flatten() {
        if !rows.iter().any(|row| row.module == module.name) {
            rows.push(row(&module.name, UNKNOWN));
        }
    }
    if let Some(why) = unreachable {
        // These states are from the last time that the target answered.
        for row in rows.iter_mut().filter(|row| row.is_settled()) {
            (row.state, row.message) = (UNKNOWN, why.clone());
        }
    }
    rows.sort_by(|a, b| a.module.cmp(&b.module));
    let own = Row { message: why, ..row("", cluster_state) };
    if rows.is_empty() || (!own.is_settled() && rows.iter().all(Row::is_settled)) {
        rows.insert(0, own);
    }
    rows
}

/// Returns the state of the cluster and the operator's message.
fn cluster(kyma: &Kyma) -> (&'static str, String) {
    let Some(status) = &kyma.status else { return (UNKNOWN, String::new()) };
    let state = word(status.state.unwrap_or_default());
    let said = status.last_operation.as_ref().map(|last| last.operation.clone()).unwrap_or_default();
    if kyma.metadata.deletion_timestamp.is_some() {
        return (State::Deleting.as_str(), said);
    }
    if state != State::Ready.as_str() {
        return (state, said);
    }
    // The operator has not confirmed Ready for the present spec.
    if let Some(why) = unreachable(kyma).or_else(|| unconfirmed(kyma)) {
        return (UNKNOWN, why);
    }
    (state, said)
}

fn word(state: State) -> &'static str {
    if state == State::Unset { UNKNOWN } else { state.as_str() }
}

/// Returns the reason why states on the target are unknown: the operator cannot reach it.
fn unreachable(kyma: &Kyma) -> Option<String> {
    let reachable = condition(kyma, types::TARGET_REACHABLE).filter(|found| found.status != "True")?;
    Some(format!("{}: {}", reachable.reason, reachable.message))
}

/// Returns the reason why Ready does not apply to the present Kyma: the status is of an older spec, or the operator
/// is halted.
fn unconfirmed(kyma: &Kyma) -> Option<String> {
    let generation = kyma.metadata.generation.unwrap_or_default();
    let observed = condition(kyma, types::MODULES).and_then(|modules| modules.observed_generation);
    if let Some(observed) = observed.filter(|observed| *observed < generation) {
        return Some(format!("the status is of generation {observed}, the spec of generation {generation}"));
    }
    let ready = condition(kyma, types::READY).filter(|ready| ready.status != "True")?;
    Some(format!("{}: {}", ready.reason, ready.message))
}

fn condition<'a>(kyma: &'a Kyma, type_: &str) -> Option<&'a Condition> {
    let conditions = kyma.status.as_ref()?.conditions.as_deref()?;
    condition::get(conditions, type_)
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
        list_unready_modules(std::iter::once(kyma))
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
        assert_eq!(
            open(&kyma(2, &json!([]), &status(1))),
            ["one: Unknown: the status is of generation 1, the spec of generation 2"]
        );
    }

    fn condition(type_: &str, status: &str, reason: &str) -> Value {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "no answer",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        })
    }

    #[test]
    fn nothing_on_a_target_that_does_not_answer_is_shown_ready() {
        let modules = json!([
            {"name": "keda", "state": "Ready", "version": "1.0.0"},
            {"name": "nats", "state": "Error", "message": "broken"},
        ]);
        // For any state of the Kyma.
        for state in ["Error", "Ready", "Processing", ""] {
            let unreachable = condition("TargetReachable", "False", "TargetUnreachable");
            let status = json!({"state": state, "modules": modules, "conditions": [unreachable]});
            let kyma = kyma(1, &json!([{"name": "keda"}]), &status);
            let rows = rows(std::iter::once(&kyma));
            assert!(rows.iter().all(|row| row.state != "Ready" && row.cluster_state != "Ready"), "{rows:?}");
            let keda = rows.iter().find(|row| row.module == "keda").unwrap();
            assert_eq!((keda.state, keda.message.as_str()), ("Unknown", "TargetUnreachable: no answer"));
            let nats = rows.iter().find(|row| row.module == "nats").unwrap();
            assert_eq!((nats.state, nats.message.as_str()), ("Error", "broken"));
        }
    }

    #[test]
    fn a_state_that_no_module_explains_is_a_row_of_the_cluster() {
        let modules = json!([{"name": "keda", "state": "Ready", "version": "1.0.0"}]);
        let status = json!({"state": "Warning", "modules": modules, "lastOperation": {
            "operation": "the pull secret is missing", "lastUpdateTime": null,
        }});
        let kyma = kyma(1, &json!([{"name": "keda"}]), &status);
        assert_eq!(open(&kyma), ["one: Warning: the pull secret is missing"]);
        let rows = rows(std::iter::once(&kyma));
        assert_eq!(rows.iter().map(|row| row.module.as_str()).collect::<Vec<_>>(), ["", "keda"]);
    }

    #[test]
    fn a_kyma_that_no_operator_looks_at_now_is_not_ready() {
        let modules = json!([{"name": "keda", "state": "Ready", "version": "1.0.0"}]);
        let paused = condition("Ready", "Unknown", "Paused");
        let status = json!({"state": "Ready", "modules": modules, "conditions": [paused]});
        assert_eq!(open(&kyma(1, &json!([]), &status)), ["one: Unknown: Paused: no answer"]);
        assert_eq!(open(&kyma(1, &json!([]), &Value::Null)), ["one: Unknown"]);
        let mut going = kyma(1, &json!([]), &json!({"state": "Ready"}));
        going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).ok();
        assert_eq!(open(&going), ["one: Deleting"]);
    }

    #[test]
    fn a_cluster_without_modules_is_a_row_too() {
        let rows = rows(std::iter::once(&kyma(1, &json!([]), &json!({"state": "Ready"}))));
        assert_eq!((rows.len(), rows[0].state, rows[0].module.as_str()), (1, "Ready", ""));
    }
}
