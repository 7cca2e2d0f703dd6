//! Renders kept by the digest of their inputs, so that unchanged input is never rendered twice.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kyma_artifacts::Flights;

use super::{RenderError, RenderRequest, Rendered, Renderer};
use crate::bounded::BoundedCache;

/// Renders kept at most. Most are some kilobytes: so many that a thousand releases of small charts, removed and installed
/// again, need no second one.
const ENTRIES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Bytes of rendered text kept at most.
const BYTES: usize = 64 << 20;

/// A renderer that remembers: at most 4,096 renders and 64 MiB of text, least recently used first out. What many ask for
/// at once is rendered once. A failure is shared by those who wait for it, and not kept.
///
/// A render by chance is made anew for whoever asks: what is a password of one component is nothing that another may
/// know. Where it has to stay the same, the caller keeps it.
pub struct CachingRenderer<R> {
    inner: Arc<R>,
    /// By digest of the request.
    kept: Arc<BoundedCache<String, Rendered>>,
    /// By digest and deadline: who gives a chart more time does not share a failure of less.
    flights: Flights<(String, Option<Duration>), Rendered, RenderError>,
}

impl<R: Renderer> CachingRenderer<R> {
    /// Wraps `inner`.
    pub fn new(inner: R) -> Self {
        let kept = BoundedCache::new(ENTRIES, BYTES, |rendered: &Rendered| rendered.manifest.len());
        Self { inner: Arc::new(inner), kept: Arc::new(kept), flights: Flights::new() }
    }
}

impl<R: Renderer + 'static> Renderer for CachingRenderer<R> {
    fn render<'a>(&'a self, request: &'a RenderRequest) -> BoxFuture<'a, Result<Rendered, RenderError>> {
        async move {
            if request.chart.goes_by_chance(&request.values) {
                return self.inner.render(request).await;
            }
            let key = request.digest();
            if let Some(kept) = self.kept.get(&key) {
                return Ok(kept);
            }
            let flight = (key.clone(), request.deadline);
            let work = || {
                let (inner, kept) = (Arc::clone(&self.inner), Arc::clone(&self.kept));
                let request = request.clone();
                async move {
                    // One that ended since this was asked for.
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
            self.flights.join(flight, work).await
        }
        .boxed()
    }
}

impl Renderer for Arc<dyn Renderer> {
    fn render<'a>(&'a self, request: &'a RenderRequest) -> BoxFuture<'a, Result<Rendered, RenderError>> {
        self.as_ref().render(request)
    }
}

#[cfg(test)]
mod tests;
