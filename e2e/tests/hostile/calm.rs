//! Reaction times of operators on the healthy target.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::landscape::{HUB_NAMESPACE, TARGET_NAMESPACE};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::{HelmComponent, Kyma, ModuleTemplate, names};
use serde_json::{Value, json};
use testbed::until;

use crate::world::{ANCHOR, CALM, World};

/// Timeout of one reaction.
const REACTION_TIMEOUT: Duration = Duration::from_mins(2);

/// Reaction times of the operators: from an edit of the target's Kyma until the hub's component has it, from drift
/// until it is corrected, and from the deletion of a catalogue entry until it is recreated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reactions {
    pub(crate) edit: Duration,
    pub(crate) drift: Duration,
    pub(crate) copy: Duration,
}

impl Reactions {
    fn each(tries: &[Self], of: impl Fn(Vec<Duration>) -> Duration) -> Self {
        let each = |one: fn(&Self) -> Duration| of(tries.iter().map(one).collect());
        Self {
            edit: each(|tried| tried.edit),
            drift: each(|tried| tried.drift),
            copy: each(|tried| tried.copy),
        }
    }

    /// Returns the median of each.
    pub(crate) fn median(tries: &[Self]) -> Self {
        Self::each(tries, |mut times| {
            times.sort();
            times.get(times.len() / 2).copied().unwrap_or_default()
        })
    }

    pub(crate) fn slowest(tries: &[Self]) -> Duration {
        let Self { edit, drift, copy } =
            Self::each(tries, |times| times.into_iter().max().unwrap_or_default());
        edit.max(drift).max(copy)
    }

    /// Reports whether each is within `bound` of the time before.
    pub(crate) fn within(self, before: Self, bound: impl Fn(Duration) -> Duration) -> bool {
        self.edit <= bound(before.edit)
            && self.drift <= bound(before.drift)
            && self.copy <= bound(before.copy)
    }
}

/// Measures one reaction of each operator.
pub(crate) async fn react(world: &World) -> Result<Reactions> {
    let number = world.next_number();
    Ok(Reactions {
        edit: edit(world, number).await.context("an edit of the calm Kyma")?,
        drift: drift(world, number).await.context("drift on the calm target")?,
        copy: copy(world).await.context("the calm target's catalogue")?,
    })
}

async fn edit(world: &World, number: usize) -> Result<Duration> {
    let kymas: Api<Kyma> = Api::namespaced(world.calm.client()?, TARGET_NAMESPACE);
    let components: Api<HelmComponent> = Api::namespaced(world.hub.clone(), HUB_NAMESPACE);
    let component = names::component_name(CALM, ANCHOR);
    let modules = json!([{"name": ANCHOR, "values": {"number": number}}]);
    let start = Instant::now();
    let edit = Patch::Merge(json!({"spec": {"modules": modules}}));
    kymas.patch("default", &PatchParams::default(), &edit).await?;
    until("the component has it", REACTION_TIMEOUT, || async {
        let found: Value = serde_json::to_value(components.get(&component).await?)?;
        Ok((found["spec"]["userValues"]["number"] == number).then(|| start.elapsed()))
    })
    .await
}

async fn drift(world: &World, number: usize) -> Result<Duration> {
    let maps: Api<ConfigMap> = Api::namespaced(world.calm.client()?, TARGET_NAMESPACE);
    let name = format!("{ANCHOR}-content");
    let start = Instant::now();
    let edit = Patch::Merge(json!({"data": {"version": format!("wrong {number}")}}));
    maps.patch(&name, &PatchParams::default(), &edit).await?;
    until("it is put right", REACTION_TIMEOUT, || async {
        let data = maps.get(&name).await?.data.unwrap_or_default();
        Ok((data.get("version").map(String::as_str) == Some("1.0.0")).then(|| start.elapsed()))
    })
    .await
}

async fn copy(world: &World) -> Result<Duration> {
    let copies: Api<ModuleTemplate> = Api::namespaced(world.calm.client()?, TARGET_NAMESPACE);
    let name = format!("{ANCHOR}-1.0.0");
    let uid = copies.get(&name).await?.uid();
    let start = Instant::now();
    copies.delete(&name, &DeleteParams::default()).await?;
    until("it is back", REACTION_TIMEOUT, || async {
        let found = copies.get_opt(&name).await?;
        Ok(found.is_some_and(|found| found.uid() != uid).then(|| start.elapsed()))
    })
    .await
}

impl std::fmt::Display for Reactions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [edit, drift, copy] = [self.edit, self.drift, self.copy].map(|one| one.as_millis());
        write!(out, "edit {edit} ms, drift {drift} ms, copy {copy} ms")
    }
}
