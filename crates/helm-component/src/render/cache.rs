//! Renders kept by the digest of their inputs, so that unchanged input is never rendered twice.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use lru::LruCache;

use super::{RenderError, RenderRequest, Rendered, Renderer};

/// Renders kept at most.
const ENTRIES: NonZeroUsize = NonZeroUsize::new(256).unwrap();
/// Bytes of rendered text kept at most.
const BYTES: usize = 64 << 20;

/// A renderer that remembers: at most 256 renders and 64 MiB of text, least recently used first out.
/// Failures are not kept.
///
/// A render by chance is made anew for whoever asks: what is a password of one component is nothing that another may
/// know. Where it has to stay the same, the caller keeps it.
pub struct CachingRenderer<R> {
    inner: R,
    kept: Mutex<LruCache<String, Rendered>>,
}

impl<R: Renderer> CachingRenderer<R> {
    /// Wraps `inner`.
    pub fn new(inner: R) -> Self {
        Self { inner, kept: Mutex::new(LruCache::new(ENTRIES)) }
    }

    fn get(&self, key: &str) -> Option<Rendered> {
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(key).cloned()
    }

    fn put(&self, key: String, rendered: &Rendered) {
        let mut kept = self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        kept.put(key, rendered.clone());
        let mut bytes: usize = kept.iter().map(|(_, rendered)| rendered.manifest.len()).sum();
        while bytes > BYTES {
            let Some((_, out)) = kept.pop_lru() else { break };
            bytes -= out.manifest.len();
        }
    }
}

impl<R: Renderer> Renderer for CachingRenderer<R> {
    fn render<'a>(&'a self, request: &'a RenderRequest) -> BoxFuture<'a, Result<Rendered, RenderError>> {
        async move {
            if request.chart.goes_by_chance(&request.values) {
                return self.inner.render(request).await;
            }
            let key = request.digest();
            if let Some(kept) = self.get(&key) {
                return Ok(kept);
            }
            let rendered = self.inner.render(request).await?;
            self.put(key, &rendered);
            Ok(rendered)
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
