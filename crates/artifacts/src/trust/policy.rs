//! Trusted signers, and the check of a signature against them. Pure.

use std::sync::Arc;

use super::claimed_signature::ClaimedSignature;
use super::flaw::Flaw;
use super::keys::PublicKey;
use super::provenance::Keyring;
use super::root::TrustRoot;
use super::{bundle, certificate, cosign, keys, log, timestamp};
use crate::error::ArtifactError;
use crate::storage::digest::Digest;

/// Maximum number of timestamps of one signature that are verified.
const MAX_TIMESTAMPS: usize = 8;
/// Maximum number of log entries of one signature that are verified; clients write one.
pub(super) const MAX_LOG_ENTRIES: usize = 8;

/// Trusted signers: content needs one valid signature by any of them.
#[derive(Clone, Debug)]
pub struct Trust {
    keys: Vec<PublicKey>,
    signers: Option<Signers>,
    pub(super) keyring: Option<Keyring>,
    digest: Digest,
}

/// Identity of a signer by its identity provider. Both fields are compared exactly: there are no patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// Issuer of the identity, e.g. `https://accounts.example.org`.
    pub issuer: String,
    /// Identity: an e-mail address, or the URI of a workload.
    pub subject: String,
}

#[derive(Clone, Debug)]
struct Signers {
    root: Arc<TrustRoot>,
    identities: Vec<Signer>,
}

impl Trust {
    /// Returns a policy without signers, which no content passes.
    pub fn nobody() -> Self {
        Self { keys: Vec::new(), signers: None, keyring: None, digest: Digest::of(b"") }
    }

    /// Also trusts the holders of these keys: public keys in PEM, ECDSA P-256 or P-384, RSA from 2048 bits, Ed25519.
    /// Their signatures need no entry in a transparency log.
    ///
    /// # Errors
    /// If a key is invalid or of another kind, or there is none.
    pub fn and_keys(mut self, pem: &[u8]) -> Result<Self, ArtifactError> {
        self.keys.extend(keys::parse(pem)?);
        self.extend_digest("keys", pem);
        Ok(self)
    }

    /// Also trusts these identities, by certificates of an authority of the root and with an entry in a log of the
    /// root, at a time that this log or a timestamp authority of the root signed.
    ///
    /// # Errors
    /// If there is none, or one lacks its issuer or subject.
    pub fn and_signers(mut self, root: Arc<TrustRoot>, signers: &[Signer]) -> Result<Self, ArtifactError> {
        if signers.is_empty() || signers.iter().any(|one| one.issuer.is_empty() || one.subject.is_empty()) {
            return Err(ArtifactError::verification("an identity needs an issuer and a subject"));
        }
        self.extend_digest("root", root.digest().to_string().as_bytes());
        for Signer { issuer, subject } in signers {
            self.extend_digest("issuer", issuer.as_bytes());
            self.extend_digest("subject", subject.as_bytes());
        }
        self.signers = Some(Signers { root, identities: signers.to_vec() });
        Ok(self)
    }

    /// Also trusts the owners of these OpenPGP keys, by provenance of charts (`helm package --sign`): public keys one
    /// after the other, binary or armoured. Revoked and expired keys do not count.
    ///
    /// # Errors
    /// If it is no keyring, or an empty one.
    pub fn and_keyring(mut self, content: &[u8]) -> Result<Self, ArtifactError> {
        self.keyring = Some(Keyring::parse(content)?);
        self.extend_digest("keyring", content);
        Ok(self)
    }

    /// Returns the digest of all trusted keys and identities.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    fn extend_digest(&mut self, kind: &str, part: &[u8]) {
        self.digest = Digest::of(format!("{} {kind} {}", self.digest, Digest::of(part)).as_bytes());
    }

    /// Reports whether signatures of OCI manifests may be trusted.
    pub(super) fn counts_signatures(&self) -> bool {
        !self.keys.is_empty() || self.signers.is_some()
    }

    /// Checks that the signature under cosign's tag is trusted.
    pub(super) fn accepts_cosign(
        &self,
        signature: &cosign::Signature,
        payload: &[u8],
        digest: Digest,
    ) -> Result<(), Flaw> {
        self.accepts(&signature.read(payload, digest)?)
    }

    /// Checks that the signature in a bundle is trusted.
    pub(crate) fn accepts_bundle(&self, json: &[u8], digest: Digest) -> Result<(), Flaw> {
        self.accepts(&bundle::read(json, digest)?)
    }

    /// Checks that one of the signatures under cosign's tag, all with this payload, is trusted.
    #[cfg(fuzzing)]
    pub(crate) fn accepts_any(&self, manifest: &[u8], payload: &[u8], digest: Digest) -> Result<(), String> {
        let signatures = cosign::signatures("the artifact", manifest).map_err(|error| error.to_string())?;
        let judged = signatures.iter().map(|signature| self.accepts_cosign(signature, payload, digest));
        judged.reduce(Result::or).unwrap_or(Err(Flaw::NoLog)).map_err(|flaw| flaw.to_string())
    }

    /// Checks that a provenance is trusted.
    #[cfg(fuzzing)]
    pub(crate) fn accepts_provenance(&self, text: &[u8], archive: Digest, now: i64) -> Result<(), Flaw> {
        self.keyring.as_ref().map_or(Err(Flaw::NoKeys), |keyring| keyring.accepts(text, archive, now))
    }

    fn accepts(&self, claimed: &ClaimedSignature) -> Result<(), Flaw> {
        if self.keys.iter().any(|key| key.has_signed(&claimed.message, &claimed.signature)) {
            return Ok(());
        }
        match (&claimed.certificate, &self.signers) {
            (Some(certificate), Some(signers)) => signers.accept(claimed, certificate),
            (Some(_), None) => Err(Flaw::NoIdentities),
            (None, _) if self.keys.is_empty() => Err(Flaw::NoKeys),
            (None, _) => Err(Flaw::OtherKey),
        }
    }
}

impl Signers {
    fn accept(&self, claimed: &ClaimedSignature, certificate: &[u8]) -> Result<(), Flaw> {
        let ClaimedSignature { message, payload, signature, entries, timestamps, .. } = claimed;
        let subject =
            log::LogSubject { message: Digest::of(message), payload: *payload, signature, certificate };
        let stamps = timestamps.iter().take(MAX_TIMESTAMPS);
        let stamps = stamps.map(|response| timestamp::time(response, signature, &self.root));
        let stamped = stamps.reduce(Result::or).unwrap_or(Err(Flaw::NoTime));
        let entries = entries.iter().take(MAX_LOG_ENTRIES);
        let times = entries.map(|entry| entry.time(&self.root, &subject, &stamped));
        // One valid entry is enough; otherwise the last one gives the reason.
        let time = times.reduce(Result::or).unwrap_or(Err(Flaw::NoLog))?;
        let signer = certificate::check(certificate, &self.root, time)?;
        if !signer.key.has_signed(message, signature) {
            return Err(Flaw::NotByCertificate);
        }
        let is_trusted = |one: &Signer| one.issuer == signer.issuer && signer.subjects.contains(&one.subject);
        if self.identities.iter().any(is_trusted) { Ok(()) } else { Err(Flaw::OtherIdentity) }
    }
}
