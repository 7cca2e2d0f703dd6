//! The identity of a cluster, and its stored form with the former name of a field. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Identity of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", from = "StoredTargetIdentity")]
pub struct TargetIdentity {
    /// Uid of the cluster's kube-system Namespace at first contact.
    pub cluster_uid: String,
    /// Number of times that this Kyma adopted the cluster; also in the cluster's stamp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// Number of changes ordered for the cluster, with a random suffix, such as 12-x3f9; also in the cluster's
    /// stamp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing_generation: Option<String>,
    /// Whether `fencing_generation` was read from the deprecated field `turn`, the only one that is stored. Never
    /// written.
    #[serde(skip)]
    pub is_deprecated_turn: bool,
}

/// Identity of a cluster as stored. Both names of the fencing generation may be present, which an alias would refuse
/// as a duplicate field.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct StoredTargetIdentity {
    /// Uid of the cluster's kube-system Namespace at first contact. A cluster with another uid is neither changed
    /// nor cleaned up until a person confirms it.
    cluster_uid: String,
    /// Number of times that this Kyma adopted the cluster; also in the cluster's stamp.
    #[serde(default)]
    epoch: Option<i64>,
    /// Number of changes ordered for the cluster, with a random suffix, such as 12-x3f9; also in the cluster's
    /// stamp. If the stamp is ahead, this hub is an old copy or a restored backup, and nothing is written or
    /// deleted there until a person confirms it.
    #[serde(default)]
    fencing_generation: Option<String>,
    /// Deprecated: use fencingGeneration.
    #[serde(default)]
    turn: Option<String>,
}

impl From<StoredTargetIdentity> for TargetIdentity {
    fn from(stored: StoredTargetIdentity) -> Self {
        let is_deprecated_turn = stored.fencing_generation.is_none() && stored.turn.is_some();
        Self {
            cluster_uid: stored.cluster_uid,
            epoch: stored.epoch,
            fencing_generation: stored.fencing_generation.or(stored.turn),
            is_deprecated_turn,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::schema::crds;

    fn read(stored: Value) -> TargetIdentity {
        serde_json::from_value(stored).unwrap()
    }

    fn identity(generation: Option<&str>, is_deprecated_turn: bool) -> TargetIdentity {
        let fencing_generation = generation.map(str::to_owned);
        TargetIdentity { cluster_uid: "u".into(), epoch: Some(2), fencing_generation, is_deprecated_turn }
    }

    #[test]
    fn the_deprecated_turn_counts_only_without_a_fencing_generation() {
        let none = read(json!({ "clusterUid": "u", "epoch": 2 }));
        assert_eq!(none, identity(None, false));
        let new = read(json!({ "clusterUid": "u", "epoch": 2, "fencingGeneration": "7-b" }));
        assert_eq!(new, identity(Some("7-b"), false));
        let old = read(json!({ "clusterUid": "u", "epoch": 2, "turn": "5-a" }));
        assert_eq!(old, identity(Some("5-a"), true));
        let null = read(json!({ "clusterUid": "u", "epoch": 2, "fencingGeneration": null, "turn": "5-a" }));
        assert_eq!(null, old);
        for turn in ["5-a", "7-b", "9-c"] {
            let both = json!({ "clusterUid": "u", "epoch": 2, "turn": turn, "fencingGeneration": "7-b" });
            assert_eq!(read(both), new, "{turn}");
        }
    }

    #[test]
    fn only_the_fencing_generation_is_written() {
        let old = read(json!({ "clusterUid": "u", "turn": "5-a" }));
        assert_eq!(json!(old), json!({ "clusterUid": "u", "fencingGeneration": "5-a" }));
        assert_eq!(json!(read(json!({ "clusterUid": "u" }))), json!({ "clusterUid": "u" }));
    }

    #[test]
    fn the_schema_has_both_names() {
        let crd = crds::kyma();
        let served = crd.spec.versions.iter().find(|version| version.served).unwrap();
        let root = served.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).unwrap();
        let target = ["status", "target"]
            .into_iter()
            .fold(root, |schema, name| &schema.properties.as_ref().unwrap()[name]);
        let fields = target.properties.as_ref().unwrap();
        let names: Vec<&str> = fields.keys().map(String::as_str).collect();
        assert_eq!(names, ["clusterUid", "epoch", "fencingGeneration", "turn"]);
        assert_eq!(target.required.as_deref(), Some(["clusterUid".to_owned()].as_slice()));
        assert_eq!(fields["turn"].description.as_deref(), Some("Deprecated: use fencingGeneration."));
        for name in ["fencingGeneration", "turn"] {
            assert_eq!(fields[name].type_.as_deref(), Some("string"), "{name}");
        }
    }
}
