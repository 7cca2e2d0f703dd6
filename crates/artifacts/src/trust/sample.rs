//! A Sigstore instance for tests: authority, logs and their output. Shared with the tests against a real registry.

#![allow(dead_code, reason = "each of the two uses a part of it")]

#[path = "sample_timestamp.rs"]
mod timestamp;

use std::time::{Duration, UNIX_EPOCH};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType, SerialNumber, SigningKey as _,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

pub(crate) use timestamp::TimestampAuthority;

pub(crate) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
pub(crate) const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";
pub(crate) const ISSUER: &str = "https://accounts.example.org";
pub(crate) const SUBJECT: &str = "https://example.org/builds/release.yaml@refs/tags/v1";
/// Time at which everything was in use, in Unix seconds.
pub(crate) const NOW: i64 = 1_750_000_000;

/// `NOW` in the format of timestamps.
const STAMP: &str = "20250615150640Z";
const IN_TOTO: &str = "application/vnd.in-toto+json";
const LOG: &str = "rekor.example.org";
const CODE_ISSUER: &[u64] = &[1, 3, 6, 1, 4, 1, 57264, 1, 8];
const TIMESTAMPS: &[u64] = &[1, 3, 6, 1, 4, 1, 11129, 2, 4, 2];

/// An authority with an intermediate certificate, a transparency log and a certificate log.
pub(crate) struct Sigstore {
    timestamps: TimestampAuthority,
    root: CertifiedIssuer<'static, KeyPair>,
    fulcio: CertifiedIssuer<'static, KeyPair>,
    rekor: KeyPair,
    certificate_log: KeyPair,
}

/// Options of a signature to make.
#[derive(Clone)]
pub(crate) struct SignatureOptions {
    /// SHA-256 of the manifest, in hex.
    pub(crate) digest: String,
    pub(crate) subject: SanType,
    pub(crate) issuer: String,
    pub(crate) predicate: String,
    /// Time at which the log took the entry.
    pub(crate) time: i64,
    /// Whether the certificate is for signing code.
    pub(crate) for_code: bool,
    /// Whether a certificate log has the certificate.
    pub(crate) logged: bool,
    /// Whether the transparency log has the hash of the signed message instead of the envelope.
    pub(crate) by_hash: bool,
}

impl SignatureOptions {
    /// Returns options for a valid signature of the manifest with this SHA-256.
    pub(crate) fn of(digest: &str) -> Self {
        Self {
            digest: digest.to_owned(),
            subject: SanType::URI(SUBJECT.try_into().unwrap()),
            issuer: ISSUER.to_owned(),
            predicate: SIGNED.to_owned(),
            time: NOW,
            for_code: true,
            logged: true,
            by_hash: false,
        }
    }
}

impl Sigstore {
    pub(crate) fn new() -> Self {
        let authority = |name: &str| {
            let mut parameters = CertificateParams::default();
            parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            parameters.distinguished_name.push(DnType::CommonName, name);
            (parameters, KeyPair::generate().unwrap())
        };
        let (parameters, key) = authority("root");
        let root = CertifiedIssuer::self_signed(parameters, key).unwrap();
        let (parameters, key) = authority("fulcio");
        let fulcio = CertifiedIssuer::signed_by(parameters, key, &root).unwrap();
        let (rekor, certificate_log) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let timestamps = TimestampAuthority::new(ExtendedKeyUsagePurpose::TimeStamping);
        Self { timestamps, root, fulcio, rekor, certificate_log }
    }

    /// Returns its `trusted_root.json`, in use from two days before to two days after.
    pub(crate) fn trusted_root(&self) -> Value {
        let used = json!({"start": "2025-06-13T00:00:00Z", "end": "2025-06-17T00:00:00Z"});
        let log = |key: &KeyPair| {
            let der = key.subject_public_key_info();
            json!({
                "baseUrl": "https://example.org", "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": STANDARD.encode(&der), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": used,
                },
                "logId": {"keyId": STANDARD.encode(sha256(&der))},
            })
        };
        let certificate = |der: &[u8]| json!({"rawBytes": STANDARD.encode(der)});
        json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(&self.rekor)],
            "certificateAuthorities": [{
                "subject": {"organization": "o", "commonName": "c"}, "uri": "https://example.org",
                "certChain": {"certificates": [certificate(self.fulcio.der()), certificate(self.root.der())]},
                "validFor": used,
            }],
            "ctlogs": [log(&self.certificate_log)],
            "timestampAuthorities": [{
                "subject": {"organization": "o", "commonName": "t"}, "uri": "https://example.org",
                "certChain": {"certificates": self.timestamps.chain().map(certificate)}, "validFor": used,
            }],
        })
    }

    /// Returns a certificate, valid for ten minutes from `NOW` on.
    fn certificate(&self, options: &SignatureOptions, key: &KeyPair) -> Vec<u8> {
        let at = |seconds: i64| (UNIX_EPOCH + Duration::from_secs(seconds.try_into().unwrap())).into();
        let mut parameters = CertificateParams::default();
        parameters.serial_number = Some(SerialNumber::from(7_u64));
        parameters.not_before = at(NOW - 5);
        parameters.not_after = at(NOW + 595);
        parameters.subject_alt_names = vec![options.subject.clone()];
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let usage = if options.for_code {
            ExtendedKeyUsagePurpose::CodeSigning
        } else {
            ExtendedKeyUsagePurpose::ServerAuth
        };
        parameters.extended_key_usages = vec![usage];
        let issuer = element(0x0c, options.issuer.as_bytes());
        parameters.custom_extensions.push(CustomExtension::from_oid_content(CODE_ISSUER, issuer));
        let without = parameters.signed_by(key, &self.fulcio).unwrap().der().to_vec();
        if !options.logged {
            return without;
        }
        let timestamp = element(0x04, &self.timestamp(&without));
        parameters.custom_extensions.push(CustomExtension::from_oid_content(TIMESTAMPS, timestamp));
        parameters.signed_by(key, &self.fulcio).unwrap().der().to_vec()
    }

    /// Returns a list of one signed certificate timestamp.
    fn timestamp(&self, certificate: &[u8]) -> Vec<u8> {
        let body = X509Certificate::from_der(certificate).unwrap().1.tbs_certificate.as_ref().to_vec();
        let time = u64::try_from(NOW * 1000).unwrap().to_be_bytes();
        let issuer = sha256(&self.fulcio.key().subject_public_key_info());
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let signed = [&[0, 0][..], &time, &[0, 1], &issuer, &length[1..], &body, &[0, 0]].concat();
        let signature = self.certificate_log.sign(&signed).unwrap();
        let log = sha256(&self.certificate_log.subject_public_key_info());
        let one = [&[0][..], &log, &time, &[0, 0], &[4, 3], &short(&signature)].concat();
        short(&short(&one))
    }

    /// Returns a bundle with a statement in an envelope.
    pub(crate) fn bundle(&self, options: &SignatureOptions) -> Value {
        let key = KeyPair::generate().unwrap();
        let certificate = self.certificate(options, &key);
        let payload = statement(options);
        let signature = key.sign(&encoded(&payload)).unwrap();
        let enveloped = json!({
            "apiVersion": "0.0.1", "kind": "dsse",
            "spec": {
                "envelopeHash": {"algorithm": "sha256", "value": "00"},
                "payloadHash": {"algorithm": "sha256", "value": hex::encode(sha256(payload.as_bytes()))},
                "signatures": [{"signature": STANDARD.encode(&signature), "verifier": pem(&certificate)}],
            },
        });
        let by_hash = || record(&sha256(&encoded(&payload)), &STANDARD.encode(&signature), &certificate);
        let body = if options.by_hash { by_hash() } else { enveloped };
        let envelope = json!({
            "payload": STANDARD.encode(&payload), "payloadType": IN_TOTO,
            "signatures": [{"sig": STANDARD.encode(&signature)}],
        });
        let material = self.material(options, &certificate, &body);
        json!({"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": envelope})
    }

    /// Returns the verification material of a bundle: the certificate, and the log's entry with this body.
    fn material(&self, options: &SignatureOptions, certificate: &[u8], body: &Value) -> Value {
        json!({
            "certificate": {"rawBytes": STANDARD.encode(certificate)},
            "tlogEntries": [self.entry(options, body)],
        })
    }

    /// Returns a bundle as clients create it with Rekor 2: the log's entry has a proof and no time, which a timestamp
    /// gives.
    pub(crate) fn stamped_bundle(&self, options: &SignatureOptions) -> Value {
        self.stamped_bundle_at(options, STAMP)
    }

    /// Returns the same with a timestamp of this time.
    pub(crate) fn stamped_bundle_at(&self, options: &SignatureOptions, time: &str) -> Value {
        let mut bundle = self.bundle(options);
        let signature = bundle["dsseEnvelope"]["signatures"][0]["sig"].clone();
        let payload = STANDARD.decode(bundle["dsseEnvelope"]["payload"].as_str().unwrap()).unwrap();
        let digest =
            |content: &[u8]| json!({"algorithm": "SHA2_256", "digest": STANDARD.encode(sha256(content))});
        let verifier = json!({
            "keyDetails": "PKIX_ECDSA_P256_SHA_256",
            "x509Certificate": bundle["verificationMaterial"]["certificate"],
        });
        let signed = json!({"content": signature, "verifier": verifier});
        let text = String::from_utf8(payload.clone()).unwrap();
        let body = if options.by_hash {
            let record = json!({"data": digest(&encoded(&text)), "signature": signed});
            json!({"apiVersion": "0.0.2", "kind": "hashedrekord", "spec": {"hashedRekordV002": record}})
        } else {
            let envelope = json!({"payloadHash": digest(&payload), "signatures": [signed]});
            json!({"apiVersion": "0.0.2", "kind": "dsse", "spec": {"dsseV002": envelope}})
        };
        let mut entry = self.entry(options, &body);
        entry
            .as_object_mut()
            .unwrap()
            .retain(|name, _| name != "inclusionPromise" && name != "integratedTime");
        bundle["verificationMaterial"]["tlogEntries"] = json!([entry]);
        let signature = STANDARD.decode(signature.as_str().unwrap()).unwrap();
        let stamp = STANDARD.encode(self.timestamps.response(&signature, time));
        bundle["verificationMaterial"]["timestampVerificationData"] =
            json!({"rfc3161Timestamps": [{"signedTimestamp": stamp}]});
        bundle
    }

    /// Returns a bundle with a signature of the manifest itself.
    pub(crate) fn message_bundle(&self, options: &SignatureOptions, manifest: &[u8]) -> Value {
        let key = KeyPair::generate().unwrap();
        let certificate = self.certificate(options, &key);
        let signature = STANDARD.encode(key.sign(manifest).unwrap());
        let body = record(&sha256(manifest), &signature, &certificate);
        json!({
            "mediaType": BUNDLE,
            "verificationMaterial": self.material(options, &certificate, &body),
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": STANDARD.encode(sha256(manifest))},
                "signature": signature,
            },
        })
    }

    /// Returns payload and annotations of a signature under cosign's tag.
    pub(crate) fn cosign(&self, options: &SignatureOptions) -> (String, Value) {
        let key = KeyPair::generate().unwrap();
        let certificate = self.certificate(options, &key);
        let payload = simple(&options.digest);
        let signature = STANDARD.encode(key.sign(payload.as_bytes()).unwrap());
        let body = record(&sha256(payload.as_bytes()), &signature, &certificate);
        let entry = self.entry(options, &body);
        let attached = json!({
            "SignedEntryTimestamp": entry["inclusionPromise"]["signedEntryTimestamp"],
            "Payload": {
                "body": entry["canonicalizedBody"], "integratedTime": options.time, "logIndex": 1_000,
                "logID": hex::encode(sha256(&self.rekor.subject_public_key_info())),
            },
        });
        let text = String::from_utf8(STANDARD.decode(pem(&certificate)).unwrap()).unwrap();
        let annotations = json!({
            "dev.cosignproject.cosign/signature": signature,
            "dev.sigstore.cosign/certificate": text,
            "dev.sigstore.cosign/chain": text,
            "dev.sigstore.cosign/bundle": attached.to_string(),
        });
        (payload, annotations)
    }

    /// Returns the same with a timestamp of the signature beside it.
    pub(crate) fn stamped_cosign(&self, options: &SignatureOptions) -> (String, Value) {
        let (payload, mut annotations) = self.cosign(options);
        let signature = annotations["dev.cosignproject.cosign/signature"].as_str().unwrap();
        let signature = STANDARD.decode(signature).unwrap();
        let stamp =
            json!({"SignedRFC3161Timestamp": STANDARD.encode(self.timestamps.response(&signature, STAMP))});
        annotations["dev.sigstore.cosign/rfc3161timestamp"] = stamp.to_string().into();
        (payload, annotations)
    }

    /// Returns an entry in a tree of three, with promise and proof.
    fn entry(&self, options: &SignatureOptions, body: &Value) -> Value {
        let id = sha256(&self.rekor.subject_public_key_info());
        let body = body.to_string();
        let promised = format!(
            r#"{{"body":"{}","integratedTime":{},"logID":"{}","logIndex":1000}}"#,
            STANDARD.encode(&body),
            options.time,
            hex::encode(id)
        );
        let leaf = |entry: &[u8]| sha256(&[&[0], entry].concat());
        let node = |left: [u8; 32], right: [u8; 32]| sha256(&[&[1], &left[..], &right].concat());
        let (first, last) = (leaf(b"first"), leaf(b"last"));
        let root = node(node(first, leaf(body.as_bytes())), last);
        let text = format!("{LOG} - 1\n3\n{}\n", STANDARD.encode(root));
        let signature = [&[1, 2, 3, 4], &*self.rekor.sign(text.as_bytes()).unwrap()].concat();
        let checkpoint = format!("{text}\n\u{2014} {LOG} {}\n", STANDARD.encode(signature));
        json!({
            "logIndex": "1000",
            "logId": {"keyId": STANDARD.encode(id)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": options.time.to_string(),
            "inclusionPromise": {
                "signedEntryTimestamp": STANDARD.encode(self.rekor.sign(promised.as_bytes()).unwrap()),
            },
            "inclusionProof": {
                "logIndex": "1", "treeSize": "3", "rootHash": STANDARD.encode(root),
                "hashes": [STANDARD.encode(first), STANDARD.encode(last)],
                "checkpoint": {"envelope": checkpoint},
            },
            "canonicalizedBody": STANDARD.encode(body),
        })
    }
}

/// Returns a bundle with a signature by a key.
pub(crate) fn key_bundle(key: &KeyPair, options: &SignatureOptions) -> Value {
    let payload = statement(options);
    let signature = STANDARD.encode(key.sign(&encoded(&payload)).unwrap());
    json!({
        "mediaType": BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": "a"}},
        "dsseEnvelope": {
            "payload": STANDARD.encode(payload), "payloadType": IN_TOTO, "signatures": [{"sig": signature}],
        },
    })
}

/// Returns payload and annotations of a signature by a key, under cosign's tag.
pub(crate) fn key_cosign(key: &KeyPair, digest: &str) -> (String, Value) {
    let payload = simple(digest);
    let signature = STANDARD.encode(key.sign(payload.as_bytes()).unwrap());
    (payload, json!({"dev.cosignproject.cosign/signature": signature}))
}

fn simple(digest: &str) -> String {
    json!({
        "critical": {
            "identity": {"docker-reference": "registry.example.org/a"},
            "image": {"docker-manifest-digest": format!("sha256:{digest}")},
            "type": "cosign container image signature",
        },
        "optional": null,
    })
    .to_string()
}

fn statement(options: &SignatureOptions) -> String {
    let subject = json!([{"name": "a", "digest": {"sha256": options.digest}}]);
    json!({
        "_type": "https://in-toto.io/Statement/v1", "subject": subject,
        "predicateType": options.predicate, "predicate": {},
    })
    .to_string()
}

fn encoded(payload: &str) -> Vec<u8> {
    format!("DSSEv1 {} {IN_TOTO} {} {payload}", IN_TOTO.len(), payload.len()).into_bytes()
}

fn record(digest: &[u8], signature: &str, certificate: &[u8]) -> Value {
    json!({
        "apiVersion": "0.0.1", "kind": "hashedrekord",
        "spec": {
            "data": {"hash": {"algorithm": "sha256", "value": hex::encode(digest)}},
            "signature": {"content": signature, "publicKey": {"content": pem(certificate)}},
        },
    })
}

/// Returns PEM, encoded as base64 again, as logs store it.
fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let pem = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"));
    STANDARD.encode(pem)
}

fn sha256(content: &[u8]) -> [u8; 32] {
    Sha256::digest(content).into()
}

/// Returns bytes after their length in two bytes.
fn short(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
}

/// Encodes an element in DER.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    let head = if length < 128 { vec![tag, length] } else { vec![tag, 0x81, length] };
    [&head[..], content].concat()
}
