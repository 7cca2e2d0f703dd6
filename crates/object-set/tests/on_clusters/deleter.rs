//! A delete gate for tests, which allows everything that the rules of object-set allow.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::{Api, DeleteParams, DynamicObject, Preconditions};
use kyma_object_set::{Action, CallError, Deleter, Deletion, Identity};

pub(crate) struct OpenGate;

impl Deleter for OpenGate {
    fn permit<'a>(&'a self, _: &'a Identity) -> BoxFuture<'a, Result<(), CallError>> {
        async { Ok(()) }.boxed()
    }

    fn carry_out<'a>(
        &'a self,
        client: &'a kube::Client,
        deletion: Deletion<'a>,
    ) -> BoxFuture<'a, Result<bool, CallError>> {
        async move {
            let (identity, resource) = (deletion.identity, deletion.resource);
            assert_eq!(deletion.proof.refusal(&identity.group, &identity.kind), None, "{identity}");
            let entries = deletion.live.managed_fields.iter().flatten();
            let mut authors = entries.filter_map(|entry| entry.manager.as_deref());
            assert!(authors.any(|author| deletion.managers.contains(&author)), "{identity}");
            let api: Api<DynamicObject> = match identity.namespace.as_deref() {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
                None => Api::all_with(client.clone(), resource),
            };
            let params = DeleteParams {
                propagation_policy: Some(deletion.propagation),
                preconditions: Some(Preconditions {
                    uid: deletion.live.uid.clone(),
                    resource_version: deletion.proof.resource_version().map(ToOwned::to_owned),
                }),
                ..DeleteParams::default()
            };
            match api.delete(&identity.name, &params).await {
                Ok(answer) => Ok(answer.is_right()),
                Err(error) => Err(CallError::new(Action::Delete, Some(identity), error)),
            }
        }
        .boxed()
    }
}
