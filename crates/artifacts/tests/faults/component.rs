//! A component version, built in memory and served by a script.

use std::collections::BTreeMap;

use axum::body::Bytes;
use kyma_artifacts::Digest;
use serde_json::json;

use crate::server::{ReceivedRequest, Reply};

pub(crate) const NAME: &str = "example.io/module/sample";
pub(crate) const VERSION: &str = "1.0.0";
pub(crate) const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: sample\n";
pub(crate) const REPOSITORY: &str = "/v2/component-descriptors/example.io/module/sample";

/// Paths below the repository with their content.
#[derive(Clone)]
pub(crate) struct Component {
    pub(crate) content: BTreeMap<String, Bytes>,
    /// Path of the blob with the manifest.
    pub(crate) manifest_blob: String,
}

impl Component {
    pub(crate) fn new() -> Self {
        let descriptor = json!({
            "meta": {"schemaVersion": "v2"},
            "component": {"name": NAME, "version": VERSION, "resources": [{
                "name": "raw-manifest", "type": "PlainText", "version": VERSION,
                "access": {"type": "localBlob", "mediaType": "application/x-yaml",
                           "localReference": Digest::of(MANIFEST.as_bytes())},
            }]},
        });
        Self::with_descriptor(&descriptor.to_string())
    }

    pub(crate) fn with_descriptor(descriptor: &str) -> Self {
        let mut content = BTreeMap::new();
        let mut blob = |bytes: Bytes| {
            let digest = Digest::of(&bytes);
            content.insert(format!("{REPOSITORY}/blobs/{digest}"), bytes);
            digest
        };
        let manifest_blob = format!("{REPOSITORY}/blobs/{}", blob(Bytes::from(MANIFEST)));
        let descriptor = blob(Bytes::from(descriptor.to_owned()));
        let config = json!({"componentDescriptorLayer": {
            "mediaType": "application/vnd.ocm.software.component-descriptor.v2+yaml",
            "digest": descriptor, "size": 1,
        }});
        let config = blob(Bytes::from(config.to_string()));
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.ocm.software.component.config.v1+json",
                "digest": config, "size": 1,
            },
            "layers": [],
        });
        content.insert(format!("{REPOSITORY}/manifests/{VERSION}"), Bytes::from(manifest.to_string()));
        Self { content, manifest_blob }
    }

    /// Returns the response of a correct registry.
    pub(crate) fn serve(&self, request: &ReceivedRequest) -> Reply {
        match self.content.get(&request.path) {
            Some(content) => {
                Reply::ok(content.clone()).header("Docker-Content-Digest", Digest::of(content).to_string())
            }
            None => Reply::status(404),
        }
    }
}
