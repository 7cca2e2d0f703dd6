//! Verifies that content carries required signatures.

mod bundle;
mod certificate;
mod cosign;
mod flaw;
mod gate;
mod keys;
mod log;
mod material;
mod merkle;
mod provenance;
mod root;
#[cfg(test)]
mod sample;
mod sct;
mod search;
mod statement;
#[cfg(test)]
mod tests;
mod timestamp;
mod verified;

use std::sync::Arc;

pub(crate) use flaw::Flaw;
pub(crate) use gate::Gate;
pub use root::TrustRoot;
pub(crate) use search::Search;
pub(crate) use verified::{Passed, Verified};

use crate::{ArtifactError, Digest};
use keys::PublicKey;
use provenance::Keyring;
pub(crate) use provenance::LAYER as PROVENANCE;

/// Timestamps of one signature that are looked at.
const TIMESTAMPS: usize = 8;
/// Log entries of one signature that are looked at; clients write one.
const ENTRIES: usize = 8;

/// Whose signatures count: content passes with one good signature by any of them.
#[derive(Clone, Debug)]
pub struct Trust {
    keys: Vec<PublicKey>,
    signers: Option<Signers>,
    keyring: Option<Keyring>,
    digest: Digest,
}

/// Who signed, as their identity provider says. Both are compared as they are: there are no patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// Issuer of the identity, e.g. `https://accounts.example.org`.
    pub issuer: String,
    /// The identity: an e-mail address, or the URI of a workload.
    pub subject: String,
}

#[derive(Clone, Debug)]
struct Signers {
    root: Arc<TrustRoot>,
    identities: Vec<Signer>,
}

/// A signature that claims to be for the content at hand.
struct ClaimedSignature {
    /// What was signed.
    message: Vec<u8>,
    /// Digest of the payload in it.
    payload: Digest,
    signature: Vec<u8>,
    /// DER of the certificate of who made it, where it was not made with a key of their own.
    certificate: Option<Vec<u8>>,
    entries: Vec<log::Entry>,
    /// Responses of timestamp authorities that saw the signature.
    timestamps: Vec<Vec<u8>>,
}

impl Trust {
    /// Returns a policy without signers, which no content passes.
    pub fn nobody() -> Self {
        Self { keys: Vec::new(), signers: None, keyring: None, digest: Digest::of(b"") }
    }

    /// Also the holders of these keys: public keys in PEM, ECDSA P-256 or P-384, RSA from 2048 bits, Ed25519. Whether a
    /// transparency log knows of a signature does not matter then.
    ///
    /// # Errors
    /// One of them is no such key, or there is none.
    pub fn and_keys(mut self, pem: &[u8]) -> Result<Self, ArtifactError> {
        self.keys.extend(keys::parse(pem)?);
        self.told("keys", pem);
        Ok(self)
    }

    /// Also these identities, by certificates that an authority of the root issued and with an entry in a log of the
    /// root, at a time that this log or a timestamp authority of the root signed.
    ///
    /// # Errors
    /// There is none, or one lacks its issuer or subject.
    pub fn and_signers(mut self, root: Arc<TrustRoot>, signers: &[Signer]) -> Result<Self, ArtifactError> {
        if signers.is_empty() || signers.iter().any(|one| one.issuer.is_empty() || one.subject.is_empty()) {
            return Err(ArtifactError::verification("an identity needs an issuer and a subject"));
        }
        self.told("root", root.digest().to_string().as_bytes());
        for Signer { issuer, subject } in signers {
            self.told("issuer", issuer.as_bytes());
            self.told("subject", subject.as_bytes());
        }
        self.signers = Some(Signers { root, identities: signers.to_vec() });
        Ok(self)
    }

    /// Also the owners of these OpenPGP keys, by provenance of charts (`helm package --sign`): public keys one after the
    /// other, binary or armoured. Keys that were revoked or have expired do not count.
    ///
    /// # Errors
    /// It is no keyring, or an empty one.
    pub fn and_keyring(mut self, content: &[u8]) -> Result<Self, ArtifactError> {
        self.keyring = Some(Keyring::parse(content)?);
        self.told("keyring", content);
        Ok(self)
    }

    /// Digest of everything that decides.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    fn told(&mut self, kind: &str, part: &[u8]) {
        self.digest = Digest::of(format!("{} {kind} {}", self.digest, Digest::of(part)).as_bytes());
    }

    /// Whether signatures of OCI manifests may count.
    fn counts_signatures(&self) -> bool {
        !self.keys.is_empty() || self.signers.is_some()
    }

    /// Whether the signature under cosign's tag counts.
    fn accepts_cosign(
        &self,
        signature: &cosign::Signature,
        payload: &[u8],
        digest: Digest,
    ) -> Result<(), Flaw> {
        self.accepts(&signature.read(payload, digest)?)
    }

    /// Whether the signature in a bundle counts.
    pub(crate) fn accepts_bundle(&self, json: &[u8], digest: Digest) -> Result<(), Flaw> {
        self.accepts(&bundle::read(json, digest)?)
    }

    /// Why no signature under cosign's tag counts, all of them with this payload.
    #[cfg(fuzzing)]
    pub(crate) fn accepts_any(&self, manifest: &[u8], payload: &[u8], digest: Digest) -> Result<(), String> {
        let signatures = cosign::signatures("the artifact", manifest).map_err(|error| error.to_string())?;
        let judged = signatures.iter().map(|signature| self.accepts_cosign(signature, payload, digest));
        judged.reduce(Result::or).unwrap_or(Err(Flaw::NoLog)).map_err(|flaw| flaw.to_string())
    }

    /// Why a provenance does not count.
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
        let logged = log::Logged { message: Digest::of(message), payload: *payload, signature, certificate };
        let stamps = timestamps.iter().take(TIMESTAMPS);
        let stamps = stamps.map(|response| timestamp::time(response, signature, &self.root));
        let stamped = stamps.reduce(Result::or).unwrap_or(Err(Flaw::NoTime));
        let entries = entries.iter().take(ENTRIES);
        let times = entries.map(|entry| entry.time(&self.root, &logged, &stamped));
        // One good entry is enough; otherwise the last one tells why.
        let time = times.reduce(Result::or).unwrap_or(Err(Flaw::NoLog))?;
        let signer = certificate::check(certificate, &self.root, time)?;
        if !signer.key.has_signed(message, signature) {
            return Err(Flaw::NotByCertificate);
        }
        let is_trusted = |one: &Signer| one.issuer == signer.issuer && signer.subjects.contains(&one.subject);
        if self.identities.iter().any(is_trusted) { Ok(()) } else { Err(Flaw::OtherIdentity) }
    }
}
