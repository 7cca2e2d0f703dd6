//! Renders in which only tests vary.

use std::num::NonZeroUsize;
use std::sync::Arc;

use kyma_api::HelmComponent;
use kyma_artifacts::BoundedCache;
use kyma_helm::render::RenderRequest;

/// Maximum number of kept renders.
const MAX_RENDERS: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Maximum size of all kept renders, in bytes.
const MAX_RENDER_BYTES: usize = 16 << 20;

/// Cache of such renders. The varying results of tests are not used before a user requests tests, and may be
/// passwords: each render is kept for the component that it was made for, not for another one of the same name.
pub(crate) struct OnlyTests(BoundedCache<String, Arc<str>>);

impl Default for OnlyTests {
    fn default() -> Self {
        Self(BoundedCache::new(MAX_RENDERS, MAX_RENDER_BYTES, |text| text.len()))
    }
}

impl OnlyTests {
    /// Returns the kept render of this request for this component.
    pub(crate) fn get(&self, component: &HelmComponent, request: &RenderRequest) -> Option<Arc<str>> {
        self.0.get(&key(component, request))
    }

    pub(crate) fn put(&self, component: &HelmComponent, request: &RenderRequest, text: &Arc<str>) {
        self.0.put(key(component, request), Arc::clone(text));
    }
}

fn key(component: &HelmComponent, request: &RenderRequest) -> String {
    format!("{} {}", component.metadata.uid.as_deref().unwrap_or_default(), request.digest())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use flate2::Compression;
    use kyma_artifacts::archive;
    use kyma_helm::chart::Chart;
    use serde_json::{Value, json};

    use super::*;

    fn chart() -> Arc<Chart> {
        let files = [
            ("demo/Chart.yaml", "apiVersion: v2\nname: demo\nversion: 1.0.0\n"),
            ("demo/templates/a.yaml", "a: b"),
        ];
        let files: BTreeMap<String, Bytes> =
            files.map(|(path, text)| (path.to_owned(), Bytes::from_static(text.as_bytes()))).into();
        let archive = archive::pack(&files, Compression::fast()).unwrap();
        Arc::new(Chart::open(&archive).unwrap())
    }

    fn request(chart: &Arc<Chart>, value: i64) -> RenderRequest {
        RenderRequest {
            chart: Arc::clone(chart),
            release: "demo".to_owned(),
            namespace: "here".to_owned(),
            values: [("value".to_owned(), Value::from(value))].into_iter().collect(),
            kube_version: "v1.34.7".to_owned(),
            api_versions: Arc::default(),
            revision: None,
            crds: true,
            deadline: None,
        }
    }

    #[test]
    fn a_cached_render_belongs_to_one_component_and_one_request() {
        let component = |uid: &str| -> HelmComponent {
            let metadata = json!({"name": "n", "uid": uid});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"source": {}}})).unwrap()
        };
        let (chart, kept) = (chart(), OnlyTests::default());
        let [one, other] = [1, 2].map(|value| request(&chart, value));
        kept.put(&component("a"), &one, &Arc::from("text"));
        assert_eq!(kept.get(&component("a"), &one).as_deref(), Some("text"));
        assert!(kept.get(&component("a"), &other).is_none() && kept.get(&component("b"), &one).is_none());
    }
}
