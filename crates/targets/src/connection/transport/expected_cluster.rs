//! The cluster that a request is meant for, and the path that identifies a cluster.

/// The uid of the cluster that a request is meant for: an extension of requests that write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedCluster(pub(crate) String);

/// Path read on each new connection for writes: the uid of kube-system identifies the cluster.
pub(super) const IDENTITY_PATH: &str = "/api/v1/namespaces/kube-system";
