//! Reads values from other hub objects and requeues the component when one changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kyma_api::{HelmComponent, HelmComponentSpec, ValuesFromKind};
use kyma_controller::Failure;
use kyma_sdk::Context;

use crate::component_key::ComponentKey;
use crate::hub_secrets::Additions;
use crate::memory::ComponentState;
use crate::pass::Shared;
use crate::referenced::ReferencedValues;
use crate::values::from::FromLayer;

/// Returns the layer of `valuesFrom`, or the problem with an object that it names.
///
/// # Errors
/// If the hub does not answer.
pub(super) async fn read(
    shared: &Shared,
    context: &Context<HelmComponent>,
    component_key: &ComponentKey,
    additions: &Additions,
    state: &mut ComponentState,
) -> Result<Result<Arc<FromLayer>, Failure>, Failure> {
    let entries = context.resource.spec.values_from.as_deref().unwrap_or_default();
    // Registered before the read, so that a change during the read requeues the component.
    subscribe(shared, component_key, &context.resource.spec, Some(additions), &state.injected);
    if entries.is_empty() {
        state.referenced = None;
        return Ok(Ok(Arc::default()));
    }
    let watched: Vec<_> = entries
        .iter()
        .map(|entry| match entry.kind {
            ValuesFromKind::ConfigMap => shared.hub_config_maps.revision(&entry.name),
            ValuesFromKind::Secret => shared.hub_secrets.revision(&entry.name),
        })
        .collect();
    let held = state.referenced.take().filter(|held| held.holds(entries, &watched));
    let referenced = match held {
        Some(held) => held,
        None => ReferencedValues::read(&context.hub, &context.resource, entries).await?,
    };
    let layer = referenced.layer(&state.recorded.values_from);
    state.referenced = Some(referenced);
    Ok(layer)
}

/// Requeues the component when one of these objects changes: those in `valuesFrom`, Secrets whose content its objects
/// receive or may receive, Secrets with keys of signers, and the pull secret.
pub(super) fn subscribe(
    shared: &Shared,
    component_key: &ComponentKey,
    spec: &HelmComponentSpec,
    additions: Option<&Additions>,
    injected: &BTreeSet<String>,
) {
    let entries = spec.values_from.as_deref().unwrap_or_default();
    let pull_secret = spec.source.pull_secret_ref.as_ref().map(|reference| reference.name.as_str());
    let pull_secret = pull_secret.or_else(|| shared.hub_secrets.registry_secret()).map(str::to_owned);
    let of = |kind: ValuesFromKind| {
        entries.iter().filter(move |entry| entry.kind == kind).map(|entry| entry.name.clone())
    };
    let injectable = additions.and_then(|additions| additions.injectable.as_ref());
    let wanted = injected.iter().filter(|_| injectable.is_some());
    let keys = additions.into_iter().flat_map(|additions| additions.verified_by.keys());
    let secrets = injectable.into_iter().flat_map(BTreeMap::keys).chain(wanted).chain(keys).cloned();
    shared.hub_secrets.subscribe(component_key, secrets.chain(of(ValuesFromKind::Secret)).chain(pull_secret));
    shared.hub_config_maps.subscribe(component_key, of(ValuesFromKind::ConfigMap));
}
