//! Writing a record.

use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use kyma_object_set::Object;
use serde_json::{Map, Value, json};

use super::decode::unpacked;
use super::{KEY, StorageError, TYPE, secret_name};
use crate::hooks::{Event, Hook};
use crate::release::Release;

/// Bytes that a Secret may hold.
pub(crate) const LIMIT: usize = 1 << 20;

/// Status of a revision, as Helm names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is what is installed.
    Deployed,
    /// A later one took its place.
    Superseded,
    /// It could not be applied as a whole.
    Failed,
}

impl Standing {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Deployed => "deployed",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
        }
    }
}

/// Content of a revision.
pub(crate) struct Revision<'a> {
    /// The release.
    pub release: &'a Release,
    /// The revision's number.
    pub number: i64,
    /// Name and version of the chart.
    pub chart: &'a (String, String),
    /// Version of what the chart brings, as it says.
    pub app_version: &'a str,
    /// The merged values.
    pub values: &'a Map<String, Value>,
    /// The objects as they are sent.
    pub objects: &'a [Object],
    /// The chart's hooks.
    pub hooks: &'a [Hook],
    /// Status.
    pub standing: Standing,
    /// Description for users.
    pub description: &'a str,
    /// When the release was installed first.
    pub first: Timestamp,
    /// When this revision was.
    pub now: Timestamp,
}

/// The Secret of a revision, without metadata that the target fills in; an error with its size where that is more than a
/// Secret may hold. Templates and default values of the chart are left out: what Helm needs to go back is the manifest.
pub(crate) fn encode(revision: &Revision<'_>) -> Result<Value, usize> {
    let Revision { release, number, chart, app_version, values, .. } = revision;
    let record = json!({
        "name": release.name,
        "namespace": release.namespace,
        "version": number,
        "info": {
            "first_deployed": revision.first.to_string(),
            "last_deployed": revision.now.to_string(),
            "deleted": "",
            "description": revision.description,
            "status": revision.standing.as_str(),
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
    if stored.len() > LIMIT {
        return Err(stored.len());
    }
    let labels = labels(&release.name, *number, revision.standing, revision.now);
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(&release.name, *number), "namespace": release.namespace, "labels": labels},
        "type": TYPE,
        "data": {KEY: BASE64_STANDARD.encode(stored)},
    }))
}

fn labels(name: &str, number: i64, standing: Standing, now: Timestamp) -> Value {
    json!({
        "owner": "helm",
        "name": name,
        "status": standing.as_str(),
        "version": number.to_string(),
        "createdAt": now.as_second().to_string(),
    })
}

/// The merge patch by which a record says that another revision took its place.
pub(crate) fn superseded(stored: &[u8], now: Timestamp) -> Result<Value, StorageError> {
    let mut record = parsed(stored)?;
    let status = Standing::Superseded.as_str();
    if let Some(info) = record.get_mut("info").and_then(Value::as_object_mut) {
        info.insert("status".to_owned(), status.into());
    }
    let labels = json!({"status": status, "modifiedAt": now.as_second().to_string()});
    Ok(json!({"metadata": {"labels": labels}, "data": {KEY: BASE64_STANDARD.encode(self::stored(&record))}}))
}

/// When the release of a record was installed first.
pub(crate) fn first_deployed(stored: &[u8]) -> Option<Timestamp> {
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
    // Memory takes everything.
    let packed = gzip.write_all(record.to_string().as_bytes()).and_then(|()| gzip.finish());
    BASE64_STANDARD.encode(packed.unwrap_or_default()).into_bytes()
}

fn document(object: &Object) -> String {
    format!("---\n{}\n", yaml(object))
}

/// YAML where it can be had; JSON is YAML too.
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

    fn encoded(objects: &[Object], standing: Standing) -> Result<Value, usize> {
        let spec = serde_json::from_value(json!({"source": {}, "release": {"namespace": "store"}})).unwrap();
        let values = json!({"level": "high"}).as_object().unwrap().clone();
        encode(&Revision {
            release: &crate::release::of("shop", &spec, None, "x"),
            number: 3,
            chart: &("shop".to_owned(), "1.4.2".to_owned()),
            app_version: "7",
            values: &values,
            objects,
            hooks: &[],
            standing,
            description: "Upgrade complete",
            first: Timestamp::UNIX_EPOCH,
            now: Timestamp::UNIX_EPOCH,
        })
    }

    fn stored_in(secret: &Value) -> Vec<u8> {
        BASE64_STANDARD.decode(secret["data"]["release"].as_str().unwrap()).unwrap()
    }

    #[test]
    fn what_is_written_is_read_as_the_same_release() {
        let secret = encoded(&[object("a", "x: y"), object("b", "---\n")], Standing::Deployed).unwrap();
        assert_eq!(secret["metadata"]["name"], "sh.helm.release.v1.shop.v3");
        let labels =
            json!({"owner": "helm", "name": "shop", "status": "deployed", "version": "3", "createdAt": "0"});
        assert_eq!(secret["metadata"]["labels"], labels);
        let former = decode(&stored_in(&secret), "shop", "store", 3).unwrap();
        assert_eq!(former.objects.objects(), [object("a", "x: y"), object("b", "---\n")]);
        assert_eq!((former.chart.1.as_str(), &former.values["level"]), ("1.4.2", &json!("high")));
        assert_eq!(first_deployed(&stored_in(&secret)), Some(Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn a_later_revision_changes_the_status_of_a_record_and_nothing_else() {
        let secret = encoded(&[object("a", "x")], Standing::Deployed).unwrap();
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
        assert!(encoded(&[object("a", &noise)], Standing::Deployed).unwrap_err() > LIMIT);
    }
}
