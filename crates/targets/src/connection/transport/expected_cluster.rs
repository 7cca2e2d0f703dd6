//! The cluster that must receive a request, and the path that identifies a cluster.

/// Extension of a write request: the uid of the cluster that must receive the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedCluster(pub(crate) String);

/// Path read on each new connection for writes: the uid of kube-system identifies the cluster.
pub(super) const IDENTITY_PATH: &str = "/api/v1/namespaces/kube-system";
