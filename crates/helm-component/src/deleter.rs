//! Implements the deleter of `object-set` with the delete gate.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use kyma_controller::{Authorship, DeleteError, DeleteGate, DeleteOutcome, DeleteRequest, Failure};
use kyma_object_set::{Action, CallError, Deleter, Deletion, Identity};

/// The delete gate of one reconcile.
pub(crate) struct GatedDeleter(pub(crate) DeleteGate);

impl Deleter for GatedDeleter {
    fn permit<'a>(&'a self, object: &'a Identity) -> BoxFuture<'a, Result<(), CallError>> {
        let permitted = async { self.0.permit().await.map_err(|failure| halted(object, &failure)) };
        permitted.boxed()
    }

    fn carry_out<'a>(
        &'a self,
        client: &'a Client,
        deletion: Deletion<'a>,
    ) -> BoxFuture<'a, Result<bool, CallError>> {
        let deleted = async move {
            let request = DeleteRequest {
                resource: deletion.resource,
                live: deletion.live,
                authorship: Authorship::Managers(deletion.managers),
                proof: deletion.proof,
                propagation: deletion.propagation,
            };
            match self.0.carry_out(client, &request).await {
                Ok(deleted) => Ok(matches!(deleted, DeleteOutcome::Gone)),
                Err(DeleteError::Refused(failure)) => Err(halted(deletion.identity, &failure)),
                Err(DeleteError::Call(error)) => {
                    Err(CallError::new(Action::Delete, Some(deletion.identity), error))
                }
            }
        };
        deleted.boxed()
    }
}

fn halted(object: &Identity, failure: &Failure) -> CallError {
    CallError::halted(object, failure.reason, &failure.message)
}
