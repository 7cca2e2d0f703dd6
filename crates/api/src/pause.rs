//! Pause: stops the operators for some or all Kymas.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::schemas;

/// Scope, selection and end of the pause.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1alpha1",
    kind = "Pause",
    plural = "pauses",
    namespaced,
    status = "PauseStatus",
    derive = "PartialEq",
    doc = "Pause stops the operators within seconds, for some or all Kymas of its namespace, until it is deleted or ends.",
    printcolumn(name = "Scope", type_ = "string", json_path = ".spec.scope"),
    printcolumn(name = "Until", type_ = "string", json_path = ".spec.until"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".spec.reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schemas::keep_field_descriptions)]
pub struct PauseSpec {
    /// Stopped actions: All stops every write except the operators' own status, Deletes stops removals, Upgrades
    /// stops changes of installed versions.
    #[serde(default)]
    pub scope: PauseScope,
    /// Selects Kymas and their components by the Kymas' labels. Absent or empty: all, and components without a
    /// Kyma.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::label_selector")]
    pub selector: Option<LabelSelector>,
    /// Names of operators to stop, such as helm-component. Absent or empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub operators: Vec<String>,
    /// Reason of the pause, for other people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// End of the pause: a date and time, or a date, which means 00:00 UTC. Absent: until the Pause is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "schemas::moment")]
    #[schemars(schema_with = "schemas::date_or_date_time")]
    pub until: Option<Time>,
}

/// Actions that a Pause stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PauseScope {
    /// Stops every write except the operators' own status.
    #[default]
    All,
    /// Stops removals.
    Deletes,
    /// Stops changes of installed versions.
    Upgrades,
}

impl PauseScope {
    /// Returns the value in the spec.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "All",
            Self::Deletes => "Deletes",
            Self::Upgrades => "Upgrades",
        }
    }
}

/// Observed state of the Pause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schemas::keep_field_descriptions)]
pub struct PauseStatus {
    /// Conditions of the Pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_with_any_end_that_an_api_server_accepts_is_read() {
        let end = |until: serde_json::Value| {
            let spec = serde_json::json!({"scope": "All", "until": until});
            let spec: PauseSpec = serde_json::from_value(spec).unwrap();
            spec.until.unwrap().0.to_string()
        };
        assert_eq!(end("2026-01-01T00:00:00Z".into()), "2026-01-01T00:00:00Z");
        assert_eq!(end("2026-01-01T00:00:00+14:00".into()), "2025-12-31T10:00:00Z");
        assert_eq!(end("2026-01-01".into()), "2026-01-01T00:00:00Z", "the beginning of the day");
        for late in ["9999-12-31T23:59:59Z", "9999-12-31T00:00:00Z", "2026-01-01T00:00:00"] {
            assert!(end(late.into()).starts_with("9999-12-30T"), "{late}");
        }
        assert!(end(serde_json::json!([])).starts_with("9999-12-30T"), "no date at all");
    }
}
