//! Programs and servers of a test environment.

pub(crate) mod apiserver;
pub(crate) mod etcd;
pub(crate) mod infrastructure;
pub(crate) mod plain_http;
pub(crate) mod port;
pub(crate) mod process;
pub(crate) mod registry;
pub(crate) mod tls;
pub(crate) mod workloads;
