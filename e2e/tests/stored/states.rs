//! The recorded components, one in each state. The name of a component is also that of its release and namespace.

use anyhow::{Context, Result, ensure};
use kyma_api::HelmComponent;
use serde_json::{Value, json};

use crate::charts;
use crate::clusters::ACCESS;

/// Ready, with a release to which it can be rolled back.
pub(crate) const ROLLBACK_TARGET: &str = "rollback-target";
/// The desired revision failed and was rolled back.
pub(crate) const FAILED_REVISION: &str = "failed-revision";
/// An upgrade whose objects are applied in part: the target does not serve the kind of one.
pub(crate) const UPGRADING: &str = "upgrading";
/// Ready, with a stored render, since its chart has random values.
pub(crate) const STORED_RENDER: &str = "stored-render";
/// Ready, with a chart that has delete hooks.
pub(crate) const DELETE_HOOKS: &str = "delete-hooks";
/// An upgrade whose hook is running.
pub(crate) const RUNNING_HOOK: &str = "running-hook";
/// Ready, adopted from Helm.
pub(crate) const ADOPTED: &str = "adopted";
/// Ready, with Helm's records on the target.
pub(crate) const HELM_HISTORY: &str = "helm-history";
/// Ready, with a version that was resolved from a range.
pub(crate) const RESOLVED_RANGE: &str = "resolved-range";
/// Ready, with a requested test that is running.
pub(crate) const RUNNING_TEST: &str = "running-test";

/// Value of the annotation that requested the running test.
pub(crate) const TEST_REQUEST: &str = "2026-01-01T00:00:00Z";

/// A component and its recorded state.
pub(crate) struct State {
    pub(crate) name: &'static str,
    pub(crate) chart: &'static str,
    /// Version with which the component is installed.
    pub(crate) version: &'static str,
    /// JSON pointer into the status. Without a value there, the component is not in this state.
    recorded: &'static str,
}

/// All recorded components.
pub(crate) static STATES: [State; 10] = [
    state(ROLLBACK_TARGET, "web", "1.0.0", "/rollbackTarget"),
    state(FAILED_REVISION, "web", "1.0.0", "/failedRevision"),
    state(UPGRADING, "gradual", "1.0.0", "/pruneBaseline"),
    state(STORED_RENDER, "random", "1.0.0", "/digests/storedRender"),
    state(DELETE_HOOKS, "deletion", "1.0.0", "/hooks/hasDeleteHooks"),
    state(RUNNING_HOOK, "migration", "1.0.0", "/hooks/running"),
    state(ADOPTED, "plain", "1.0.0", "/adopted"),
    state(HELM_HISTORY, "plain", "1.0.0", "/releaseRecord"),
    state(RESOLVED_RANGE, "ranged", "1.x", "/resolved"),
    state(RUNNING_TEST, "tested", "1.0.0", "/tests/running"),
];

const fn state(
    name: &'static str,
    chart: &'static str,
    version: &'static str,
    recorded: &'static str,
) -> State {
    State { name, chart, version, recorded }
}

impl State {
    /// Reports whether the status of the component shows the state.
    pub(crate) fn is_recorded_in(&self, component: &HelmComponent) -> bool {
        let status = json!(component.status);
        status.pointer(self.recorded).is_some_and(|value| !value.is_null())
    }

    /// Fails unless the status of the component shows the state.
    pub(crate) fn check(&self, component: &HelmComponent) -> Result<()> {
        let (name, status) = (self.name, &component.status);
        ensure!(self.is_recorded_in(component), "{name} has no {}: {status:#?}", self.recorded);
        Ok(())
    }
}

/// Returns the state with this name.
pub(crate) fn find(name: &str) -> Result<&'static State> {
    STATES.iter().find(|state| state.name == name).with_context(|| format!("no state {name}"))
}

/// Returns the spec of the component with this version of its chart and this value of `level`.
pub(crate) fn spec(name: &str, version: &str, level: &str) -> Result<Value> {
    let chart = find(name)?.chart;
    let mut spec = json!({
        "target": {"kubeconfigSecretRef": {"name": ACCESS, "key": "config"}},
        "source": {"chart": {"url": charts::url(), "name": chart, "version": version}},
        "release": {"name": name, "namespace": name},
        "values": {"level": level},
        "deletionPolicy": "Delete",
    });
    match name {
        ROLLBACK_TARGET | FAILED_REVISION => {
            spec["rollback"] = json!({"mode": "OnFailure"});
            spec["timeouts"] = json!({"healthSeconds": 5});
        }
        // A slow machine must not reach the deadline of a hook that waits for the test.
        RUNNING_HOOK | RUNNING_TEST => spec["timeouts"] = json!({"hookSeconds": 3600}),
        HELM_HISTORY => spec["release"]["history"] = json!({"max": 2}),
        _ => {}
    }
    Ok(spec)
}
