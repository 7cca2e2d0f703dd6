//! Raw keys of an etcd, copied to a file and into another etcd.
//!
//! An object that goes through an API server gets another uid, other managed fields and another resourceVersion. A
//! dump keeps all of them: it contains the bytes that the API server stored, and the revision of each key, which is
//! the object's resourceVersion.
//!
//! etcd accepts no revision from clients, but counts revisions: each put of a key adds one. A restore therefore puts
//! the keys in the order of their revisions, and puts a filler key as often as needed in between.

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::try_join_all;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// First key of a cluster with its own etcd.
const FIRST_KEY: &str = "/registry/";
/// The key after the last key of such a cluster.
const END_KEY: &str = "/registry0";
/// Key outside of the registry, whose puts fill gaps between revisions.
const FILLER_KEY: &str = "/filler";
/// Number of keys in one answer; etcd's gateway limits the size of an answer.
const KEYS_PER_PAGE: i64 = 100;
/// Maximum number of filler puts that are sent at the same time.
const PARALLEL_PUTS: i64 = 32;

/// Keys of a cluster's etcd, with their values and revisions: [`crate::Cluster::dump_etcd`] reads them, and
/// [`crate::ClusterBuilder::with_etcd_dump`] starts a cluster with them.
///
/// Objects keep their uids, managed fields, times and resourceVersions. The text form is JSON; values are text if they
/// are UTF-8, which they are in a cluster with the flag `--storage-media-type=application/json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EtcdDump {
    /// In the order of revisions.
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    key: String,
    revision: i64,
    #[serde(flatten)]
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Content {
    Text(String),
    Base64(String),
}

impl Content {
    fn of(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Base64(STANDARD.encode(error.as_bytes())),
        }
    }

    /// Returns the bytes in base64.
    fn encoded(&self) -> String {
        match self {
            Self::Text(text) => STANDARD.encode(text),
            Self::Base64(encoded) => encoded.clone(),
        }
    }
}

impl EtcdDump {
    /// Returns the keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.key.as_str())
    }

    /// Reads the registry's keys for which `keeps` holds, all at one revision.
    pub(crate) async fn read(url: &str, keeps: impl Fn(&str) -> bool) -> Result<Self> {
        let gateway = Gateway::new(url);
        let mut entries = Vec::new();
        let mut first = FIRST_KEY.as_bytes().to_vec();
        let mut revision = 0;
        loop {
            let page = gateway.range(&first, revision).await?;
            revision = page.header.revision.parse()?;
            for pair in page.kvs {
                let key = STANDARD.decode(&pair.key)?;
                first = [&key[..], &[0]].concat();
                let key = String::from_utf8(key).context("a key that is no UTF-8")?;
                if keeps(&key) {
                    let content = Content::of(STANDARD.decode(&pair.value)?);
                    entries.push(Entry { key, revision: pair.mod_revision.parse()?, content });
                }
            }
            if !page.more {
                break;
            }
        }
        entries.sort_by_key(|entry| entry.revision);
        Ok(Self { entries })
    }

    /// Puts the keys into an empty etcd.
    ///
    /// # Errors
    /// etcd refuses a put, or is not empty, so that its revision is higher already.
    pub(crate) async fn restore(&self, url: &str) -> Result<()> {
        let gateway = Gateway::new(url);
        // An empty etcd is at revision 1.
        let mut revision = 1;
        for entry in &self.entries {
            while revision + 1 < entry.revision {
                let puts = (entry.revision - 1 - revision).min(PARALLEL_PUTS);
                try_join_all((0..puts).map(|_| gateway.put(FILLER_KEY, ""))).await?;
                revision += puts;
            }
            revision = gateway.put(&entry.key, &entry.content.encoded()).await?;
            let (key, expected) = (&entry.key, entry.revision);
            ensure!(revision == expected, "{key} has revision {revision} instead of {expected}");
        }
        Ok(())
    }
}

/// Client of etcd's JSON gateway, in which keys and values are base64, and 64-bit numbers are strings.
struct Gateway {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
}

impl Gateway {
    fn new(url: &str) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), url: url.to_owned() }
    }

    /// Returns the next keys from `first` on, at this revision; 0 is the current one.
    async fn range(&self, first: &[u8], revision: i64) -> Result<RangeResponse> {
        let body = json!({
            "key": STANDARD.encode(first), "range_end": STANDARD.encode(END_KEY),
            "limit": KEYS_PER_PAGE.to_string(), "revision": revision.to_string(),
        });
        self.post("/v3/kv/range", &body).await
    }

    /// Puts a value, which is base64, and returns the revision.
    async fn put(&self, key: &str, value: &str) -> Result<i64> {
        let body = json!({"key": STANDARD.encode(key), "value": value});
        let answer: PutResponse = self.post("/v3/kv/put", &body).await?;
        Ok(answer.header.revision.parse()?)
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &serde_json::Value) -> Result<T> {
        let request = http::Request::post(format!("{}{path}", self.url))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::from(body.to_string()))?;
        let answer = self.client.request(request).await.with_context(|| format!("etcd: {path}"))?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "etcd: {path}: {status}: {}", String::from_utf8_lossy(&body));
        Ok(serde_json::from_slice(&body)?)
    }
}

/// An answer to a range request. Fields with a default value are left out.
#[derive(Deserialize)]
struct RangeResponse {
    header: Header,
    #[serde(default)]
    kvs: Vec<Pair>,
    #[serde(default)]
    more: bool,
}

#[derive(Deserialize)]
struct Header {
    revision: String,
}

#[derive(Deserialize)]
struct Pair {
    key: String,
    mod_revision: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct PutResponse {
    header: Header,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_keeps_every_byte() {
        let entry = |revision: i64, bytes: &[u8]| Entry {
            key: format!("/registry/{revision}"),
            revision,
            content: Content::of(bytes.to_vec()),
        };
        let dump = EtcdDump { entries: vec![entry(2, b"{\"a\":1}\n"), entry(5, b"k8s\0\xff")] };
        let text = serde_json::to_string(&dump).unwrap();
        assert!(text.contains(r#""text":"{\"a\":1}\n""#), "{text}");
        let read: EtcdDump = serde_json::from_str(&text).unwrap();
        assert_eq!(read, dump);
        assert_eq!(STANDARD.decode(read.entries[1].content.encoded()).unwrap(), b"k8s\0\xff");
    }
}
