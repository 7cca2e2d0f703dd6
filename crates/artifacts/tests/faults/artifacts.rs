//! Artifacts of a registry, built in memory.

use std::collections::BTreeMap;

use axum::body::Bytes;
use kyma_artifacts::{Digest, archive};
use serde_json::{Value, json};

use crate::server::{ReceivedRequest, Reply};

pub(crate) const CHART_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CHART_CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The content of one repository: blobs and manifests by path below it, and tags.
#[derive(Clone, Default)]
pub(crate) struct Repository {
    content: BTreeMap<String, (String, Bytes)>,
    tags: Vec<String>,
}

impl Repository {
    /// Adds a blob.
    pub(crate) fn blob(&mut self, content: impl Into<Bytes>) -> Digest {
        let content = content.into();
        let digest = Digest::of(&content);
        self.content.insert(format!("blobs/{digest}"), ("application/octet-stream".to_owned(), content));
        digest
    }

    /// Adds a manifest or index, under its digest and tag.
    pub(crate) fn manifest(&mut self, tag: &str, manifest: &Value) -> Digest {
        let content = Bytes::from(manifest.to_string());
        let digest = Digest::of(&content);
        let media_type = manifest["mediaType"].as_str().unwrap_or(MANIFEST).to_owned();
        for name in [digest.to_string(), tag.to_owned()].into_iter().filter(|name| !name.is_empty()) {
            self.content.insert(format!("manifests/{name}"), (media_type.clone(), content.clone()));
        }
        self.tags.extend((!tag.is_empty()).then(|| tag.to_owned()));
        digest
    }

    /// Adds the artifact with these layers: media type, title, content.
    pub(crate) fn artifact(&mut self, tag: &str, config: &str, layers: &[(&str, &str, Bytes)]) -> Digest {
        let empty = self.blob("{}");
        let layers: Vec<Value> = layers
            .iter()
            .map(|(media_type, title, content)| {
                let digest = self.blob(content.clone());
                let mut layer = json!({"mediaType": media_type, "size": content.len(), "digest": digest});
                if !title.is_empty() {
                    layer["annotations"] = json!({"org.opencontainers.image.title": title});
                }
                layer
            })
            .collect();
        let config = json!({"mediaType": config, "size": 2, "digest": empty});
        self.manifest(
            tag,
            &json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}),
        )
    }

    /// Adds a chart.
    pub(crate) fn chart(&mut self, tag: &str, name: &str, version: &str) -> Digest {
        self.artifact(tag, CHART_CONFIG, &[(CHART_CONTENT, "", chart(name, version))])
    }

    /// Returns the registry's response below `/v2/<path>/`.
    pub(crate) fn serve(&self, path: &str, request: &ReceivedRequest) -> Reply {
        let Some(rest) = request.path.strip_prefix(&format!("/v2/{path}/")) else {
            return Reply::status(404);
        };
        if rest.starts_with("tags/list") {
            return Reply::ok(json!({"name": path, "tags": self.tags}).to_string());
        }
        let Some((media_type, content)) = self.content.get(rest) else { return Reply::status(404) };
        Reply::ok(content.clone())
            .header("Content-Type", media_type.clone())
            .header("Docker-Content-Digest", Digest::of(content).to_string())
    }
}

/// Returns a packed chart.
pub(crate) fn chart(name: &str, version: &str) -> Bytes {
    let text = format!("apiVersion: v2\nname: {name}\nversion: {version}\n");
    let files = [(format!("{name}/Chart.yaml"), Bytes::from(text))];
    archive::pack(&files.into(), flate2::Compression::fast()).unwrap()
}
