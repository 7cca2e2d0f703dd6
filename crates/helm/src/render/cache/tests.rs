use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{join, join_all};
use serde_json::json;
use tokio::sync::Semaphore;

use super::super::helm::tests::{chart, request};
use super::*;
use crate::render::Reads;

const CERTAIN: &str = "kind: ConfigMap\nvalue: {{ .Values.value }}\n";
const NONDETERMINISTIC: &str = "kind: Secret\npassword: {{ randAlphaNum 24 }}\n";
const VERSIONED: &str = "kind: ConfigMap\nversion: {{ .Capabilities.KubeVersion }}\n";

/// Counts its renders. Each gives another text and needs a permit to end.
struct Counting {
    renders: AtomicUsize,
    permits: Semaphore,
    fails: bool,
}

impl Counting {
    fn with_permits(permits: usize) -> Self {
        Self { renders: AtomicUsize::new(0), permits: Semaphore::new(permits), fails: false }
    }

    fn failing() -> Self {
        Self { fails: true, ..Self::with_permits(0) }
    }
}

impl Renderer for Counting {
    fn render<'a>(&'a self, _: &'a RenderRequest) -> BoxFuture<'a, Result<RenderOutput, RenderError>> {
        async move {
            let number = self.renders.fetch_add(1, Ordering::SeqCst);
            self.permits.acquire().await.unwrap().forget();
            if self.fails {
                return Err(RenderError::Engine { detail: number.to_string() });
            }
            Ok(RenderOutput { manifest: number.to_string().into(), reads: Reads::Unknown, warnings: vec![] })
        }
        .boxed()
    }
}

fn of(files: &[(&str, &str)]) -> RenderRequest {
    request(&chart(files), json!({"value": 1}))
}

fn on(request: &RenderRequest, version: &str) -> RenderRequest {
    RenderRequest { kube_version: version.to_owned(), ..request.clone() }
}

fn with_kind(request: &RenderRequest, kind: &str) -> RenderRequest {
    RenderRequest { api_versions: Arc::new(BTreeSet::from([kind.to_owned()])), ..request.clone() }
}

/// Returns the failure of the render.
async fn failure(renderer: &CachingRenderer<Counting>, request: &RenderRequest) -> String {
    renderer.render(request).await.unwrap_err().to_string()
}

/// Reports whether targets of two versions share a render.
async fn is_shared(renderer: &CachingRenderer<Counting>, files: &[(&str, &str)]) -> bool {
    let request = of(files);
    let (one, other) = (on(&request, "v1.34.1"), on(&request, "v1.34.2"));
    text(renderer, &one).await == text(renderer, &other).await
}

async fn text(renderer: &CachingRenderer<Counting>, request: &RenderRequest) -> String {
    renderer.render(request).await.unwrap().manifest.to_string()
}

fn count(renderer: &CachingRenderer<Counting>) -> usize {
    renderer.inner.renders.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_nondeterministic_render_is_not_shared() {
    let renderer = CachingRenderer::new(Counting::with_permits(9));
    let nondeterministic = of(&[("templates/a.yaml", NONDETERMINISTIC)]);
    assert_ne!(text(&renderer, &nondeterministic).await, text(&renderer, &nondeterministic).await);
    let taken = chart(&[("templates/a.yaml", "{{ tpl .Values.value . }}")]);
    let by_value = request(&taken, json!({"value": "{{ uuidv4 }}"}));
    assert_ne!(text(&renderer, &by_value).await, text(&renderer, &by_value).await);
    let certain = of(&[("templates/a.yaml", CERTAIN)]);
    assert_eq!(text(&renderer, &certain).await, text(&renderer, &certain).await);
    assert_eq!(count(&renderer), 5);
}

#[tokio::test]
async fn concurrent_equal_requests_are_rendered_once() {
    let renderer = CachingRenderer::new(Counting::with_permits(0));
    let wanted = of(&[("templates/a.yaml", CERTAIN)]);
    let all = join_all((0..16).map(|_| text(&renderer, &wanted)));
    let (texts, ()) = join(all, async { renderer.inner.permits.add_permits(16) }).await;
    assert_eq!(texts, ["0"; 16]);
    assert_eq!(count(&renderer), 1);
}

#[tokio::test]
async fn render_failure_is_shared_by_waiting_callers_only() {
    let renderer = CachingRenderer::new(Counting::failing());
    let wanted = of(&[("templates/a.yaml", CERTAIN)]);
    let all = join_all((0..16).map(|_| failure(&renderer, &wanted)));
    let (texts, ()) = join(all, async { renderer.inner.permits.add_permits(16) }).await;
    assert!(texts.iter().all(|text| *text == texts[0]) && count(&renderer) == 1, "{texts:?}");
    assert_ne!(failure(&renderer, &wanted).await, texts[0]);
}

#[tokio::test]
async fn a_cancelled_caller_does_not_cancel_a_shared_render() {
    let renderer = CachingRenderer::new(Counting::with_permits(0));
    let wanted = of(&[("templates/a.yaml", CERTAIN)]);
    let mut first = renderer.render(&wanted);
    let second = text(&renderer, &wanted);
    tokio::pin!(second);
    assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
    drop(first);
    renderer.inner.permits.add_permits(1);
    assert_eq!(second.await, text(&renderer, &wanted).await);
}

#[tokio::test]
async fn a_request_with_more_time_does_not_share_a_failure() {
    let renderer = CachingRenderer::new(Counting::failing());
    let wanted = of(&[("templates/a.yaml", CERTAIN)]);
    let patient = RenderRequest { deadline: Some(Duration::from_mins(1)), ..wanted.clone() };
    let both = join(renderer.render(&wanted), renderer.render(&patient));
    let _ = join(both, async { renderer.inner.permits.add_permits(2) }).await;
    assert_eq!(count(&renderer), 2);
}

#[tokio::test]
async fn targets_of_other_versions_share_version_independent_renders() {
    let renderer = CachingRenderer::new(Counting::with_permits(99));
    assert!(is_shared(&renderer, &[("templates/a.yaml", CERTAIN)]).await);
    assert!(
        is_shared(&renderer, &[("templates/a.yaml", "{{ .Capabilities.APIVersions.Has \"v1\" }}")]).await
    );
    for looking in [
        VERSIONED,
        "{{ with .Capabilities }}{{ .KubeVersion }}{{ end }}",
        "{{ toYaml .Capabilities }}",
        "{{ get $ \"Capabilities\" | toJson }}",
    ] {
        assert!(!is_shared(&renderer, &[("templates/a.yaml", looking)]).await, "{looking}");
    }
    let metadata = "apiVersion: v2\nname: demo\nversion: 1.0.0\nkubeVersion: '<1.34.2'\n";
    assert!(!is_shared(&renderer, &[("Chart.yaml", metadata), ("templates/a.yaml", CERTAIN)]).await);
    assert!(
        !is_shared(&renderer, &[("charts/inner/Chart.yaml", metadata), ("templates/a.yaml", CERTAIN)]).await
    );
}

#[tokio::test]
async fn targets_of_other_kinds_share_what_does_not_look_at_the_kinds() {
    let renderer = CachingRenderer::new(Counting::with_permits(99));
    let is_shared = async |template: &str, value: &str| {
        let one = request(&chart(&[("templates/a.yaml", template)]), json!({"value": value}));
        let other = with_kind(&one, "example.org/v2");
        text(&renderer, &one).await == text(&renderer, &other).await
    };
    let taken = "{{ tpl .Values.value . }}";
    assert!(is_shared(CERTAIN, "").await && is_shared(VERSIONED, "").await && is_shared(taken, "").await);
    for looking in ["{{ .Capabilities.APIVersions.Has \"v1\" }}", "{{ toYaml .Capabilities }}"] {
        assert!(!is_shared(looking, "").await && !is_shared(taken, looking).await, "{looking}");
    }
}

#[test]
fn stored_render_serves_other_kinds_unless_chart_reads_them() {
    let stays = |looking: &str| {
        let one = of(&[("templates/a.yaml", &format!("{NONDETERMINISTIC}{looking}"))]);
        let other = with_kind(&one, "example.org/v2");
        assert_ne!(one.digest(), other.digest(), "{looking}");
        one.lasting_digest() == other.lasting_digest()
    };
    assert!(stays("{{ toYaml .Capabilities }}"));
    assert!(!stays("{{ .Capabilities.APIVersions.Has \"v1\" }}"));
}

#[tokio::test]
async fn values_that_are_templates_count_as_the_charts_text() {
    let renderer = CachingRenderer::new(Counting::with_permits(9));
    let taken = chart(&[("templates/a.yaml", "{{ tpl .Values.value . }}")]);
    let looking = request(&taken, json!({"value": "{{ .Capabilities.KubeVersion.Minor }}"}));
    let (one, other) = (on(&looking, "v1.34.1"), on(&looking, "v1.34.2"));
    assert_ne!(text(&renderer, &one).await, text(&renderer, &other).await);
}
