//! Pool of the connections to a server, and the addresses of requests to it.

use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::Body;

/// Time after which an idle connection is closed. A burst on many targets leaves many of them.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Returns a pool of the dialer's connections. `max_idle` is the maximum number of calls in flight: with fewer idle
/// connections, each further call of a burst would open one, and verify it before a write.
pub(super) fn pool<D>(dialer: D, max_idle: usize) -> HyperClient<D, Body>
where
    D: Connect + Clone,
{
    HyperClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(max_idle)
        // The caller decides whether to repeat a request that the server may have received.
        .retry_canceled_requests(false)
        .build(dialer)
}

/// Returns the request's path and query below the server's URL.
pub(super) fn absolute(base: &Uri, relative: &Uri) -> Option<Uri> {
    let path = relative.path_and_query().map_or("/", |path| path.as_str());
    let path = format!("{}{path}", base.path().trim_end_matches('/'));
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(path.parse().ok()?);
    Uri::from_parts(parts).ok()
}
