//! Renders that would be others each time, kept on the hub so that each release is rendered once.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use kyma_api::HelmComponent;
use kyma_sdk::{Context, Failure};

use crate::kept_secret::KeptSecret;
use crate::packed;

/// Type of the Secret.
const TYPE: &str = "component.kyma-project.io/kept-render";
/// Key of the digest of what was rendered.
const REQUEST: &str = "request";
/// Key of what came of it.
const RENDER: &str = "render.yaml.gz";
/// Key of its digest.
const SHA256: &str = "sha256";

/// The render of one component.
pub(crate) struct Frozen {
    secret: KeptSecret,
}

impl Frozen {
    /// That of the component with this owner hash.
    pub(crate) fn of(context: &Context<HelmComponent>, owner: &str) -> Self {
        Self { secret: KeptSecret::of(context, format!("helm-component-render-{owner}"), TYPE) }
    }

    /// What came of this request when it was rendered first; `None` where nothing is kept of it.
    ///
    /// # Errors
    /// The hub does not answer: rendering again could give something else.
    pub(crate) async fn thaw(&self, request: &str) -> Result<Option<Arc<str>>, Failure> {
        let data = self.secret.read().await?.unwrap_or_default();
        let bytes = |key: &str| data.get(key).map(|value| value.0.as_slice()).unwrap_or_default();
        if bytes(REQUEST) != request.as_bytes() {
            return Ok(None);
        }
        let text = packed::unpack(bytes(RENDER), bytes(SHA256));
        Ok(text.and_then(|text| String::from_utf8(text).ok()).map(Arc::from))
    }

    /// Keeps what came of this request, instead of what was kept before. Says why it does not: the render is good all the
    /// same.
    pub(crate) async fn freeze(&self, request: &str, text: &str) -> Option<String> {
        let render = match packed::pack(text.as_bytes()) {
            Ok(render) => render,
            Err(error) => return Some(error.to_string()),
        };
        let sha256 = packed::digest(&render);
        let data = BTreeMap::from([
            (REQUEST, ByteString(request.as_bytes().to_vec())),
            (RENDER, ByteString(render)),
            (SHA256, ByteString(sha256.into_bytes())),
        ]);
        self.secret.write(data).await.err().map(|failure| failure.message)
    }
}
