//! Reports whether an object is current by kstatus's rules, which `helm --wait` uses. Implemented here again, so that
//! the operator's health check is not compared with itself.
//!
//! Source: <https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus>.

use serde_json::Value;

/// Reports whether `helm --wait` would stop waiting for the object.
pub(super) fn is_current(object: &Value) -> bool {
    let status = &object["status"];
    let generation = object["metadata"]["generation"].as_i64();
    let seen = status["observedGeneration"].as_i64();
    if seen.is_some_and(|seen| generation.is_some_and(|generation| seen < generation)) {
        return false;
    }
    let spec = |field: &str| number(&object["spec"][field]);
    let has = |field: &str| number(&status[field]).unwrap_or(0);
    let wanted = spec("replicas").unwrap_or(1);
    match object["kind"].as_str().unwrap_or_default() {
        "Deployment" => {
            seen.is_some()
                && has("updatedReplicas") >= wanted
                && has("replicas") <= has("updatedReplicas")
                && has("availableReplicas") >= has("updatedReplicas")
                && has("readyReplicas") >= wanted
        }
        "StatefulSet" => {
            seen.is_some()
                && has("replicas") >= wanted
                && has("readyReplicas") >= wanted
                && status["currentRevision"] == status["updateRevision"]
        }
        "ReplicaSet" => {
            seen.is_some() && has("readyReplicas") >= wanted && has("availableReplicas") >= wanted
        }
        "DaemonSet" => {
            let wanted = has("desiredNumberScheduled");
            seen.is_some()
                && has("updatedNumberScheduled") >= wanted
                && has("numberAvailable") >= wanted
                && has("numberReady") >= wanted
        }
        "PodDisruptionBudget" => seen.is_some() && has("currentHealthy") >= has("desiredHealthy"),
        "PersistentVolumeClaim" => status["phase"] == "Bound",
        "Pod" => {
            matches!(status["phase"].as_str(), Some("Succeeded")) || condition(status, "Ready") == Some(true)
        }
        "Job" => status["startTime"].is_string() && condition(status, "Failed") != Some(true),
        "Service" => object["spec"]["type"] != "LoadBalancer" || object["spec"]["clusterIP"].is_string(),
        "CustomResourceDefinition" => condition(status, "Established") == Some(true),
        _ => condition(status, "Ready") != Some(false) && condition(status, "Reconciling") != Some(true),
    }
}

fn number(value: &Value) -> Option<i64> {
    value.as_i64()
}

/// Returns whether the condition is True; `None` if the object does not have it.
fn condition(status: &Value, type_: &str) -> Option<bool> {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.find(|one| one["type"] == type_).map(|one| one["status"] == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollout_is_current_when_no_old_replica_is_left() {
        let deployment = |status: Value| json!({"kind": "Deployment", "metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status});
        let whole = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
            "availableReplicas": 2});
        assert!(is_current(&deployment(whole.clone())));
        for (field, value) in [("observedGeneration", 1), ("replicas", 3), ("availableReplicas", 1)] {
            let mut status = whole.clone();
            status[field] = json!(value);
            assert!(!is_current(&deployment(status)), "{field}");
        }
        assert!(!is_current(&deployment(json!({}))));
    }

    #[test]
    fn other_kinds_are_current_unless_their_ready_is_false() {
        let object = |status: &str| json!({"kind": "Certificate", "status": {"conditions": [{"type": "Ready", "status": status}]}});
        assert!(is_current(&object("True")));
        assert!(!is_current(&object("False")));
        assert!(is_current(&json!({"kind": "ConfigMap"})));
        assert!(!is_current(&json!({"kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}})));
    }
}
