//! Signatures that cosign stores under the tag `sha256-<digest>.sig`.

use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use oci_spec::image::ImageManifest;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::claimed_signature::ClaimedSignature;
use super::flaw::Flaw;
use super::log::Entry;
use super::statement;
use crate::error::ArtifactError;
use crate::storage::digest::Digest;

/// Media type of a signed layer.
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const LOG_ENTRY: &str = "dev.sigstore.cosign/bundle";

/// A signature: its payload is a blob, the other parts are annotations of the layer.
#[derive(Debug)]
pub(super) struct Signature {
    pub(super) payload: Digest,
    annotations: HashMap<String, String>,
}

/// Returns the tag of a manifest's signatures.
pub(super) fn tag(digest: Digest) -> String {
    format!("sha256-{}.sig", digest.hex())
}

/// Returns the signatures under the tag.
pub(super) fn signatures(what: &str, manifest: &[u8]) -> Result<Vec<Signature>, ArtifactError> {
    let unreadable = || ArtifactError::invalid(what, "not an OCI image manifest");
    let manifest: ImageManifest = serde_json::from_slice(manifest).map_err(|_| unreadable())?;
    let layers = manifest.layers().iter().filter(|layer| layer.media_type().to_string() == PAYLOAD);
    layers
        .map(|layer| {
            let annotations = layer.annotations().clone().unwrap_or_default();
            Ok(Signature {
                payload: layer.digest().to_string().parse().map_err(|_| unreadable())?,
                annotations,
            })
        })
        .collect()
}

impl Signature {
    /// Returns the signature with its payload, if that is for the manifest with this digest.
    pub(super) fn read(&self, payload: &[u8], digest: Digest) -> Result<ClaimedSignature, Flaw> {
        statement::simple(payload, digest)?;
        let unreadable = || Flaw::Unreadable("its signature");
        let signature = self.annotations.get(SIGNATURE).ok_or_else(unreadable)?;
        let signature = STANDARD.decode(signature).map_err(|_| unreadable())?;
        // A signature by key has both as empty text.
        let annotation = |name: &str| self.annotations.get(name).filter(|text| !text.is_empty());
        let certificate = annotation(CERTIFICATE)
            .map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).map(|der| der.to_vec()))
            .transpose()
            .map_err(|_| Flaw::Unreadable("its certificate"))?;
        let entries: Result<Vec<Entry>, Flaw> =
            annotation(LOG_ENTRY).into_iter().map(|json| Entry::attached(json)).collect();
        Ok(ClaimedSignature {
            message: payload.to_vec(),
            payload: Digest::of(payload),
            signature,
            certificate,
            entries: entries?,
            // A timestamp in an annotation is not needed: an entry here has the log's promise, which contains the
            // time.
            timestamps: Vec::new(),
        })
    }
}
