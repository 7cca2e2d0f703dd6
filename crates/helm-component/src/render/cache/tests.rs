use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::sync::Semaphore;

use super::super::helm::tests::{chart, request};
use super::*;
use crate::render::Reads;

const CERTAIN: &str = "kind: ConfigMap\nvalue: {{ .Values.value }}\n";
const BY_CHANCE: &str = "kind: Secret\npassword: {{ randAlphaNum 24 }}\n";

/// Counts its renders, each of which is another text and needs a permit to end.
struct Counting {
    renders: AtomicUsize,
    permits: Semaphore,
}

impl Counting {
    fn with_permits(permits: usize) -> Self {
        Self { renders: AtomicUsize::new(0), permits: Semaphore::new(permits) }
    }
}

impl Renderer for Counting {
    fn render<'a>(&'a self, _: &'a RenderRequest) -> BoxFuture<'a, Result<Rendered, RenderError>> {
        async move {
            let number = self.renders.fetch_add(1, Ordering::SeqCst);
            self.permits.acquire().await.unwrap().forget();
            Ok(Rendered { manifest: number.to_string().into(), reads: Reads::Unknown })
        }
        .boxed()
    }
}

fn of(files: &[(&str, &str)]) -> RenderRequest {
    request(&chart(files), json!({"value": 1}))
}

async fn text(renderer: &CachingRenderer<Counting>, request: &RenderRequest) -> String {
    renderer.render(request).await.unwrap().manifest.to_string()
}

fn count(renderer: &CachingRenderer<Counting>) -> usize {
    renderer.inner.renders.load(Ordering::SeqCst)
}

#[tokio::test]
async fn what_goes_by_chance_is_nobody_elses() {
    let renderer = CachingRenderer::new(Counting::with_permits(9));
    let by_chance = of(&[("templates/a.yaml", BY_CHANCE)]);
    assert_ne!(text(&renderer, &by_chance).await, text(&renderer, &by_chance).await);
    let taken = chart(&[("templates/a.yaml", "{{ tpl .Values.value . }}")]);
    let by_value = request(&taken, json!({"value": "{{ uuidv4 }}"}));
    assert_ne!(text(&renderer, &by_value).await, text(&renderer, &by_value).await);
    let certain = of(&[("templates/a.yaml", CERTAIN)]);
    assert_eq!(text(&renderer, &certain).await, text(&renderer, &certain).await);
    assert_eq!(count(&renderer), 5);
}
