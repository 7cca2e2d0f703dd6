//! A server that responds by a script, for faults that a real apiserver cannot produce on demand.

mod altered;
mod answer;
mod disorder;
mod forward;
mod interceptor;
mod request;
mod script;
mod serve;

pub use altered::{empty_list, expire_watch, truncate_body};
pub use answer::{Answer, Body};
pub use disorder::{EventDelivery, disorder_events};
pub use interceptor::{InterceptedRequest, Interceptor};
pub use request::{ReceivedRequest, RequestMatcher};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::certificates::Authority;
use crate::client::access::{Access, Credentials};
use crate::cluster::Cluster;
use crate::server::tls::acceptor;
use crate::wait::until;

use forward::Upstream;
use script::{Rule, Script};

/// A TLS server on loopback that looks like an apiserver and responds by a script. Without a rule for a request it
/// passes the request on to the cluster behind it, or responds with 404. It ends when it is dropped, with its open
/// connections, and belongs to the tokio runtime of the test that started it.
///
/// ```no_run
/// use testbed::{Answer, RequestMatcher, ScriptedServer};
///
/// # async fn example(target: &testbed::Cluster) -> anyhow::Result<()> {
/// let target = ScriptedServer::in_front_of(target).await?;
/// target.next(2, RequestMatcher::any().method("PATCH"), Answer::too_many_requests(1));
/// let client = target.access().client()?;
/// // The first two applies get 429 with a retry after one second; all other requests reach the cluster.
/// # Ok(())
/// # }
/// ```
pub struct ScriptedServer {
    access: Access,
    script: Arc<Script>,
    server: JoinHandle<()>,
}

impl ScriptedServer {
    /// Starts a server without a cluster: requests without a rule get 404.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start() -> Result<Self> {
        let access = Access {
            url: String::new(),
            ca: String::new(),
            cluster: "scripted".to_owned(),
            user: "scripted".to_owned(),
            credentials: Credentials::Token("scripted".to_owned()),
        };
        Self::serve(access, None, None).await
    }

    /// Starts a server that passes on requests without a rule. Bearer tokens are passed on; requests without one
    /// are made as the cluster's administrator.
    ///
    /// # Errors
    /// No port is free.
    pub async fn in_front_of(cluster: &Cluster) -> Result<Self> {
        Self::serve(cluster.admin().clone(), Some(Upstream::new(cluster.admin())?), None).await
    }

    /// Starts a server that gives every request to `interceptor` instead of a script. Users are as with
    /// [`Self::in_front_of`].
    ///
    /// # Errors
    /// No port is free.
    pub async fn with(interceptor: Arc<dyn Interceptor>, cluster: &Cluster) -> Result<Self> {
        Self::serve(cluster.admin().clone(), Some(Upstream::new(cluster.admin())?), Some(interceptor)).await
    }

    async fn serve(
        access: Access,
        upstream: Option<Upstream>,
        interceptor: Option<Arc<dyn Interceptor>>,
    ) -> Result<Self> {
        let authority = Authority::new("scripted")?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port")?;
        let access = access.at(format!("https://{}", listener.local_addr()?), authority.pem());
        let script = Arc::new(Script {
            rules: Mutex::default(),
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            unresponsive: AtomicBool::new(false),
            upstream: upstream.map(Arc::new),
            interceptor,
        });
        let tls = acceptor(&authority.server()?)?;
        let server = tokio::spawn(serve::serve(listener, tls, Arc::clone(&script)));
        Ok(Self { access, script, server })
    }

    /// Returns the access to this server; [`Access::at`] with its `url` and `ca` connects another user through it.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Returns another user's access through this server.
    pub fn access_of(&self, user: &Access) -> Access {
        user.at(&self.access.url, &self.access.ca)
    }

    /// Answers the next `count` selected requests. Rules are tried in the order in which they were added.
    pub fn next(&self, count: usize, matcher: RequestMatcher, answer: Answer) {
        self.script.add(Rule { matcher, answer, left: Some(count) });
    }

    /// Answers all selected requests, until [`Self::clear`].
    pub fn always(&self, matcher: RequestMatcher, answer: Answer) {
        self.script.add(Rule { matcher, answer, left: None });
    }

    /// Removes all rules; open responses continue.
    pub fn clear(&self) {
        self.script.rules.lock().clear();
    }

    /// Sets whether new connections are accepted and then ignored, TLS handshake included.
    pub fn set_unresponsive(&self, unresponsive: bool) {
        self.script.unresponsive.store(unresponsive, Ordering::Relaxed);
    }

    /// Returns the number of connections opened so far.
    pub fn connections(&self) -> usize {
        self.script.connections.load(Ordering::Relaxed)
    }

    /// Returns the requests that arrived so far, in order.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.script.requests.lock().clone()
    }

    /// Returns the number of selected requests so far.
    pub fn count(&self, matcher: &RequestMatcher) -> usize {
        self.requests().iter().filter(|request| matcher.fits(request)).count()
    }

    /// Waits until `count` selected requests have arrived.
    ///
    /// # Errors
    /// Fewer requests have arrived within `deadline`.
    pub async fn wait_for(&self, count: usize, matcher: &RequestMatcher, deadline: Duration) -> Result<()> {
        let what = format!("{count} requests like {matcher:?}");
        until(&what, deadline, || async { Ok((self.count(matcher) >= count).then_some(())) }).await
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}
