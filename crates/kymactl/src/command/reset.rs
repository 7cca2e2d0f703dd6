//! `kymactl reset`.

use std::collections::BTreeMap;

use clap::Args;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use kyma_api::{Kyma, names::TARGET_KYMA};
use kyma_controller::Failure;
use kyma_targets::Verdict;
use serde_json::{Value, json};

use crate::{command::target::connection::ConnectionArgs, error::Error, hub::MANAGER, output::Lines};

/// Flags of `kymactl reset`.
#[derive(Args)]
pub(crate) struct Reset {
    /// The Kyma
    #[arg(value_parser = crate::name::kyma, add = crate::command::complete::kymas())]
    kyma: String,
    /// Namespace of the Kyma on the cluster
    #[arg(long, env, default_value = "kyma-system")]
    target_namespace: String,
    /// Apply the changes; without it the command only prints them
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

impl Reset {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let start = self.connection.hub().await?.start(&self.kyma).await?;
        let (target, verdict) = start.proven(&start.secret().await?).await?;
        if let Verdict::FirstContact { .. } = verdict {
            return Err(Error::input(
                &self.kyma,
                "no operator has connected to its cluster yet, so there is nothing to reset",
            ));
        }
        let resource = ApiResource::erase::<Kyma>(&());
        let api: Api<DynamicObject> =
            Api::namespaced_with(target.client(), &self.target_namespace, &resource);
        let failed = |error: kube::Error| Failure::target("the target's Kyma", &error);
        let live = api.get_opt(TARGET_KYMA).await.map_err(failed)?.ok_or_else(|| self.unborn())?;
        let wanted = kyma_operator::initial_spec(&start.kyma);
        let changes = changes(&live.data["spec"], &wanted);
        let mut lines = Lines::new(self.connection.hub.format());
        for change in &changes {
            lines.add(change, change.split(':').next().unwrap_or_default(), change)?;
        }
        if changes.is_empty() {
            lines.sum_up("nothing to reset: the cluster has its initial set")?;
            return lines.finish();
        }
        if !self.yes {
            lines.finish()?;
            return Err(Error::input("--yes", "repeat with it to write this"));
        }
        let body = json!({
            "metadata": { "uid": live.uid(), "resourceVersion": live.resource_version() }, "spec": wanted,
        });
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        api.patch(TARGET_KYMA, &params, &Patch::Merge(&body)).await.map_err(failed)?;
        lines.sum_up(&format!("Kyma {} has its initial set again", self.kyma))?;
        lines.finish()
    }

    fn unborn(&self) -> Error {
        Error::input(
            &self.kyma,
            "its cluster has no Kyma; a new one is created with the initial set, or with the last selection",
        )
    }
}

/// Returns the changes that the initial set makes, one line each.
fn changes(live: &Value, wanted: &Value) -> Vec<String> {
    let (before, after) = (entries(live), entries(wanted));
    let mut lines = Vec::new();
    if live["channel"] != wanted["channel"] {
        let word = |spec: &Value| spec["channel"].as_str().unwrap_or_default().to_owned();
        lines.push(format!("channel: {} instead of {}", word(wanted), word(live)));
    }
    for (name, entry) in &after {
        match before.get(name) {
            None => lines.push(format!("{name}: is added")),
            Some(before) if before != entry => lines.push(format!("{name}: the entry is restored")),
            Some(_) => {}
        }
    }
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    lines.extend(gone.map(|name| format!("{name}: is removed")));
    lines
}

/// Returns entries by name, without fields that have their default value.
fn entries(spec: &Value) -> BTreeMap<String, Value> {
    let entries = spec["modules"].as_array().into_iter().flatten();
    let named = entries.filter_map(|entry| {
        let mut entry = entry.clone();
        let name = entry["name"].as_str()?.to_owned();
        let fields = entry.as_object_mut()?;
        fields.retain(|field, value| match field.as_str() {
            "managed" => *value != json!(true),
            "customResourcePolicy" => *value != json!("CreateAndDelete"),
            _ => true,
        });
        Some((name, entry))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_named_and_an_explicit_default_is_none() {
        let live = json!({ "channel": "fast", "modules": [
            { "name": "keda", "managed": true, "customResourcePolicy": "CreateAndDelete" },
            { "name": "nats", "channel": "fast" }, { "name": "mine" },
        ] });
        let wanted = json!({ "channel": "regular", "modules": [{ "name": "keda" }, { "name": "nats" }, { "name": "otel" }] });
        assert_eq!(
            changes(&live, &wanted),
            [
                "channel: regular instead of fast",
                "nats: the entry is restored",
                "otel: is added",
                "mine: is removed",
            ]
        );
        assert!(changes(&wanted, &wanted).is_empty());
    }
}
