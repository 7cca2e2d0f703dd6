//! Provenance of charts by `helm package --sign`: a clear-signed text with the digest of the archive.

mod bounds;

use std::{collections::BTreeMap, fmt, io::Cursor, sync::Arc};

use pgp::{
    composed::{CleartextSignedMessage, Deserializable as _, SignedPublicKey, SignedPublicSubKey},
    crypto::hash::HashAlgorithm,
    packet::{KeyFlags, PublicKey, Signature, SignatureType},
    types::{Duration, KeyDetails as _, SignedUser, Tag, Timestamp},
};
use serde::Deserialize;

use super::flaw::Flaw;
use crate::error::ArtifactError;
use crate::storage::digest::Digest;

/// Media type of the layer beside a chart in a registry.
pub(crate) const LAYER: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";
/// Separator between the chart's metadata and the digests.
const SEPARATOR: &str = "\r\n...\r\n";
/// First line of an armoured key.
const ARMOUR: &str = "-----BEGIN PGP ";
/// Maximum number of keys of one keyring.
const MAX_KEYS: usize = 64;
/// Maximum number of signatures of one provenance that are verified: each may be by any key, and Helm writes one.
const MAX_SIGNATURES: usize = 4;

/// OpenPGP public keys whose owners are trusted to sign provenance.
#[derive(Clone)]
pub(crate) struct Keyring(Arc<[SignedPublicKey]>);

#[derive(Deserialize)]
struct Sums {
    #[serde(default)]
    files: BTreeMap<String, String>,
}

impl Keyring {
    /// Parses public keys, one after the other, binary or armoured.
    pub(super) fn parse(content: &[u8]) -> Result<Self, ArtifactError> {
        let unusable = |problem: &str| ArtifactError::verification(format!("the keyring: {problem}"));
        let keys = match std::str::from_utf8(content) {
            Ok(text) if text.contains(ARMOUR) => {
                let blocks = text.match_indices(ARMOUR).map(|(start, _)| &text[start..]);
                let keys: Option<Vec<Vec<SignedPublicKey>>> = blocks.map(armoured).collect();
                keys.map(|keys| keys.concat())
            }
            _ => binary(content),
        };
        let keys = keys.ok_or_else(|| unusable("not OpenPGP public keys"))?;
        match keys.len() {
            0 => Err(unusable("it contains no OpenPGP public key")),
            count if count > MAX_KEYS => Err(unusable("more than 64 keys")),
            _ => Ok(Self(keys.into())),
        }
    }

    /// Checks that the provenance is for this archive and by the owner of a key that is usable at `now` (Unix
    /// seconds).
    pub(super) fn accepts(&self, provenance: &[u8], archive: Digest, now: i64) -> Result<(), Flaw> {
        let unreadable = || Flaw::Unreadable("the provenance");
        let text = std::str::from_utf8(provenance).ok().filter(|text| bounds::allow_text(text));
        let text = text.ok_or_else(unreadable)?;
        let (message, _) = CleartextSignedMessage::from_string(text).map_err(|_| unreadable())?;
        let signed = message.signed_text();
        let signatures = message.signatures().iter().take(MAX_SIGNATURES);
        let judged = signatures.map(|signature| self.made(signature, &signed, now));
        judged.reduce(better).unwrap_or(Err(Flaw::OtherKey))?;
        let sums = signed.split_once(SEPARATOR).map(|(_, sums)| sums).ok_or_else(unreadable)?;
        let Sums { files } = serde_saphyr::from_str(sums).map_err(|_| unreadable())?;
        let digest = archive.to_string();
        if files.values().any(|found| *found == digest) { Ok(()) } else { Err(Flaw::OtherArchive) }
    }

    fn made(&self, signature: &Signature, text: &str, now: i64) -> Result<(), Flaw> {
        let is_text = matches!(signature.typ(), Some(SignatureType::Text | SignatureType::Binary));
        if !is_text || !is_strong(signature) || has_ended(signature, now) {
            return Err(Flaw::OtherKey);
        }
        self.0
            .iter()
            .map(|key| made_by(key, signature, text, now))
            .reduce(better)
            .unwrap_or(Err(Flaw::OtherKey))
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

/// Returns the success, or else the more specific flaw.
fn better(a: Result<(), Flaw>, b: Result<(), Flaw>) -> Result<(), Flaw> {
    match (a, b) {
        (Ok(()), _) | (_, Ok(())) => Ok(()),
        (Err(Flaw::OtherKey), b) => b,
        (a, _) => a,
    }
}

fn armoured(block: &str) -> Option<Vec<SignedPublicKey>> {
    bounds::allow_armoured(block).then_some(())?;
    let keys = SignedPublicKey::from_armor_many(block.as_bytes()).and_then(|(keys, _)| keys.collect());
    keys.ok()
}

fn binary(content: &[u8]) -> Option<Vec<SignedPublicKey>> {
    bounds::allow(content).then_some(())?;
    SignedPublicKey::from_bytes_many(Cursor::new(content)).and_then(Iterator::collect).ok()
}

/// Reports whether a signature uses a strong hash. SHA-1 and older hashes are not accepted.
fn is_strong(signature: &Signature) -> bool {
    matches!(
        signature.hash_alg(),
        Some(
            HashAlgorithm::Sha256
                | HashAlgorithm::Sha384
                | HashAlgorithm::Sha512
                | HashAlgorithm::Sha3_256
                | HashAlgorithm::Sha3_512
        )
    )
}

/// Reports whether a signature has expired. One without a creation time counts as expired.
fn has_ended(signature: &Signature, now: i64) -> bool {
    let Some(created) = signature.created() else { return true };
    ends(created.as_secs(), signature.signature_expiration_time().map(Duration::as_secs), now)
}

/// Reports whether a period that began then has ended. Without a length, or with length zero, it does not end.
fn ends(created: u32, lasts: Option<u32>, now: i64) -> bool {
    lasts.is_some_and(|lasts| lasts > 0 && i64::from(created) + i64::from(lasts) <= now)
}

/// Checks that this key, or one of its subkeys, made the signature and may sign.
fn made_by(key: &SignedPublicKey, signature: &Signature, text: &str, now: i64) -> Result<(), Flaw> {
    let by_primary = signature.verify(&key.primary_key, text.as_bytes()).is_ok();
    let subkey =
        key.public_subkeys.iter().find(|subkey| signature.verify(&subkey.key, text.as_bytes()).is_ok());
    if !by_primary && subkey.is_none() {
        return Err(Flaw::OtherKey);
    }
    let Some(flags) = usable(key, now) else { return Err(Flaw::KeyUnusable) };
    let may = match subkey {
        Some(subkey) if !by_primary => may_sign(subkey, key, now),
        // Keys without flags may be used for everything.
        _ => flags == KeyFlags::default() || flags.sign(),
    };
    if may { Ok(()) } else { Err(Flaw::KeyUnusable) }
}

/// Returns the usage flags of a key, unless it was revoked or has expired.
fn usable(key: &SignedPublicKey, now: i64) -> Option<KeyFlags> {
    let primary = &key.primary_key;
    if key.details.revocation_signatures.iter().any(|one| one.verify_key(primary).is_ok()) {
        return None;
    }
    let direct = key.details.direct_signatures.iter().filter(|one| one.verify_key(primary).is_ok());
    let of_users = key.details.users.iter().flat_map(|user| said_with(user, primary));
    let own = direct.chain(of_users).filter(|one| !has_ended(one, now));
    let latest = own.max_by_key(|one| one.created().map(Timestamp::as_secs))?;
    (!has_expired(latest, primary.created_at().as_secs(), now)).then(|| latest.key_flags())
}

/// Returns the self-signatures of a user ID, without those that its owner revoked.
fn said_with<'a>(user: &'a SignedUser, primary: &'a PublicKey) -> impl Iterator<Item = &'a Signature> {
    let is_own = |one: &Signature| one.verify_certification(primary, Tag::UserId, &user.id).is_ok();
    let own: Vec<&Signature> = user.signatures.iter().filter(|one| is_own(one)).collect();
    let is_revocation = |one: &Signature| one.typ() == Some(SignatureType::CertRevocation);
    let made = |one: &Signature| one.created().map(Timestamp::as_secs);
    let revocations = own.iter().filter(|one| is_revocation(one));
    let revoked = revocations.map(|one| made(one).unwrap_or(u32::MAX)).max();
    let stands = move |one: &Signature| revoked.is_none_or(|revoked| made(one) > Some(revoked));
    own.into_iter().filter(move |one| !is_revocation(one) && stands(one))
}

/// Reports whether a subkey is bound to its key for signing, and is neither revoked nor expired.
fn may_sign(subkey: &SignedPublicSubKey, key: &SignedPublicKey, now: i64) -> bool {
    let bound = |kind: SignatureType| {
        subkey.signatures.iter().filter(move |one| {
            one.typ() == Some(kind) && one.verify_subkey_binding(&key.primary_key, &subkey.key).is_ok()
        })
    };
    if bound(SignatureType::SubkeyRevocation).next().is_some() {
        return false;
    }
    let bindings = bound(SignatureType::SubkeyBinding).filter(|one| !has_ended(one, now));
    let latest = bindings.max_by_key(|one| one.created().map(Timestamp::as_secs));
    latest.is_some_and(|latest| {
        // The subkey must also confirm the binding to this key.
        let wants = latest.embedded_signature().is_some_and(|one| {
            one.typ() == Some(SignatureType::KeyBinding)
                && one.verify_primary_key_binding(&subkey.key, &key.primary_key).is_ok()
        });
        latest.key_flags().sign() && wants && !has_expired(latest, subkey.key.created_at().as_secs(), now)
    })
}

/// Reports whether the key that was created then, and that this signature binds, has expired.
fn has_expired(signature: &Signature, created: u32, now: i64) -> bool {
    ends(created, signature.key_expiration_time().map(Duration::as_secs), now)
}

#[cfg(test)]
mod tests;
