//! Entries of a transparency log (Rekor): what they are about, when they were made, and that the log has them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use super::{flaw::Flaw, material::LogId, merkle, root::TrustRoot};
use crate::Digest;

/// What an entry has to be about.
pub(super) struct Logged<'a> {
    /// Digest of what is signed.
    pub(super) message: Digest,
    /// Digest of the payload, where that is in an envelope.
    pub(super) payload: Digest,
    /// The signature.
    pub(super) signature: &'a [u8],
    /// The certificate of who made it.
    pub(super) certificate: &'a [u8],
}

/// An entry as bundles carry it. What is zero or empty may be absent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    #[serde(default, deserialize_with = "number")]
    log_index: i64,
    log_id: LogId,
    #[serde(default, deserialize_with = "number")]
    integrated_time: i64,
    inclusion_promise: Option<Promise>,
    inclusion_proof: Option<Proof>,
    canonicalized_body: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Promise {
    signed_entry_timestamp: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Proof {
    #[serde(default, deserialize_with = "number")]
    log_index: i64,
    #[serde(default, deserialize_with = "number")]
    tree_size: i64,
    #[serde(default)]
    hashes: Vec<String>,
    checkpoint: Option<Checkpoint>,
}

#[derive(Deserialize)]
struct Checkpoint {
    envelope: String,
}

/// An entry as cosign attaches it to signatures that lie under a tag.
#[derive(Deserialize)]
struct Attached {
    #[serde(rename = "SignedEntryTimestamp")]
    timestamp: String,
    #[serde(rename = "Payload")]
    payload: AttachedEntry,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttachedEntry {
    body: String,
    integrated_time: i64,
    log_index: i64,
    #[serde(rename = "logID")]
    log_id: String,
}

/// Protocol Buffers write 64-bit numbers as text.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let number = match Value::deserialize(deserializer)? {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_i64(),
        _ => None,
    };
    number.ok_or_else(|| D::Error::custom("not a number"))
}

impl Entry {
    /// The entry in the annotation of a signature under a tag.
    pub(super) fn attached(json: &str) -> Result<Self, Flaw> {
        let unreadable = Flaw::Unreadable("its log entry");
        let Attached { timestamp, payload } = serde_json::from_str(json).map_err(|_| unreadable.clone())?;
        let id = hex::decode(payload.log_id).map_err(|_| unreadable)?;
        Ok(Self {
            log_index: payload.log_index,
            log_id: LogId::of(&id),
            integrated_time: payload.integrated_time,
            inclusion_promise: Some(Promise { signed_entry_timestamp: timestamp }),
            inclusion_proof: None,
            canonicalized_body: payload.body,
        })
    }

    /// The time at which the log took the entry, in Unix seconds, if it is about this and the log vouches for it.
    pub(super) fn time(&self, root: &TrustRoot, logged: &Logged<'_>) -> Result<i64, Flaw> {
        let unreadable = || Flaw::Unreadable("its log entry");
        let body = STANDARD.decode(&self.canonicalized_body).map_err(|_| unreadable())?;
        let id = self.log_id.bytes().ok_or_else(unreadable)?;
        is_about(&body, logged)?;
        let promise = self.inclusion_promise.as_ref().ok_or(Flaw::NoTime)?;
        let log = root.log(&id, self.integrated_time).ok_or(Flaw::OtherLog)?;
        let timestamp = STANDARD.decode(&promise.signed_entry_timestamp).map_err(|_| unreadable())?;
        if !log.key.has_signed(self.promised(&id).as_bytes(), &timestamp) {
            return Err(Flaw::LogSignature);
        }
        if let Some(proof) = &self.inclusion_proof {
            let checkpoint = proof.checkpoint.as_ref().ok_or(Flaw::LogProof)?;
            let root = proof.root(&body).ok_or(Flaw::LogProof)?;
            let (size, signed) = merkle::checkpoint(&checkpoint.envelope, &log.key).ok_or(Flaw::LogProof)?;
            if (size, signed) != (proof.tree_size, root) {
                return Err(Flaw::LogProof);
            }
        }
        Ok(self.integrated_time)
    }

    /// What the log signs at once, as canonical JSON.
    fn promised(&self, id: &[u8]) -> String {
        // The body was decoded, so there is nothing in it that JSON would escape.
        let Self { canonicalized_body: body, integrated_time: time, log_index: index, .. } = self;
        let id = hex::encode(id);
        format!(r#"{{"body":"{body}","integratedTime":{time},"logID":"{id}","logIndex":{index}}}"#)
    }
}

impl Proof {
    fn root(&self, body: &[u8]) -> Option<[u8; 32]> {
        let hashes: Option<Vec<[u8; 32]>> =
            self.hashes.iter().map(|hash| STANDARD.decode(hash).ok()?.try_into().ok()).collect();
        let (index, size) = (u64::try_from(self.log_index).ok()?, u64::try_from(self.tree_size).ok()?);
        merkle::root(merkle::leaf(body), index, size, &hashes?)
    }
}

/// Whether the body of an entry is about this signature of this content by this certificate.
fn is_about(body: &[u8], logged: &Logged<'_>) -> Result<(), Flaw> {
    let body: Value = serde_json::from_slice(body).map_err(|_| Flaw::Unreadable("its log entry"))?;
    let spec = &body["spec"];
    let is = match (body["kind"].as_str(), body["apiVersion"].as_str()) {
        (Some("hashedrekord"), Some("0.0.1")) => {
            let signature = &spec["signature"];
            is_digest(&spec["data"]["hash"], logged.message)
                && is_signature(&signature["content"], logged)
                && is_certificate(&signature["publicKey"]["content"], logged)
        }
        (Some("dsse"), Some("0.0.1")) => {
            let mut signatures = spec["signatures"].as_array().into_iter().flatten();
            is_digest(&spec["payloadHash"], logged.payload)
                && signatures.any(|one| {
                    is_signature(&one["signature"], logged) && is_certificate(&one["verifier"], logged)
                })
        }
        _ => return Err(Flaw::Unreadable("the kind of its log entry")),
    };
    if is { Ok(()) } else { Err(Flaw::OtherEntry) }
}

fn is_digest(hash: &Value, digest: Digest) -> bool {
    hash["algorithm"] == "sha256" && hash["value"] == digest.hex()
}

fn is_signature(text: &Value, logged: &Logged<'_>) -> bool {
    decoded(text).is_some_and(|signature| signature == logged.signature)
}

fn is_certificate(text: &Value, logged: &Logged<'_>) -> bool {
    let certificate = decoded(text).and_then(|pem| CertificateDer::from_pem_slice(&pem).ok());
    certificate.is_some_and(|certificate| *certificate == *logged.certificate)
}

fn decoded(text: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(text.as_str()?).ok()
}
