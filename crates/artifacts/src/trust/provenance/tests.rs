//! Provenance of all kinds, valid and invalid. That of the real `helm` is in the tests against a registry.

use kyma_api::Reason;
use pgp::{
    composed::{ArmorOptions, KeyType, SecretKeyParamsBuilder, SignedSecretKey, SubkeyParamsBuilder},
    packet::{SignatureConfig, Subpacket, SubpacketData},
    ser::Serialize as _,
    types::{Password, SigningKey},
};
use rand::rngs::OsRng;

use super::*;

/// Time at which all keys are valid, in Unix seconds.
const NOW: i64 = 1_750_000_000;

fn made() -> Timestamp {
    Timestamp::from_secs(1_700_000_000)
}

/// Returns a key with a subkey for signing.
fn key(primary_signs: bool) -> SignedSecretKey {
    key_of(KeyType::Ed25519Legacy, primary_signs)
}

fn key_of(kind: KeyType, primary_signs: bool) -> SignedSecretKey {
    let subkey = SubkeyParamsBuilder::default()
        .key_type(KeyType::Ed25519Legacy)
        .can_sign(true)
        .created_at(made())
        .build()
        .unwrap();
    SecretKeyParamsBuilder::default()
        .key_type(kind)
        .can_certify(true)
        .can_sign(primary_signs)
        .primary_user_id("Builder <builder@example.org>".to_owned())
        .created_at(made())
        .subkeys(vec![subkey])
        .build()
        .unwrap()
        .generate(OsRng)
        .unwrap()
}

fn keyring(keys: &[&SignedSecretKey]) -> Keyring {
    let content: Vec<u8> = keys.iter().flat_map(|key| key.to_public_key().to_bytes().unwrap()).collect();
    Keyring::parse(&content).unwrap()
}

fn text(archive: Digest) -> String {
    format!("apiVersion: v2\nname: demo\nversion: 1.0.0\n\n...\nfiles:\n  demo-1.0.0.tgz: {archive}\n")
}

/// Returns a text with a signature by this key and an additional subpacket.
fn signed(text: &str, by: &impl SigningKey, hash: HashAlgorithm, more: Option<SubpacketData>) -> String {
    let mut config = SignatureConfig::from_key(OsRng, by, SignatureType::Text).unwrap();
    config.hash_alg = hash;
    let says =
        [SubpacketData::SignatureCreationTime(made()), SubpacketData::IssuerFingerprint(by.fingerprint())];
    config.hashed_subpackets =
        says.into_iter().chain(more).map(|data| Subpacket::regular(data).unwrap()).collect();
    let message = CleartextSignedMessage::new(text, config, by, &Password::empty()).unwrap();
    message.to_armored_string(ArmorOptions::default()).unwrap()
}

fn provenance(archive: Digest, by: &impl SigningKey) -> String {
    signed(&text(archive), by, HashAlgorithm::Sha512, None)
}

#[test]
fn provenance_needs_its_archive_and_a_key_or_subkey_of_the_ring() {
    let (builder, other) = (key(true), key(true));
    let (archive, another) = (Digest::of(b"archive"), Digest::of(b"another"));
    let ring = keyring(&[&other, &builder]);
    let good = provenance(archive, &builder.primary_key);
    assert_eq!(ring.accepts(good.as_bytes(), archive, NOW), Ok(()));
    assert_eq!(ring.accepts(good.as_bytes(), another, NOW), Err(Flaw::OtherArchive));
    assert_eq!(keyring(&[&other]).accepts(good.as_bytes(), archive, NOW), Err(Flaw::OtherKey));
    let by_subkey = provenance(archive, &builder.secret_subkeys[0].key);
    assert_eq!(ring.accepts(by_subkey.as_bytes(), archive, NOW), Ok(()));
    let windows = good.replace('\n', "\r\n");
    assert_eq!(ring.accepts(windows.as_bytes(), archive, NOW), Ok(()), "as Git may rewrite it");
}

#[test]
fn what_was_changed_does_not_count() {
    let builder = key(true);
    let (archive, another) = (Digest::of(b"archive"), Digest::of(b"another"));
    let good = provenance(archive, &builder.primary_key);
    let ring = keyring(&[&builder]);
    let changed = good.replace(&archive.to_string(), &another.to_string());
    assert_eq!(ring.accepts(changed.as_bytes(), another, NOW), Err(Flaw::OtherKey));
    let more = format!("{good}files:\n  a: {another}\n");
    assert_eq!(ring.accepts(more.as_bytes(), another, NOW), Err(Flaw::Unreadable("the provenance")));
    let before = format!("files:\n  a: {another}\n{good}");
    assert_eq!(ring.accepts(before.as_bytes(), another, NOW), Err(Flaw::Unreadable("the provenance")));
    assert_eq!(ring.accepts(text(archive).as_bytes(), archive, NOW), Err(Flaw::Unreadable("the provenance")));
    assert_eq!(ring.accepts(b"\xff", archive, NOW), Err(Flaw::Unreadable("the provenance")));
    let no_sums = signed("name: demo\n", &builder.primary_key, HashAlgorithm::Sha256, None);
    assert_eq!(ring.accepts(no_sums.as_bytes(), archive, NOW), Err(Flaw::Unreadable("the provenance")));
}

#[test]
fn expired_weak_and_non_signing_keys_or_signatures_are_rejected() {
    let (builder, certifier) = (key(true), key(false));
    let archive = Digest::of(b"archive");
    let old = key_of(KeyType::Rsa(2048), true);
    for (hash, judged) in [(HashAlgorithm::Sha1, Err(Flaw::OtherKey)), (HashAlgorithm::Sha256, Ok(()))] {
        let provenance = signed(&text(archive), &old.primary_key, hash, None);
        assert_eq!(keyring(&[&old]).accepts(provenance.as_bytes(), archive, NOW), judged, "{hash}");
    }
    let lasts = SubpacketData::SignatureExpirationTime(Duration::from_secs(60));
    let over = signed(&text(archive), &builder.primary_key, HashAlgorithm::Sha256, Some(lasts));
    assert_eq!(keyring(&[&builder]).accepts(over.as_bytes(), archive, NOW), Err(Flaw::OtherKey));
    assert_eq!(keyring(&[&builder]).accepts(over.as_bytes(), archive, 1_700_000_059), Ok(()));

    let not_for_it = provenance(archive, &certifier.primary_key);
    assert_eq!(keyring(&[&certifier]).accepts(not_for_it.as_bytes(), archive, NOW), Err(Flaw::KeyUnusable));

    let good = provenance(archive, &builder.primary_key);
    let mut unbound = builder.to_public_key();
    unbound.details.users.clear();
    let ring = Keyring(vec![unbound].into());
    assert_eq!(
        ring.accepts(good.as_bytes(), archive, NOW),
        Err(Flaw::KeyUnusable),
        "nobody says whose key it is"
    );

    let mut stolen = certifier.to_public_key();
    stolen.public_subkeys = builder.to_public_key().public_subkeys;
    let by_subkey = provenance(archive, &builder.secret_subkeys[0].key);
    let ring = Keyring(vec![stolen].into());
    assert_eq!(
        ring.accepts(by_subkey.as_bytes(), archive, NOW),
        Err(Flaw::KeyUnusable),
        "bound to another key"
    );
}

#[test]
fn a_revoked_and_an_expired_key_do_not_count() {
    let builder = key(true);
    let archive = Digest::of(b"archive");
    let good = provenance(archive, &builder.primary_key);
    let config = |kind: SignatureType, more: Option<SubpacketData>| {
        let mut config = SignatureConfig::from_key(OsRng, &builder.primary_key, kind).unwrap();
        let created = SubpacketData::SignatureCreationTime(Timestamp::from_secs(1_900_000_000));
        let by = SubpacketData::IssuerFingerprint(builder.primary_key.fingerprint());
        config.hashed_subpackets =
            [created, by].into_iter().chain(more).map(|data| Subpacket::regular(data).unwrap()).collect();
        config
    };
    let public = builder.to_public_key();
    let revocation = config(SignatureType::KeyRevocation, None)
        .sign_key(&builder.primary_key, &Password::empty(), &public.primary_key)
        .unwrap();
    let mut revoked = public.clone();
    revoked.details.revocation_signatures.push(revocation);
    let ring = Keyring(vec![revoked].into());
    assert_eq!(ring.accepts(good.as_bytes(), archive, NOW), Err(Flaw::KeyUnusable));

    let said = |config: SignatureConfig| {
        let (key, id) = (&public.primary_key, &public.details.users[0].id);
        config.sign_certification(&builder.primary_key, key, &Password::empty(), Tag::UserId, id).unwrap()
    };
    let mut nameless = public.clone();
    nameless.details.users[0].signatures.push(said(config(SignatureType::CertRevocation, None)));
    let mut again = config(SignatureType::CertPositive, None);
    let later = SubpacketData::SignatureCreationTime(Timestamp::from_secs(1_900_000_001));
    again.hashed_subpackets[0] = Subpacket::regular(later).unwrap();
    let mut named_again = nameless.clone();
    named_again.details.users[0].signatures.push(said(again));
    for (key, judged) in [(nameless, Err(Flaw::KeyUnusable)), (named_again, Ok(()))] {
        assert_eq!(Keyring(vec![key].into()).accepts(good.as_bytes(), archive, NOW), judged);
    }

    let lasts = SubpacketData::KeyExpirationTime(Duration::from_secs(20_000_000));
    let shorter = config(SignatureType::Key, Some(lasts))
        .sign_key(&builder.primary_key, &Password::empty(), &public.primary_key)
        .unwrap();
    let mut expired = public;
    expired.details.direct_signatures.push(shorter);
    let ring = Keyring(vec![expired].into());
    assert_eq!(ring.accepts(good.as_bytes(), archive, NOW), Err(Flaw::KeyUnusable));
    assert_eq!(ring.accepts(good.as_bytes(), archive, 1_719_999_999), Ok(()));
}

#[test]
fn keyrings_are_read_in_each_form_and_what_is_none_is_told() {
    let keys = [key(true), key(true)];
    let armoured =
        keys.each_ref().map(|key| key.to_public_key().to_armored_string(ArmorOptions::default()).unwrap());
    assert_eq!(Keyring::parse(armoured.concat().as_bytes()).unwrap().0.len(), 2);
    assert_eq!(keyring(&[&keys[0], &keys[1]]).0.len(), 2);
    let secret = keys[0].to_armored_string(ArmorOptions::default()).unwrap();
    let secret_binary = keys[0].to_bytes().unwrap();
    let cut = &armoured[0][..armoured[0].len() / 2];
    for broken in [&b""[..], b"not a key", secret.as_bytes(), &secret_binary, cut.as_bytes()] {
        let error = Keyring::parse(broken).unwrap_err();
        assert_eq!(error.reason(), Reason::VerificationInvalid);
    }
}

#[test]
fn a_provenance_is_by_a_few_at_most() {
    let (builder, other) = (key(true), key(true));
    let archive = Digest::of(b"archive");
    let sign = |by: &SignedSecretKey, text: &str| {
        let mut config = SignatureConfig::from_key(OsRng, &by.primary_key, SignatureType::Text).unwrap();
        let created = SubpacketData::SignatureCreationTime(made());
        config.hashed_subpackets = vec![Subpacket::regular(created).unwrap()];
        config.sign(&by.primary_key, &Password::empty(), text.as_bytes()).unwrap()
    };
    for (others, judged) in [(MAX_SIGNATURES - 1, Ok(())), (MAX_SIGNATURES, Err(Flaw::OtherKey))] {
        let message = CleartextSignedMessage::new_many(&text(archive), |text| {
            Ok((0..others).map(|_| sign(&other, text)).chain([sign(&builder, text)]).collect())
        });
        let text = message.unwrap().to_armored_string(ArmorOptions::default()).unwrap();
        assert_eq!(keyring(&[&builder]).accepts(text.as_bytes(), archive, NOW), judged, "{others}");
    }
}
