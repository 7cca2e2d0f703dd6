//! Internals that fuzz targets call. Only in their builds: `cargo fuzz` sets the cfg.

use std::collections::BTreeMap;

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use url::Url;

use crate::config::{Config, Limits};
use crate::content::chart::{ChartArchive, index};
use crate::content::ocm::Image;
use crate::error::ArtifactError;
use crate::source::credentials::Credentials;
use crate::storage::digest::Digest;
use crate::trust::Trust;
use crate::{content::archive, content::ocm};

const WHAT: &str = "the artifact";

/// Returns the regular files of an archive.
pub fn files(content: &[u8], limits: &Limits) -> Result<BTreeMap<String, Bytes>, ArtifactError> {
    archive::files(WHAT, content, limits)
}

/// Returns YAML from content that is YAML or an archive of it.
pub fn manifests(content: &Bytes, limits: &Limits) -> Result<Bytes, ArtifactError> {
    crate::content::manifests::yaml_of(WHAT, content, limits)
}

/// Returns media types and digests of an OCI manifest's layers.
pub fn layers(manifest: &[u8]) -> Result<Vec<(String, Digest)>, ArtifactError> {
    crate::content::manifests::layers(WHAT, manifest)
}

/// Parses a chart archive.
pub fn chart(content: Bytes, limits: &Limits) -> Result<ChartArchive, ArtifactError> {
    ChartArchive::parse(WHAT, content, limits)
}

/// Returns address and digest of a chart version, by the index of the repository at `base`.
pub fn locate(
    text: &Bytes,
    base: &Url,
    name: &str,
    version: &str,
) -> Result<(Url, Option<Digest>), ArtifactError> {
    let (address, digest) = index::find(WHAT, text, name, version)?;
    let check = |url: &Url| crate::source::http::Hosts::new(&Config::new("unused")).check(&[base], url);
    Ok((index::resolve(WHAT, base, &address, check)?, digest))
}

/// Reports whether a source at `from` may redirect to `to`, by the default settings.
pub fn may_follow(from: &Url, to: &Url) -> bool {
    crate::source::http::Hosts::new(&Config::new("unused")).check(&[from], to).is_ok()
}

/// Returns the content of a component descriptor: each resource with its local blob, and the images.
pub fn descriptor(
    yaml: &[u8],
    name: &str,
    version: &str,
) -> Result<(Vec<(String, Result<Digest, ArtifactError>)>, Vec<Image>), ArtifactError> {
    let found = ocm::Descriptor::parse(WHAT, yaml, name, version)?;
    let blobs = found.component.resources.iter().map(|one| (one.name.clone(), one.blob(WHAT))).collect();
    Ok((blobs, found.images()))
}

/// Returns the digest of the layer that a component version's config names.
pub fn descriptor_layer(config: &[u8]) -> Option<Digest> {
    serde_json::from_slice::<ocm::Config>(config).ok().map(|config| config.component_descriptor_layer.digest)
}

/// Returns realm and service of the bearer challenge that is answered.
pub fn challenge(header: &[u8]) -> Option<(String, Option<String>)> {
    let header = HeaderValue::from_bytes(header).ok()?;
    crate::source::registry::bearer_challenge(&HeaderMap::from_iter([(WWW_AUTHENTICATE, header)]))
}

/// Reports whether there is a credential for a repository.
pub fn covers(credentials: &Credentials, host: &str, path: &str) -> bool {
    credentials.for_path(host, path).is_some()
}

/// Checks that the signature in a bundle is trusted for a manifest.
pub fn judge_bundle(trust: &Trust, json: &[u8], manifest: &Bytes) -> Result<(), String> {
    trust.accepts_bundle(json, Digest::of(manifest)).map_err(|flaw| flaw.to_string())
}

/// Checks that one of the signatures under cosign's tag, all with this payload, is trusted for a manifest.
pub fn judge_cosign(
    trust: &Trust,
    signatures: &[u8],
    payload: &[u8],
    manifest: &Bytes,
) -> Result<(), String> {
    trust.accepts_any(signatures, payload, Digest::of(manifest))
}

/// Checks that a provenance is trusted for an archive.
pub fn judge_provenance(trust: &Trust, text: &[u8], archive: &Bytes) -> Result<(), String> {
    trust.accepts_provenance(text, Digest::of(archive), NOW).map_err(|flaw| flaw.to_string())
}

/// Time at which the seeds were made, in Unix seconds.
const NOW: i64 = 1_800_000_000;
