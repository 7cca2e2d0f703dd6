//! Entries of a transparency log (Rekor): their subject, their time, and the proof that the log has them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use super::flaw::Flaw;
use super::material::LogId;
use super::merkle;
use super::root::{Log, TrustRoot};
use crate::storage::digest::Digest;

/// Expected subject of a log entry.
pub(super) struct LogSubject<'a> {
    /// Digest of the signed message.
    pub(super) message: Digest,
    /// Digest of the payload, if that is in an envelope.
    pub(super) payload: Digest,
    /// Signature.
    pub(super) signature: &'a [u8],
    /// Certificate of the signer.
    pub(super) certificate: &'a [u8],
}

/// An entry in a bundle. Zero and empty fields may be missing.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    #[serde(default, deserialize_with = "number")]
    log_index: i64,
    /// Not needed if the log is found by its key.
    log_id: Option<LogId>,
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

/// An entry that cosign attaches to a signature under a tag.
#[derive(Deserialize)]
struct CosignLogEntry {
    #[serde(rename = "SignedEntryTimestamp")]
    timestamp: String,
    #[serde(rename = "Payload")]
    payload: CosignLogPayload,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CosignLogPayload {
    body: String,
    integrated_time: i64,
    log_index: i64,
    #[serde(rename = "logID")]
    log_id: String,
}

/// Parses a number. Protocol Buffers write 64-bit numbers as text.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let number = match Value::deserialize(deserializer)? {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_i64(),
        _ => None,
    };
    number.ok_or_else(|| D::Error::custom("not a number"))
}

impl Entry {
    /// Parses the entry in the annotation of a signature under a tag.
    pub(super) fn attached(json: &str) -> Result<Self, Flaw> {
        let unreadable = Flaw::Unreadable("its log entry");
        let CosignLogEntry { timestamp, payload } =
            serde_json::from_str(json).map_err(|_| unreadable.clone())?;
        let id = hex::decode(payload.log_id).map_err(|_| unreadable)?;
        Ok(Self {
            log_index: payload.log_index,
            log_id: Some(LogId::of(&id)),
            integrated_time: payload.integrated_time,
            inclusion_promise: Some(Promise { signed_entry_timestamp: timestamp }),
            inclusion_proof: None,
            canonicalized_body: payload.body,
        })
    }

    /// Returns the time at which the log took the entry, in Unix seconds, if the entry is about this signature and a
    /// log of the trust root vouches for it. A log that signs no times (Rekor 2) vouches by a proof that it has the
    /// entry; then the time of the signature is `stamped`, which another authority signed.
    pub(super) fn time(
        &self,
        root: &TrustRoot,
        subject: &LogSubject<'_>,
        stamped: &Result<i64, Flaw>,
    ) -> Result<i64, Flaw> {
        let unreadable = || Flaw::Unreadable("its log entry");
        let body = STANDARD.decode(&self.canonicalized_body).map_err(|_| unreadable())?;
        is_about(&body, subject)?;
        let Some(promise) = &self.inclusion_promise else {
            let time = stamped.clone()?;
            let proof = self.inclusion_proof.as_ref().ok_or(Flaw::LogProof)?;
            // Logs of one key may have several names; only the key that signed the tree counts.
            let is_in = root.logs(time).any(|log| proof.fits(&body, log));
            return if is_in { Ok(time) } else { Err(Flaw::LogProof) };
        };
        let id = self.log_id.as_ref().and_then(LogId::bytes).ok_or_else(unreadable)?;
        let log = root.log(&id, self.integrated_time).ok_or(Flaw::OtherLog)?;
        let timestamp = STANDARD.decode(&promise.signed_entry_timestamp).map_err(|_| unreadable())?;
        if !log.key.has_signed(self.promised(&id).as_bytes(), &timestamp) {
            return Err(Flaw::LogSignature);
        }
        match &self.inclusion_proof {
            Some(proof) if !proof.fits(&body, log) => Err(Flaw::LogProof),
            _ => Ok(self.integrated_time),
        }
    }

    /// Returns the canonical JSON that the log signs immediately.
    fn promised(&self, id: &[u8]) -> String {
        // The body is base64, so it contains no characters that JSON would escape.
        let Self { canonicalized_body: body, integrated_time: time, log_index: index, .. } = self;
        let id = hex::encode(id);
        format!(r#"{{"body":"{body}","integratedTime":{time},"logID":"{id}","logIndex":{index}}}"#)
    }
}

impl Proof {
    /// Reports whether the log has an entry with this body.
    fn fits(&self, body: &[u8], log: &Log) -> bool {
        let signed = self.checkpoint.as_ref();
        let signed = signed.and_then(|checkpoint| merkle::checkpoint(&checkpoint.envelope, &log.key));
        signed.is_some_and(|(size, root)| size == self.tree_size && Some(root) == self.root(body))
    }

    fn root(&self, body: &[u8]) -> Option<[u8; 32]> {
        let hashes: Option<Vec<[u8; 32]>> =
            self.hashes.iter().map(|hash| STANDARD.decode(hash).ok()?.try_into().ok()).collect();
        let (index, size) = (u64::try_from(self.log_index).ok()?, u64::try_from(self.tree_size).ok()?);
        merkle::root(merkle::leaf(body), index, size, &hashes?)
    }
}

/// Checks that the body of an entry is about this signature of this content by this certificate.
fn is_about(body: &[u8], subject: &LogSubject<'_>) -> Result<(), Flaw> {
    let body: Value = serde_json::from_slice(body).map_err(|_| Flaw::Unreadable("its log entry"))?;
    let spec = &body["spec"];
    let is = match (body["kind"].as_str(), body["apiVersion"].as_str()) {
        (Some("hashedrekord"), Some("0.0.1")) => {
            let signature = &spec["signature"];
            is_digest(&spec["data"]["hash"], subject.message)
                && is_signature(&signature["content"], subject)
                && is_certificate(&signature["publicKey"]["content"], subject)
        }
        (Some("dsse"), Some("0.0.1")) => {
            let mut signatures = spec["signatures"].as_array().into_iter().flatten();
            is_digest(&spec["payloadHash"], subject.payload)
                && signatures.any(|one| {
                    is_signature(&one["signature"], subject) && is_certificate(&one["verifier"], subject)
                })
        }
        (Some("hashedrekord"), Some("0.0.2")) => {
            let record = &spec["hashedRekordV002"];
            is_bare_digest(&record["data"], subject.message) && is_signed(&record["signature"], subject)
        }
        (Some("dsse"), Some("0.0.2")) => {
            let envelope = &spec["dsseV002"];
            let mut signatures = envelope["signatures"].as_array().into_iter().flatten();
            is_bare_digest(&envelope["payloadHash"], subject.payload)
                && signatures.any(|one| is_signed(one, subject))
        }
        _ => return Err(Flaw::Unreadable("the kind of its log entry")),
    };
    if is { Ok(()) } else { Err(Flaw::OtherEntry) }
}

fn is_digest(hash: &Value, digest: Digest) -> bool {
    hash["algorithm"] == "sha256" && hash["value"] == digest.hex()
}

/// Reports whether a digest in an entry of Rekor 2 is this one.
fn is_bare_digest(hash: &Value, digest: Digest) -> bool {
    hash["algorithm"] == "SHA2_256" && decoded(&hash["digest"]).is_some_and(|bytes| bytes == digest.bytes())
}

/// Reports whether an entry of Rekor 2 has this signature with its certificate.
fn is_signed(one: &Value, subject: &LogSubject<'_>) -> bool {
    let certificate = decoded(&one["verifier"]["x509Certificate"]["rawBytes"]);
    is_signature(&one["content"], subject) && certificate.is_some_and(|der| der == subject.certificate)
}

fn is_signature(text: &Value, subject: &LogSubject<'_>) -> bool {
    decoded(text).is_some_and(|signature| signature == subject.signature)
}

fn is_certificate(text: &Value, subject: &LogSubject<'_>) -> bool {
    let certificate = decoded(text).and_then(|pem| CertificateDer::from_pem_slice(&pem).ok());
    certificate.is_some_and(|certificate| *certificate == *subject.certificate)
}

fn decoded(text: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(text.as_str()?).ok()
}
