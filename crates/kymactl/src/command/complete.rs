//! Completes names of objects on the hub in shells.
//!
//! Errors are not shown: if the hub does not answer within the deadline of completions, there are no candidates.

use std::{ffi::OsStr, fmt::Debug};

use clap_complete::ArgValueCompleter;
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use kyma_api::{HelmComponent, Kyma, ModuleReleaseMeta};
use serde::de::DeserializeOwned;

use crate::hub::{GlobalFlags, complete, list_names};

/// Completes names of Kymas.
pub(crate) fn kymas() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| complete(current, in_namespace::<Kyma>))
}

/// Completes names of HelmComponents.
pub(crate) fn components() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| complete(current, in_namespace::<HelmComponent>))
}

/// Completes names of modules.
pub(crate) fn modules() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| complete(current, in_namespace::<ModuleReleaseMeta>))
}

async fn in_namespace<K>(flags: GlobalFlags) -> Option<Vec<String>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let client: Client = flags.client().await.ok()?;
    list_names(&Api::<K>::namespaced(client, flags.namespace())).await
}
