//! A blob to send, and its descriptor.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;

use crate::storage::digest::Digest;

/// A descriptor in an OCI manifest.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Layer {
    pub(super) media_type: &'static str,
    pub(super) digest: Digest,
    pub(super) size: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<&'static str, String>,
}

/// A blob to send.
pub(super) struct Blob {
    pub(super) name: &'static str,
    pub(super) media_type: &'static str,
    pub(super) content: Bytes,
    pub(super) annotations: BTreeMap<&'static str, String>,
}

impl Blob {
    pub(super) fn new(name: &'static str, media_type: &'static str, content: impl Into<Bytes>) -> Self {
        Self { name, media_type, content: content.into(), annotations: BTreeMap::new() }
    }

    pub(super) fn layer(&self) -> Layer {
        Layer {
            media_type: self.media_type,
            digest: Digest::of(&self.content),
            size: self.content.len() as u64,
            annotations: self.annotations.clone(),
        }
    }
}
