//! kyma-operator as a process: flags, permissions and metrics.

pub(crate) mod args;
pub(crate) mod metrics;
pub(crate) mod program;
pub(crate) mod rbac;
