//! Our CRDs on a cluster.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use kyma_api::crds;
use kyma_sdk::missing;

use crate::error::Error;

/// Field manager of what this program itself applies.
pub(super) const MANAGER: &str = "kymactl";

/// Installs the CRDs that are not there or lack something; newer ones stay as they are.
pub(super) async fn install(client: &Client) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds::all() {
        let name = crd.name_any();
        let up_to_date =
            api.get_opt(&name).await?.is_some_and(|installed| missing(&installed, &crd).is_empty());
        if up_to_date {
            continue;
        }
        api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&crd)).await?;
        await_condition(api.clone(), &name, is_crd_established())
            .await
            .map_err(|error| Error::input(name, error.to_string()))?;
    }
    Ok(())
}
