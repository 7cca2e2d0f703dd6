//! Cache of renders by the digest of their inputs, so that unchanged inputs are not rendered twice.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kyma_artifacts::{BoundedCache, SingleFlight};

use super::error::RenderError;
use super::renderer::{RenderOutput, Renderer};
use super::request::RenderRequest;

/// Maximum number of kept renders. Most take some kilobytes: a thousand releases of small charts that are removed and
/// installed again need no second render.
const MAX_RENDERS: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Maximum size of all kept renders, in bytes.
const MAX_RENDER_BYTES: usize = 64 << 20;

/// A renderer with a cache: at most 4,096 renders and 64 MiB of text; the least recently used are evicted first.
/// Concurrent equal requests are rendered once. They share a failure, which is not kept.
///
/// A varying render is repeated for each caller: a component's password must not be known to another one. A caller
/// that needs a stable result stores it.
pub struct CachingRenderer<R> {
    inner: Arc<R>,
    /// Renders by digest of the request.
    kept: Arc<BoundedCache<String, RenderOutput>>,
    /// By digest and deadline: a request with more time does not share the failure of one with less.
    single_flight: SingleFlight<(String, Option<Duration>), RenderOutput, RenderError>,
}

impl<R: Renderer> CachingRenderer<R> {
    /// Wraps `inner`.
    pub fn new(inner: R) -> Self {
        let kept = BoundedCache::new(MAX_RENDERS, MAX_RENDER_BYTES, |rendered: &RenderOutput| {
            rendered.manifest.len()
        });
        Self { inner: Arc::new(inner), kept: Arc::new(kept), single_flight: SingleFlight::new() }
    }
}

impl<R: Renderer + 'static> Renderer for CachingRenderer<R> {
    fn render<'a>(&'a self, request: &'a RenderRequest) -> BoxFuture<'a, Result<RenderOutput, RenderError>> {
        async move {
            if request.chart.is_nondeterministic(&request.values) {
                return self.inner.render(request).await;
            }
            let key = request.digest();
            if let Some(kept) = self.kept.get(&key) {
                return Ok(kept);
            }
            let work_key = (key.clone(), request.deadline);
            let work = || {
                let (inner, kept) = (Arc::clone(&self.inner), Arc::clone(&self.kept));
                let request = request.clone();
                async move {
                    // Another render may have finished since this request.
                    if let Some(kept) = kept.get(&key) {
                        return Ok(kept);
                    }
                    let rendered = inner.render(&request).await;
                    if let Ok(rendered) = &rendered {
                        kept.put(key, rendered.clone());
                    }
                    rendered
                }
                .boxed()
            };
            self.single_flight.join(work_key, work).await
        }
        .boxed()
    }
}

impl Renderer for Arc<dyn Renderer> {
    fn render<'a>(&'a self, request: &'a RenderRequest) -> BoxFuture<'a, Result<RenderOutput, RenderError>> {
        self.as_ref().render(request)
    }
}

#[cfg(test)]
mod tests;
