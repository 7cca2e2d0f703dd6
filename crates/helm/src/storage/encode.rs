//! Writes a record of a release.

use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use kyma_object_set::Object;
use serde_json::{Map, Value, json};

use super::decode::{StorageError, unpacked};
use super::secret::{KEY, TYPE, secret_name};
use crate::hooks::{Event, Hook};

/// Maximum size of a Secret, in bytes.
const MAX_SECRET_BYTES: usize = 1 << 20;

/// Status of a revision, as Helm names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseStatus {
    /// The installed revision.
    Deployed,
    /// A later revision replaced it.
    Superseded,
    /// The revision could not be applied completely.
    Failed,
}

impl ReleaseStatus {
    /// Returns the status in the record and in its label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deployed => "deployed",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
        }
    }
}

/// Content of a revision.
pub struct Revision<'a> {
    /// Name of the release.
    pub name: &'a str,
    /// Namespace of the release, and of the Secret.
    pub namespace: &'a str,
    /// The revision's number.
    pub number: i64,
    /// Name and version of the chart.
    pub chart: &'a (String, String),
    /// Version of the application, as the chart states.
    pub app_version: &'a str,
    /// The merged values.
    pub values: &'a Map<String, Value>,
    /// The objects to apply.
    pub objects: &'a [Object],
    /// The chart's hooks.
    pub hooks: &'a [Hook],
    /// Status.
    pub status: ReleaseStatus,
    /// Description for users.
    pub description: &'a str,
    /// Time of the first installation of the release.
    pub first: Timestamp,
    /// Time of this revision.
    pub now: Timestamp,
}

/// Returns the Secret of a revision, without metadata that the target sets, or its size as an error if a Secret
/// cannot hold it. Templates and default values of the chart are left out: for a rollback, Helm only needs the
/// manifest.
pub fn encode(revision: &Revision<'_>) -> Result<Value, usize> {
    let Revision { name, namespace, number, chart, app_version, values, .. } = revision;
    let record = json!({
        "name": name,
        "namespace": namespace,
        "version": number,
        "info": {
            "first_deployed": revision.first.to_string(),
            "last_deployed": revision.now.to_string(),
            "deleted": "",
            "description": revision.description,
            "status": revision.status.as_str(),
        },
        "chart": {
            "metadata": {"name": chart.0, "version": chart.1, "appVersion": app_version, "apiVersion": "v2"},
            "lock": null, "templates": [], "values": {}, "schema": null, "files": null,
        },
        "config": values,
        "manifest": revision.objects.iter().map(document).collect::<String>(),
        "hooks": revision.hooks.iter().map(hook).collect::<Vec<_>>(),
        "apply_method": "ssa",
    });
    let stored = stored(&record);
    if stored.len() > MAX_SECRET_BYTES {
        return Err(stored.len());
    }
    let labels = labels(name, *number, revision.status, revision.now);
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(name, *number), "namespace": namespace, "labels": labels},
        "type": TYPE,
        "data": {KEY: BASE64_STANDARD.encode(stored)},
    }))
}

fn labels(name: &str, number: i64, status: ReleaseStatus, now: Timestamp) -> Value {
    json!({
        "owner": "helm",
        "name": name,
        "status": status.as_str(),
        "version": number.to_string(),
        "createdAt": now.as_second().to_string(),
    })
}

/// Returns the merge patch that marks a record as superseded by another revision.
pub fn superseded(stored: &[u8], now: Timestamp) -> Result<Value, StorageError> {
    let mut record = parsed(stored)?;
    let status = ReleaseStatus::Superseded.as_str();
    if let Some(info) = record.get_mut("info").and_then(Value::as_object_mut) {
        info.insert("status".to_owned(), status.into());
    }
    let labels = json!({"status": status, "modifiedAt": now.as_second().to_string()});
    Ok(json!({"metadata": {"labels": labels}, "data": {KEY: BASE64_STANDARD.encode(self::stored(&record))}}))
}

/// Returns the time of the first installation of a record's release.
pub fn first_deployed(stored: &[u8]) -> Option<Timestamp> {
    parsed(stored).ok()?.pointer("/info/first_deployed")?.as_str()?.parse().ok()
}

fn parsed(stored: &[u8]) -> Result<Value, StorageError> {
    let plain = unpacked(stored)?;
    serde_json::from_slice(&plain)
        .map_err(|error| StorageError::Json { line: error.line(), column: error.column() })
}

/// Returns the form in the Secret: compressed, in base64.
fn stored(record: &Value) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    // A write to memory cannot fail.
    let packed = gzip.write_all(record.to_string().as_bytes()).and_then(|()| gzip.finish());
    BASE64_STANDARD.encode(packed.unwrap_or_default()).into_bytes()
}

fn document(object: &Object) -> String {
    format!("---\n{}\n", yaml(object))
}

/// Returns the object as YAML, or as JSON if that fails: JSON is YAML too.
fn yaml(object: &Object) -> String {
    let body = Value::Object(object.body().clone());
    let text = serde_saphyr::to_string(&body).unwrap_or_else(|_| body.to_string());
    text.trim_end().to_owned()
}

fn hook(hook: &Hook) -> Value {
    json!({
        "name": hook.object.name(),
        "kind": hook.object.kind(),
        "path": "",
        "manifest": yaml(&hook.object),
        "events": hook.events().map(Event::as_str).collect::<Vec<_>>(),
        "weight": hook.weight(),
        "delete_policies": hook.policies(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::decode;
    use super::*;

    fn object(name: &str, value: &str) -> Object {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": value}});
        Object::from_value(body).unwrap()
    }

    fn encoded(objects: &[Object], status: ReleaseStatus) -> Result<Value, usize> {
        let values = json!({"level": "high"}).as_object().unwrap().clone();
        encode(&Revision {
            name: "shop",
            namespace: "store",
            number: 3,
            chart: &("shop".to_owned(), "1.4.2".to_owned()),
            app_version: "7",
            values: &values,
            objects,
            hooks: &[],
            status,
            description: "Upgrade complete",
            first: Timestamp::UNIX_EPOCH,
            now: Timestamp::UNIX_EPOCH,
        })
    }

    fn stored_in(secret: &Value) -> Vec<u8> {
        BASE64_STANDARD.decode(secret["data"]["release"].as_str().unwrap()).unwrap()
    }

    #[test]
    fn an_encoded_release_is_decoded_unchanged() {
        let secret = encoded(&[object("a", "x: y"), object("b", "---\n")], ReleaseStatus::Deployed).unwrap();
        assert_eq!(secret["metadata"]["name"], "sh.helm.release.v1.shop.v3");
        let labels =
            json!({"owner": "helm", "name": "shop", "status": "deployed", "version": "3", "createdAt": "0"});
        assert_eq!(secret["metadata"]["labels"], labels);
        let existing = decode(&stored_in(&secret), "shop", "store", 3).unwrap();
        assert_eq!(existing.objects.objects(), [object("a", "x: y"), object("b", "---\n")]);
        assert_eq!((existing.chart.1.as_str(), &existing.values["level"]), ("1.4.2", &json!("high")));
        assert_eq!(first_deployed(&stored_in(&secret)), Some(Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn later_revision_changes_only_the_status_of_a_record() {
        let secret = encoded(&[object("a", "x")], ReleaseStatus::Deployed).unwrap();
        let before = parsed(&stored_in(&secret)).unwrap();
        let patch = superseded(&stored_in(&secret), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(patch["metadata"]["labels"], json!({"status": "superseded", "modifiedAt": "0"}));
        let mut after = parsed(&stored_in(&patch)).unwrap();
        assert_eq!(after["info"]["status"], "superseded");
        after["info"]["status"] = "deployed".into();
        assert_eq!(after, before);
        assert!(superseded(b"hush!", Timestamp::UNIX_EPOCH).is_err());
    }

    #[test]
    fn more_than_a_secret_holds_is_not_written() {
        use std::fmt::Write as _;
        let mut noise = String::new();
        let mut seed = 1_u64;
        while noise.len() < 3 << 20 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            write!(noise, "{seed:x}").unwrap();
        }
        assert!(encoded(&[object("a", &noise)], ReleaseStatus::Deployed).unwrap_err() > MAX_SECRET_BYTES);
    }
}
