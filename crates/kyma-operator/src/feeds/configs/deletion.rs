//! Whether a ModuleConfig that is missing was deleted on purpose.
//!
//! A ModuleConfig forces values and policies on targets, so a list that lacks it, a restored backup, a CRD or namespace
//! that is being deleted and the garbage collector do not lift it.

use kube::Api;
use kube::CustomResourceExt;
use kube::api::PartialObjectMeta;
use kyma_api::ModuleConfig;

use crate::config::{Config, ConfigUids};
use crate::error::Error;
use crate::scope;
use crate::state::State;

/// Whether the end that the watch told of was requested: not with the CRD or the namespace, and not by the garbage
/// collector.
pub(super) async fn is_meant(state: &State, config: &Config) -> Result<bool, Error> {
    if config.is_dependent {
        return Ok(false);
    }
    let intact = intact_since(state).await?;
    // A CRD or namespace that was made after it took it away before.
    Ok(intact.is_some_and(|since| config.created.is_none_or(|created| since <= created)))
}

/// Whether the hub shows that it was deleted: the last list has others, and it cannot be read.
pub(super) async fn is_shown(state: &State, name: &str) -> Result<bool, Error> {
    if !state.configs().has_listed() {
        return Ok(false);
    }
    let known = state.configs().get(name).cloned();
    if known.is_some_and(|config| config.is_dependent) {
        return Ok(false);
    }
    let namespace = &state.runtime.settings.hub_namespace;
    let api: Api<PartialObjectMeta<ModuleConfig>> = Api::namespaced(state.runtime.hub.clone(), namespace);
    let live = api.get_opt(name).await;
    let live = live.map_err(|source| Error::ReadConfig { name: name.to_owned(), source })?;
    Ok(live.is_none() && intact_since(state).await?.is_some())
}

/// Accepts the deletion of those ModuleConfigs on record that the hub shows to be deleted; returns the others.
///
/// # Errors
/// If the hub does not answer.
pub(crate) async fn explain(state: &State, recorded: &ConfigUids) -> Result<ConfigUids, Error> {
    let unaccounted = state.configs().unaccounted(recorded);
    let mut left = ConfigUids::new();
    for (name, uid) in unaccounted {
        let is_known = state.configs().is_unexplained(&name, &uid);
        if !is_known && is_shown(state, &name).await? {
            state.configs_mut().accept(&name, &uid);
            continue;
        }
        if state.configs_mut().leave_unexplained(&name, &uid) {
            tracing::warn!(config = name, uid, "ModuleConfig on record is missing and stays in force");
        }
        left.insert(name, uid);
    }
    Ok(left)
}

async fn intact_since(state: &State) -> Result<Option<jiff::Timestamp>, Error> {
    scope::intact_since(state, &state.runtime.settings.hub_namespace, ModuleConfig::crd_name()).await
}
