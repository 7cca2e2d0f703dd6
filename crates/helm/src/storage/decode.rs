//! Reads a record of a release. It comes from a target, so its content is not trusted.

use std::io::Read as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use kyma_object_set::{Limits, ObjectSet, ParseError};
use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

/// Maximum size of a stored record in bytes: etcd accepts little more.
const MAX_STORED_BYTES: usize = 2 << 20;
/// Maximum size of a decompressed record in bytes.
const MAX_DECOMPRESSED_BYTES: u64 = 16 << 20;
/// First bytes of a compressed record; Helm 2.7 did not compress records.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 0x08];

/// A release that Helm, or a system with Helm inside, installed.
#[derive(Clone)]
pub struct HelmRelease {
    /// The revision.
    pub revision: i64,
    /// Name and version of the chart.
    pub chart: (String, String),
    /// The user's values.
    pub values: Map<String, Value>,
    /// The installed objects, without hooks.
    pub objects: ObjectSet,
}

impl std::fmt::Debug for HelmRelease {
    // Values and objects hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "HelmRelease(revision {} of {:?}, {} objects)",
            self.revision,
            self.chart,
            self.objects.len()
        )
    }
}

/// Why a record cannot be read. Messages contain none of its content.
#[derive(Debug, Error)]
pub enum StorageError {
    /// The Secret lacks the key `release`.
    #[error("it has no key release")]
    NoRelease,
    /// The record exceeds the size limit.
    #[error("it is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// The record is not valid base64.
    #[error("it is not base64")]
    Base64,
    /// The record is not valid gzip.
    #[error("it cannot be decompressed")]
    Gzip,
    /// The record is not the JSON of a release.
    #[error("it is not a release in JSON (line {line}, column {column})")]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// The record belongs to another release or revision than its name says.
    #[error("it is the record of another release")]
    OfAnother,
    /// The manifest in the record is not a list of objects.
    #[error("its manifest cannot be read: {0}")]
    Manifest(#[from] ParseError),
}

#[derive(Deserialize)]
struct Release {
    name: String,
    namespace: String,
    version: i64,
    chart: Option<Chart>,
    config: Option<Map<String, Value>>,
    #[serde(default)]
    manifest: String,
}

#[derive(Deserialize)]
struct Chart {
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    version: String,
}

/// Decodes the content of the key `release`, which must belong to this release.
pub fn decode(
    stored: &[u8],
    name: &str,
    namespace: &str,
    revision: i64,
) -> Result<HelmRelease, StorageError> {
    let plain = unpacked(stored)?;
    // serde would read a list as the fields in their order.
    if !plain.trim_ascii_start().starts_with(b"{") {
        return Err(StorageError::Json { line: 1, column: 1 });
    }
    let release: Release = serde_json::from_slice(&plain)
        .map_err(|error| StorageError::Json { line: error.line(), column: error.column() })?;
    if (release.name.as_str(), release.namespace.as_str(), release.version) != (name, namespace, revision) {
        return Err(StorageError::OfAnother);
    }
    let chart = release.chart.and_then(|chart| chart.metadata);
    Ok(HelmRelease {
        revision,
        chart: chart.map(|chart| (chart.name, chart.version)).unwrap_or_default(),
        values: release.config.unwrap_or_default(),
        objects: ObjectSet::parse(&release.manifest, &Limits::default())?,
    })
}

/// Returns the JSON of a record.
pub(super) fn unpacked(stored: &[u8]) -> Result<Vec<u8>, StorageError> {
    if stored.len() > MAX_STORED_BYTES {
        return Err(StorageError::TooLarge { limit: MAX_STORED_BYTES as u64 });
    }
    let packed = BASE64_STANDARD.decode(stored).map_err(|_| StorageError::Base64)?;
    if !packed.starts_with(&GZIP_MAGIC) {
        return Ok(packed);
    }
    let mut plain = Vec::new();
    let read = GzDecoder::new(packed.as_slice()).take(MAX_DECOMPRESSED_BYTES + 1).read_to_end(&mut plain);
    read.map_err(|_| StorageError::Gzip)?;
    if plain.len() as u64 > MAX_DECOMPRESSED_BYTES {
        return Err(StorageError::TooLarge { limit: MAX_DECOMPRESSED_BYTES });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use serde_json::json;

    use super::*;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(plain).unwrap();
        gzip.finish().unwrap()
    }

    fn release() -> Value {
        let map =
            "---\n# Source: shop/templates/a.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";
        json!({
            "name": "shop", "namespace": "store", "version": 3, "info": {"status": "deployed"}, "manifest": map,
            "chart": {"metadata": {"name": "shop", "version": "1.4.2"}, "templates": [{"name": "a", "data": "e30="}]},
            "config": {"replicas": 2}, "hooks": [{"name": "h", "manifest": "kind: Job"}],
        })
    }

    fn read(stored: &[u8]) -> Result<HelmRelease, StorageError> {
        decode(stored, "shop", "store", 3)
    }

    fn stored(release: &Value) -> Vec<u8> {
        BASE64_STANDARD.encode(gzip(release.to_string().as_bytes())).into_bytes()
    }

    #[test]
    fn a_record_tells_what_was_installed_from_what() {
        for stored in [stored(&release()), BASE64_STANDARD.encode(release().to_string()).into_bytes()] {
            let existing = read(&stored).unwrap();
            assert_eq!((existing.revision, existing.chart.1.as_str()), (3, "1.4.2"));
            assert_eq!(Value::Object(existing.values), json!({"replicas": 2}));
            let names: Vec<&str> =
                existing.objects.objects().iter().map(kyma_object_set::Object::name).collect();
            assert_eq!(names, ["a"], "hooks are no part of it");
        }
        let mut bare = release();
        for field in ["chart", "config", "hooks", "manifest"] {
            bare.as_object_mut().unwrap().remove(field);
        }
        assert!(read(&stored(&bare)).unwrap().objects.is_empty());
    }

    #[test]
    fn an_invalid_release_record_is_refused_with_the_cause() {
        let text = |stored: &[u8]| read(stored).unwrap_err().to_string();
        assert_eq!(text(b"not base64!"), "it is not base64");
        let mut cut = gzip(release().to_string().as_bytes());
        cut.truncate(40);
        assert_eq!(text(BASE64_STANDARD.encode(cut).as_bytes()), "it cannot be decompressed");
        assert_eq!(
            text(&stored(&json!({"name": "shop"}))),
            "it is not a release in JSON (line 1, column 15)"
        );
        assert_eq!(text(&stored(&json!([]))), "it is not a release in JSON (line 1, column 1)");
        for (field, value) in [("name", json!("other")), ("namespace", json!("x")), ("version", json!(4))] {
            let mut other = release();
            other[field] = value;
            assert_eq!(text(&stored(&other)), "it is the record of another release", "{field}");
        }
        let mut hostile = release();
        hostile["manifest"] = "kind: [hush".into();
        let said = text(&stored(&hostile));
        assert!(said.starts_with("its manifest cannot be read: ") && !said.contains("hush"), "{said}");
    }

    #[test]
    fn a_record_is_bounded_as_it_is_stored_and_unpacked() {
        assert!(matches!(read(&vec![b'A'; MAX_STORED_BYTES + 1]), Err(StorageError::TooLarge { .. })));
        let bomb =
            BASE64_STANDARD.encode(gzip(&vec![b' '; (MAX_DECOMPRESSED_BYTES + 1).try_into().unwrap()]));
        assert!(bomb.len() < MAX_STORED_BYTES);
        assert!(matches!(
            read(bomb.as_bytes()),
            Err(StorageError::TooLarge { limit: MAX_DECOMPRESSED_BYTES })
        ));
    }

    #[test]
    fn debug_output_contains_no_values_of_a_release() {
        let mut secret = release();
        secret["config"] = json!({"password": "hush"});
        assert!(!format!("{:?}", read(&stored(&secret)).unwrap()).contains("hush"));
    }
}
