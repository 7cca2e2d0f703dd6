//! Discovery of a target: kinds, their resources and scopes, and its version.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::Mutex;

use crate::error::{Action, CallError};
use crate::object::Gvk;

pub(crate) mod kinds;

pub(crate) use kinds::{CRD_VERBS, crd_mappings};
pub use kinds::{Kinds, Mapping};

/// Discovery cache of a target: read once, and again on request.
#[derive(Debug, Default)]
pub struct Discovery {
    cached: Mutex<Option<Arc<Kinds>>>,
}

impl Discovery {
    /// Returns an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the served kinds; sends three requests if nothing is cached.
    ///
    /// # Errors
    /// The target's failure. A broken aggregated API is no error: its group is [`Kinds::is_unknown`].
    pub async fn kinds(&self, client: &Client) -> Result<Arc<Kinds>, CallError> {
        let mut cached = self.cached.lock().await;
        if let Some(kinds) = cached.as_ref() {
            return Ok(Arc::clone(kinds));
        }
        renew(&mut cached, client).await
    }

    /// Returns the same as [`Discovery::kinds`], but repeats discovery once if the cache has one of these kinds in no
    /// version: only a new answer proves that a kind is not served.
    ///
    /// # Errors
    /// As for [`Discovery::kinds`].
    pub async fn covering(&self, client: &Client, kinds: &BTreeSet<Gvk>) -> Result<Arc<Kinds>, CallError> {
        let known = self.kinds(client).await?;
        if kinds.iter().all(|kind| known.any(kind).is_some()) {
            return Ok(known);
        }
        self.newer_than(&known, client).await
    }

    /// Returns the same as [`Discovery::kinds`], but repeats discovery if `known` and the cache come from the same one:
    /// concurrent callers that miss a kind in the same result share one refresh. Kinds that CRDs added to the cache
    /// since do not make it newer.
    ///
    /// # Errors
    /// As for [`Discovery::kinds`]; the cache then stays.
    pub async fn newer_than(&self, known: &Arc<Kinds>, client: &Client) -> Result<Arc<Kinds>, CallError> {
        let mut cached = self.cached.lock().await;
        if let Some(kinds) = cached.as_ref().filter(|kinds| !Arc::ptr_eq(&kinds.discovery, &known.discovery))
        {
            return Ok(Arc::clone(kinds));
        }
        renew(&mut cached, client).await
    }

    /// Repeats discovery and returns the served kinds.
    ///
    /// # Errors
    /// As for [`Discovery::kinds`]; the cache then stays.
    pub async fn rediscover(&self, client: &Client) -> Result<Arc<Kinds>, CallError> {
        renew(&mut *self.cached.lock().await, client).await
    }

    /// Adds the kinds of established CRDs to the cache without a request; `crds` has the mappings of each CRD's served
    /// versions in the server's order of preference. Drops the cache if a CRD does more than add kinds or versions:
    /// only a new discovery proves that something is no longer served.
    pub(crate) async fn add_crds(&self, crds: &[Vec<Mapping>]) {
        let mut cached = self.cached.lock().await;
        let Some(kinds) = cached.as_mut() else { return };
        if !crds.iter().all(|crd| kinds.is_extended_by(crd)) {
            *cached = None;
            return;
        }
        for crd in crds {
            if !kinds.has_all(crd) {
                Arc::make_mut(kinds).extend_by(crd);
            }
        }
    }

    /// Drops the cache. Call it when CRDs or `APIService`s changed.
    pub async fn invalidate(&self) {
        *self.cached.lock().await = None;
    }
}

/// Pauses, under two seconds in all, before another try at a kind that was established a moment ago and is not
/// served yet: the API server gives no event for that. A kind that takes longer waits for the caller's next run.
pub(crate) fn serving_pauses() -> impl Iterator<Item = Duration> {
    [20, 50, 100, 200, 400, 800].into_iter().map(Duration::from_millis)
}

async fn renew(cached: &mut Option<Arc<Kinds>>, client: &Client) -> Result<Arc<Kinds>, CallError> {
    let kinds = Arc::new(read(client).await?);
    *cached = Some(Arc::clone(&kinds));
    Ok(kinds)
}

async fn read(client: &Client) -> Result<Kinds, CallError> {
    let failed = |error| CallError::new(Action::Discover, None, error);
    let (core, groups, version) = futures::try_join!(
        client.list_core_api_versions_aggregated(),
        client.list_api_groups_aggregated(),
        client.apiserver_version(),
    )
    .map_err(failed)?;
    let mut kinds = Kinds::of_version(version.git_version);
    kinds.add(core);
    kinds.add(groups);
    Ok(kinds)
}

#[cfg(test)]
mod tests;
