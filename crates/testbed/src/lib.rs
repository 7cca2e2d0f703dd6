//! Real control planes for tests, demo and development: etcd, kube-apiservers, controllers, simulated nodes and
//! an OCI registry as processes of this machine, gone when the test is.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use testbed::TestEnv;
//!
//! let test_env = TestEnv::start().await?;
//! let hub = test_env.cluster("hub").await?;
//! let target = test_env.cluster("target").with_workloads().await?;
//! let version = hub.client()?.apiserver_version().await?;
//! println!("{} at {}, {} at {}", hub.name(), hub.url(), target.name(), version.git_version);
//! # Ok(())
//! # }
//! ```
//!
//! - [`TestEnv`]: one etcd and everything that runs over it. [`SharedTestEnv`]: one for all tests of a test binary.
//! - [`Cluster`]: an apiserver with a prefix of that etcd, started with what [`ClusterBuilder`] was asked for:
//!   controllers, nodes whose Pods become Ready, volumes that get bound, load balancers that get an address.
//! - [`Access`]: access of one user to a cluster: administrator, client certificate or `ServiceAccount`.
//! - [`EtcdDump`]: objects of a cluster as they are stored, for a cluster of another test run.
//! - [`Audit`]: the requests to a cluster, counted by user, verb and resource.
//! - [`Registry`]: an OCI registry, plain HTTP on loopback, optionally behind a password.
//! - [`ScriptedServer`]: a server with the faults that a real one cannot produce on demand, alone or in front of one.
//! - [`inputs`]: the directory of third-party test data.
//! - [`free_address`]: an unused address for a server.
//! - [`crd_is_served`], [`crd_is_brought`], [`kind_is_explained`]: waiting for a kind that a CRD brings.
//! - [`until`], [`until_or_why`], [`until_quiet`]: waiting for a condition with a deadline.
//! - [`rounds`]: runs a test repeatedly on the same clusters.
//!
//! The programs come from `cargo xtask setup` ([`Program::path`]).

mod builder;
mod certificates;
mod client;
mod cluster;
mod scripted;
mod server;
mod shared;
mod test_env;
mod tools;
mod wait;

pub use builder::ClusterBuilder;
pub use certificates::{Certificate, Validity};
pub use client::access::{Access, Credentials};
pub use client::access_review::until_access;
pub use client::audit::{Audit, AuditEvent, AuditMark};
pub use client::crd::{crd_is_brought, crd_is_served, kind_is_explained, until_discovered};
pub use client::quiet::until_quiet;
pub use cluster::Cluster;
pub use scripted::{
    Answer, Body, EventDelivery, InterceptedRequest, Interceptor, ReceivedRequest, RequestMatcher,
    ScriptedServer, disorder_events, empty_list, expire_watch, truncate_body,
};
pub use server::etcd::EtcdDump;
pub use server::port::free_address;
pub use server::process::Process;
pub use server::registry::{PasswordProxy, Registry, TlsProxy};
pub use shared::SharedTestEnv;
pub use test_env::TestEnv;
pub use tools::binaries::Program;
pub use tools::inputs::inputs;
pub use tools::rounds::rounds;
pub use wait::{until, until_or_why};
