//! Recovers the choice of a Kyma without a record on hub and target: every module with a component. Pure.

use kyma_api::{KymaModule, ResourcePolicy, Selection};
use serde::Deserialize;
use serde_json::Value;

use super::DEFAULT_CHANNEL;

/// Returns the choice that selects every module with a component, from the components' specs. Other fields come from
/// the hub's initial set.
pub(crate) fn recover_selection<'a>(
    initial: &Selection,
    specs: impl IntoIterator<Item = &'a Value>,
) -> Selection {
    let channel = initial.channel.as_deref().filter(|channel| !channel.is_empty()).unwrap_or(DEFAULT_CHANNEL);
    let modules = specs.into_iter().filter_map(|spec| entry(initial, channel, spec)).collect();
    Selection { channel: initial.channel.clone(), modules }
}

fn entry(initial: &Selection, default_channel: &str, spec: &Value) -> Option<KymaModule> {
    let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let name = text("/module/name")?;
    let known = initial.modules.iter().find(|module| module.name == name).cloned();
    let channel = text("/module/channel");
    let version = if channel.is_none() { text("/module/version") } else { None };
    let policy = spec.get("resourcePolicy").and_then(|policy| ResourcePolicy::deserialize(policy).ok());
    Some(KymaModule {
        channel: channel.filter(|channel| channel != default_channel),
        version,
        values: spec.get("userValues").and_then(Value::as_object).cloned(),
        custom_resource_policy: policy.unwrap_or_default(),
        managed: true,
        ..known.unwrap_or_else(|| KymaModule::new(name))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_module_with_a_component_is_selected_as_it_is_installed() {
        let initial = json!({"channel": "regular", "modules": [
            {"name": "keda", "upgrade": {"mode": "Manual"}}, {"name": "taken-out"},
        ]});
        let specs = [
            json!({"module": {"name": "keda", "version": "1.0.0", "channel": "regular"}, "userValues": {"a": 1}}),
            json!({"module": {"name": "nats", "version": "2.0.0", "channel": "fast"}, "resourcePolicy": "Ignore"}),
            json!({"module": {"name": "otel", "version": "3.0.0"}}),
            json!({}),
        ];
        let recovered = recover_selection(&serde_json::from_value(initial).unwrap(), &specs);
        let entry = |more: Value| {
            let mut entry = json!({"customResourcePolicy": "CreateAndDelete", "managed": true});
            json_patch::merge(&mut entry, &more);
            entry
        };
        assert_eq!(
            json!(recovered.modules),
            json!([
                entry(json!({"name": "keda", "values": {"a": 1}, "upgrade": {"mode": "Manual"}})),
                entry(json!({"name": "nats", "channel": "fast", "customResourcePolicy": "Ignore"})),
                entry(json!({"name": "otel", "version": "3.0.0"})),
            ])
        );
    }
}
