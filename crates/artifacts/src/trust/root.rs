//! Roots of trust for signatures without keys, from a file: nothing is fetched.

use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, TrustAnchor};
use serde::Deserialize;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::keys::PublicKey;
use super::material::{Chain, LogId};
use crate::error::ArtifactError;
use crate::storage::digest::Digest;

/// A `trusted_root.json` in the format of the Sigstore clients: certificate authorities, transparency logs,
/// certificate logs and timestamp authorities, each with its period of use.
#[derive(Clone, Debug)]
pub struct TrustRoot {
    digest: Digest,
    authorities: Vec<Authority>,
    logs: HashMap<Vec<u8>, Log>,
    certificate_logs: HashMap<Vec<u8>, Log>,
    /// Whether it names certificate logs, including ones of unsupported kinds.
    names_certificate_logs: bool,
    timestamp_authorities: Vec<Authority>,
}

/// An authority that issues certificates, or timestamps with the first of its own certificates.
#[derive(Clone, Debug)]
pub(super) struct Authority {
    /// Trust anchor of its root.
    pub(super) anchor: TrustAnchor<'static>,
    /// Intermediate certificates between its root and the certificates of signers.
    pub(super) intermediates: Vec<CertificateDer<'static>>,
    /// The root and the intermediates.
    pub(super) certificates: Vec<CertificateDer<'static>>,
    used: Period,
}

/// A log that signs its entries.
#[derive(Clone, Debug)]
pub(super) struct Log {
    pub(super) key: PublicKey,
    used: Period,
}

/// A period in Unix seconds.
#[derive(Clone, Copy, Debug)]
struct Period {
    start: Option<i64>,
    end: Option<i64>,
}

impl Period {
    fn covers(self, time: i64) -> bool {
        self.start.is_none_or(|start| start <= time) && self.end.is_none_or(|end| time <= end)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    media_type: String,
    #[serde(default)]
    tlogs: Vec<LogEntry>,
    #[serde(default)]
    certificate_authorities: Vec<AuthorityEntry>,
    #[serde(default)]
    ctlogs: Vec<LogEntry>,
    #[serde(default)]
    timestamp_authorities: Vec<AuthorityEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogEntry {
    public_key: KeyEntry,
    log_id: LogId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyEntry {
    raw_bytes: String,
    #[serde(default)]
    valid_for: PeriodEntry,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthorityEntry {
    cert_chain: Chain,
    #[serde(default)]
    valid_for: PeriodEntry,
}

/// A period of use. A missing start or end means no limit.
#[derive(Default, Deserialize)]
struct PeriodEntry {
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

impl TrustRoot {
    /// Reads a `trusted_root.json`. Logs with keys of unsupported kinds are skipped, as in other clients.
    ///
    /// # Errors
    /// If it is no such file, or lacks a usable authority or log.
    pub fn parse(json: &[u8]) -> Result<Self, ArtifactError> {
        let unusable = |problem: &str| ArtifactError::verification(format!("the trusted root: {problem}"));
        let file: File = serde_json::from_slice(json).map_err(|_| unusable("not a trusted_root.json"))?;
        if !file.media_type.starts_with("application/vnd.dev.sigstore.trustedroot") {
            return Err(unusable("not a trusted_root.json"));
        }
        let read = |entries: Vec<AuthorityEntry>| -> Option<Vec<Authority>> {
            entries.into_iter().map(Authority::read).collect()
        };
        let authorities = read(file.certificate_authorities)
            .ok_or_else(|| unusable("a certificate authority is unreadable"))?;
        let timestamp_authorities = read(file.timestamp_authorities)
            .ok_or_else(|| unusable("a timestamp authority is unreadable"))?;
        let logs = read_logs(file.tlogs).ok_or_else(|| unusable("a transparency log is unreadable"))?;
        let names_certificate_logs = !file.ctlogs.is_empty();
        let certificate_logs =
            read_logs(file.ctlogs).ok_or_else(|| unusable("a certificate log is unreadable"))?;
        if authorities.is_empty() || logs.is_empty() {
            return Err(unusable("it needs a certificate authority and a transparency log"));
        }
        let digest = Digest::of(json);
        Ok(Self {
            digest,
            authorities,
            logs,
            certificate_logs,
            names_certificate_logs,
            timestamp_authorities,
        })
    }

    /// Returns the digest of the file.
    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the authorities in use at a time.
    pub(super) fn authorities(&self, time: i64) -> impl Iterator<Item = &Authority> {
        self.authorities.iter().filter(move |authority| authority.used.covers(time))
    }

    /// Returns the timestamp authorities in use at a time.
    pub(super) fn timestamp_authorities(&self, time: i64) -> impl Iterator<Item = &Authority> {
        self.timestamp_authorities.iter().filter(move |authority| authority.used.covers(time))
    }

    /// Returns the transparency logs in use at a time.
    pub(super) fn logs(&self, time: i64) -> impl Iterator<Item = &Log> {
        self.logs.values().filter(move |log| log.used.covers(time))
    }

    /// Returns the transparency log with this ID, if it was in use at that time.
    pub(super) fn log(&self, id: &[u8], time: i64) -> Option<&Log> {
        self.logs.get(id).filter(|log| log.used.covers(time))
    }

    /// Returns the certificate log with this ID, if it was in use at that time.
    pub(super) fn certificate_log(&self, id: &[u8], time: i64) -> Option<&Log> {
        self.certificate_logs.get(id).filter(|log| log.used.covers(time))
    }

    /// Reports whether the authorities log their certificates.
    pub(super) fn has_certificate_logs(&self) -> bool {
        self.names_certificate_logs
    }
}

impl Authority {
    /// Reads an authority. Its root is the self-signed certificate, or the last one.
    fn read(entry: AuthorityEntry) -> Option<Self> {
        let certificates = entry.cert_chain.certificates.iter();
        let certificates: Option<Vec<_>> =
            certificates.map(|certificate| certificate.der().map(CertificateDer::from)).collect();
        let certificates = certificates?;
        let is_root = |der: &CertificateDer<'_>| {
            let read = X509Certificate::from_der(der);
            read.is_ok_and(|(_, one)| one.subject().as_raw() == one.issuer().as_raw())
        };
        let root = certificates.iter().position(is_root).or(certificates.len().checked_sub(1))?;
        let mut intermediates = certificates.clone();
        let anchor = webpki::anchor_from_trusted_cert(&intermediates.remove(root)).ok()?.to_owned();
        Some(Self { anchor, intermediates, certificates, used: entry.valid_for.into() })
    }
}

/// Reads logs by ID.
fn read_logs(entries: Vec<LogEntry>) -> Option<HashMap<Vec<u8>, Log>> {
    let mut logs = HashMap::new();
    for LogEntry { public_key, log_id } in entries {
        let (id, der) = (log_id.bytes()?, STANDARD.decode(public_key.raw_bytes).ok()?);
        if let Some(key) = PublicKey::from_der(&der) {
            logs.insert(id, Log { key, used: public_key.valid_for.into() });
        }
    }
    Some(logs)
}

impl From<PeriodEntry> for Period {
    fn from(entry: PeriodEntry) -> Self {
        Self { start: entry.start.map(Timestamp::as_second), end: entry.end.map(Timestamp::as_second) }
    }
}
