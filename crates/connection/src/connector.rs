//! The parts of a connection in which the operators differ.

use std::sync::Arc;

use kyma_api::Kyma;
use kyma_controller::{Failure, KymaKey, Runtime};
use kyma_targets::Target;

/// When an operator sets the labels of a namespace on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceLabels {
    /// Whenever one of them differs.
    Ensured,
    /// Only when it creates the namespace: its role permits no other write.
    SetOnCreation,
}

/// An operator that connects to the targets of Kymas.
pub trait Connector: Sync {
    /// When the operator sets the labels of namespaces on targets.
    const NAMESPACE_LABELS: NamespaceLabels;

    /// Returns the clients and settings of the operator.
    fn runtime(&self) -> &Runtime;

    /// Sets the access Secrets that the Kyma depends on. A change of one of them requeues the Kyma.
    fn record_access_secrets(&self, kyma: &KymaKey, secrets: Vec<String>);

    /// Returns whether the operator writes the stamp to the target of this Kyma. Called only if the stamp differs.
    ///
    /// # Errors
    /// The hub does not answer, or the target must not be used.
    fn may_stamp(&self, kyma: &Kyma) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// Caches a Kyma as read from or written to the hub, until the watch delivers it. Default: it is not cached.
    fn record_kyma(&self, _kyma: &Arc<Kyma>) {}

    /// Handles a target that answers, but whose verification failed. Default: its client and what was read from it stay
    /// cached.
    fn discard_refused(&self, _target: &Target) {}
}
