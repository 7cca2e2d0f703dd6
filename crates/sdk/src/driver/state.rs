//! The state that the reconciles of one kind of component share.

use kube_runtime::reflector::ObjectRef;
use kyma_controller::{Runtime, Trigger, Watches};

use super::failure_times::FailureTimes;
use super::joined_reads::JoinedReads;
use super::uid_set::UidSet;
use crate::component::Component;
use crate::dependencies::Dependencies;
use crate::status::StatusWriter;

/// Driver of one kind of component, with the state that its reconciles share.
pub(super) struct Driver<C: Component> {
    pub(super) component: C,
    pub(super) runtime: Runtime,
    pub(super) trigger: Trigger<ObjectRef<C::Resource>>,
    pub(super) watches: Watches<ObjectRef<C::Resource>>,
    pub(super) status: StatusWriter<C::Resource>,
    pub(super) dependencies: Dependencies<C::Resource>,
    /// Released components, from the removal of the finalizer until the DELETE event. Their other state is dropped, so a
    /// reconcile of the last watched state would start the removal again.
    pub(super) ended: UidSet<C::Resource>,
    /// Components with the deletion that is proven not to be that of their namespace or CRD.
    pub(super) deleted_alone: UidSet<C::Resource>,
    pub(super) hub_scope_reads: JoinedReads,
    pub(super) manager_failures: FailureTimes<C::Resource>,
    /// Whether the status of the kind has the field [`HANDLED`](crate::contract::HANDLED).
    pub(super) reports_requests: bool,
    /// Whether the driver creates the default CR: the status of the kind can record it, and the component does not
    /// create it itself.
    pub(super) creates_default_resource: bool,
}
