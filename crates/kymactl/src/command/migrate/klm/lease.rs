//! Determines from KLM's Lease whether KLM runs.
//!
//! The time in a Lease is that of the holder's clock, and is not compared with another clock: a Lease that does not
//! change for its whole duration, as this process measures it, is not renewed.

use std::{pin::pin, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use kyma_api::klm;
use tokio::{sync::OnceCell, time::timeout};

use crate::{error::Error, output};

/// Duration of a Lease without one: KLM's default.
const DEFAULT_DURATION: Duration = Duration::from_mins(3);
/// Maximum duration to wait for.
const MAX_DURATION: Duration = Duration::from_mins(10);

/// Whether KLM runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KlmState {
    /// KLM renews its Lease.
    Runs,
    /// KLM released its Lease, or did not renew it for its whole duration.
    Stopped,
    /// There is no Lease: KLM may run without leader election, or on another cluster.
    Unknown,
}

/// Observes the Lease once for all Kymas.
#[derive(Default)]
pub(super) struct LeaseObserver {
    observed: OnceCell<LeaseObservation>,
}

/// The Lease at the end of the observation.
struct LeaseObservation {
    state: KlmState,
    version: Option<String>,
}

impl LeaseObserver {
    /// Returns the state of KLM according to its Lease. The first call waits, at most for the duration of the Lease.
    pub(super) async fn state(&self, hub: &Client, namespace: &str) -> Result<KlmState, Error> {
        let leases: Api<Lease> = Api::namespaced(hub.clone(), namespace);
        let observed = self.observed.get_or_try_init(|| observe(&leases)).await?;
        if observed.state != KlmState::Stopped {
            return Ok(observed.state);
        }
        // KLM may have been started since.
        let now = leases.get_opt(klm::LEASE).await?;
        Ok(match now {
            None => KlmState::Unknown,
            Some(lease) if lease.resource_version() == observed.version || !is_held(&lease) => {
                KlmState::Stopped
            }
            Some(_) => KlmState::Runs,
        })
    }
}

async fn observe(leases: &Api<Lease>) -> Result<LeaseObservation, Error> {
    let first = leases.get_opt(klm::LEASE).await?;
    if let Some(state) = judge(first.as_ref(), None) {
        return Ok(LeaseObservation { state, version: first.and_then(|lease| lease.resource_version()) });
    }
    let duration = duration_of(first.as_ref());
    output::remark(&format!("waiting up to {} s to see whether KLM renews its Lease", duration.as_secs()));
    // The watch only ends the wait early. If it fails, the Lease is still read at the end.
    timeout(duration, until_changed(leases, first.as_ref())).await.ok();
    let last = leases.get_opt(klm::LEASE).await?;
    let state = judge(last.as_ref(), first.as_ref()).unwrap_or(KlmState::Stopped);
    Ok(LeaseObservation { state, version: last.and_then(|lease| lease.resource_version()) })
}

/// Follows the Lease until it differs from an earlier read.
async fn until_changed(leases: &Api<Lease>, first: Option<&Lease>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={}", klm::LEASE));
    let mut events = pin!(watcher(leases.clone(), config).default_backoff());
    while let Some(event) = events.next().await {
        let is_change = match event {
            Ok(Event::Apply(lease) | Event::InitApply(lease)) => judge(Some(&lease), first).is_some(),
            Ok(Event::Delete(_)) => true,
            _ => false,
        };
        if is_change {
            return;
        }
    }
}

/// Compares a Lease with an earlier read. Returns `None` if only a later read can decide. Pure.
fn judge(lease: Option<&Lease>, before: Option<&Lease>) -> Option<KlmState> {
    let Some(lease) = lease else { return Some(KlmState::Unknown) };
    if !is_held(lease) {
        return Some(KlmState::Stopped);
    }
    let changed = before.is_some_and(|before| before.resource_version() != lease.resource_version());
    changed.then_some(KlmState::Runs)
}

fn is_held(lease: &Lease) -> bool {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    holder.is_some_and(|holder| !holder.is_empty())
}

fn duration_of(lease: Option<&Lease>) -> Duration {
    let seconds = lease.and_then(|lease| lease.spec.as_ref()?.lease_duration_seconds);
    let named = seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
    named.map_or(DEFAULT_DURATION, Duration::from_secs).min(MAX_DURATION)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(holder: &str, version: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"resourceVersion": version},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 180, "renewTime": "2001-01-01T00:00:00.000000Z"},
        }))
        .unwrap()
    }

    #[test]
    fn no_clock_is_asked_whether_a_lease_is_renewed() {
        let (old, renewed) = (lease("klm", "1"), lease("klm", "2"));
        assert_eq!(judge(Some(&old), None), None, "its time says nothing");
        assert_eq!(judge(Some(&old), Some(&old)), None);
        assert_eq!(judge(Some(&renewed), Some(&old)), Some(KlmState::Runs));
    }

    #[test]
    fn released_lease_shows_klm_stopped_and_missing_lease_nothing() {
        assert_eq!(judge(Some(&lease("", "1")), None), Some(KlmState::Stopped));
        assert_eq!(judge(Some(&Lease::default()), None), Some(KlmState::Stopped));
        assert_eq!(judge(None, None), Some(KlmState::Unknown));
        assert_eq!(judge(None, Some(&lease("klm", "1"))), Some(KlmState::Unknown));
    }

    #[test]
    fn the_duration_of_a_lease_is_bounded() {
        let of = |seconds: i32| {
            let lease = json!({"spec": {"leaseDurationSeconds": seconds}});
            duration_of(serde_json::from_value(lease).ok().as_ref()).as_secs()
        };
        assert_eq!([of(15), of(0), of(-5), of(i32::MAX)], [15, 180, 180, 600]);
        assert_eq!(duration_of(None), DEFAULT_DURATION);
    }
}
