//! The target of a component.

use kube::ResourceExt;
use kyma_api::{Reason, names};
use kyma_controller::{Failure, Runtime};
use kyma_targets::Target;

use crate::contract::{ComponentResource, Contract};
use crate::identity::{is_local_component, recorded_uid};

/// Returns the target that a component names, or the hub if a flag makes it the target.
pub(crate) async fn target_of<R: ComponentResource>(
    runtime: &Runtime,
    resource: &R,
    contract: &Contract,
) -> Result<Target, Failure> {
    let recorded = recorded_uid(resource);
    if is_local_component(runtime, resource, contract, recorded.as_deref())? {
        return Ok(runtime.access.local());
    }
    if let Some(reference) = &contract.spec.target.kubeconfig_secret_ref {
        return runtime.access.target(reference).await;
    }
    let message = "spec.target.kubeconfigSecretRef is missing, and the hub is not a target here";
    Err(Failure::new(Reason::AccessInvalid, message))
}

pub(crate) fn owner<R: ComponentResource>(resource: &R) -> String {
    names::owner_hash(&resource.namespace().unwrap_or_default(), &resource.name_any())
}
