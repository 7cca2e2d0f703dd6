//! Reads a user's selection, channel and modules, from a Kyma of an untrusted cluster.
//!
//! Only `channel` and `modules[]` are read. Each entry is validated again, because the target's apiserver may have
//! validated nothing. An invalid entry affects only its module, but more than [`limits::MODULES`] entries, or a list
//! of another type, make the selection invalid.

use std::collections::BTreeSet;

use kyma_api::{KymaModule, Reason, ResourcePolicy, Upgrade, limits};
use serde_json::{Map, Value, json};

use crate::hub::config::ConfigUids;

mod entry;
mod recovery;

pub(crate) use recovery::recover_selection;

/// Channel of a module if neither its entry nor the Kyma names one (KLM's constant).
pub(crate) const DEFAULT_CHANNEL: &str = "regular";
/// A channel name that KLM reserves and refuses.
pub(crate) const CHANNEL_NONE: &str = "none";

/// A channel and the selected modules.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Selection {
    /// The default channel.
    pub(crate) channel: String,
    /// The entries in the user's order; names are unique.
    pub(crate) entries: Vec<ModuleEntry>,
}

/// An entry for a module.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModuleEntry {
    /// The module.
    pub(crate) name: String,
    /// Its own channel.
    pub(crate) channel: Option<String>,
    /// A pinned version.
    pub(crate) version: Option<String>,
    /// Whether the operator manages the module.
    pub(crate) managed: bool,
    /// Policy for the default CR.
    pub(crate) policy: ResourcePolicy,
    /// The user's values.
    pub(crate) values: Option<Value>,
    /// Approval of new versions.
    pub(crate) upgrade: Upgrade,
    /// The entry's `controller`, which becomes a label of the component.
    pub(crate) controller: Option<String>,
    /// Overrides of ModuleConfigs.
    pub(crate) central: CentralOverrides,
    /// Reason why the entry is invalid.
    pub(crate) invalid: Option<String>,
}

impl ModuleEntry {
    /// Creates an entry with defaults.
    pub(crate) fn of(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            channel: None,
            version: None,
            managed: true,
            policy: ResourcePolicy::default(),
            values: None,
            upgrade: Upgrade::default(),
            controller: None,
            central: CentralOverrides::default(),
            invalid: None,
        }
    }
}

/// Overrides of ModuleConfigs for a module.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CentralOverrides {
    /// Values that win over the user's.
    pub(crate) values: Map<String, Value>,
    /// Fields merged over the spec of a HelmComponent.
    pub(crate) component: Map<String, Value>,
    /// Fields merged over the spec of a component of another kind: without those of ModuleConfigs for all modules.
    pub(crate) own_kind: Map<String, Value>,
    /// The ModuleConfigs that apply.
    pub(crate) configs: ConfigUids,
}

/// Reason why the whole selection is invalid; installed modules stay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SelectionError {
    /// `spec.channel` is not a channel name.
    #[error("spec.channel is not a channel name (3 to 32 letters a-z)")]
    Channel,
    /// `spec.channel` is `none`.
    #[error("spec.channel `none` is reserved: name a channel")]
    ChannelNone,
    /// `spec.modules` is not a list of objects with names.
    #[error("spec.modules is not a list of named modules")]
    Modules,
    /// There are more than [`limits::MODULES`] entries.
    #[error("spec.modules has {0} entries; at most {max} are allowed", max = limits::MODULES)]
    TooMany(usize),
    /// A module has two entries.
    #[error("spec.modules names {0} twice")]
    Twice(String),
}

impl SelectionError {
    /// Returns the machine-readable reason.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::TooMany(_) => Reason::TooManyModules,
            Self::Channel | Self::ChannelNone | Self::Modules | Self::Twice(_) => Reason::SelectionInvalid,
        }
    }
}

impl Selection {
    /// Parses the `spec` of a Kyma.
    pub(crate) fn read(spec: &Value) -> Result<Self, SelectionError> {
        let channel = spec.get("channel").and_then(Value::as_str).unwrap_or_default();
        if channel == CHANNEL_NONE {
            return Err(SelectionError::ChannelNone);
        }
        if !channel.is_empty() && !kyma_api::patterns::is_channel(channel) {
            return Err(SelectionError::Channel);
        }
        let none = Value::Array(Vec::new());
        let modules = spec.get("modules").filter(|modules| !modules.is_null()).unwrap_or(&none);
        let modules = modules.as_array().ok_or(SelectionError::Modules)?;
        if modules.len() > limits::MODULES {
            return Err(SelectionError::TooMany(modules.len()));
        }
        let mut names = BTreeSet::new();
        let mut entries = Vec::with_capacity(modules.len());
        for module in modules {
            let entry = entry::read(module).ok_or(SelectionError::Modules)?;
            if !names.insert(entry.name.clone()) {
                return Err(SelectionError::Twice(entry.name));
            }
            entries.push(entry);
        }
        Ok(Self { channel: channel.to_owned(), entries })
    }
}

const SKIP_WINDOWS_FIELD: &str = "skipMaintenanceWindows";

/// Reports whether the spec skips maintenance windows.
pub(crate) fn skips_windows(spec: &Value) -> bool {
    spec.get(SKIP_WINDOWS_FIELD) == Some(&Value::Bool(true))
}

/// Fields of an entry that only the hub sets.
const HUB_ONLY_FIELDS: [&str; 1] = ["remoteModuleTemplateRef"];

/// Reduces the spec of a target's Kyma to the fields that users may set. Of a list above the limit only the length is
/// kept.
pub(crate) fn reduced(spec: &Value) -> Value {
    let mut kept = serde_json::Map::new();
    if let Some(channel) = spec.get("channel") {
        kept.insert("channel".to_owned(), channel.clone());
    }
    if let Some(skips) = spec.get(SKIP_WINDOWS_FIELD).filter(|skips| skips.is_boolean()) {
        kept.insert(SKIP_WINDOWS_FIELD.to_owned(), skips.clone());
    }
    match spec.get("modules") {
        Some(Value::Array(modules)) if modules.len() > limits::MODULES => {
            kept.insert("modules".to_owned(), Value::Array(vec![Value::Null; modules.len()]));
        }
        Some(modules) => drop(kept.insert("modules".to_owned(), modules.clone())),
        None => {}
    }
    for module in kept.get_mut("modules").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(module) = module {
            module.retain(|field, _| !HUB_ONLY_FIELDS.contains(&field.as_str()));
        }
    }
    Value::Object(kept)
}

/// Returns the user's choice in a spec, for the hub's record and for a new Kyma on the target. An unreadable entry
/// keeps its recorded fields, or its name: it neither removes nor changes its module.
pub(crate) fn choice(spec: &Value, recorded_selection: Option<&kyma_api::Selection>) -> kyma_api::Selection {
    let before = |name: &str| {
        let mut known = recorded_selection.into_iter().flat_map(|choice| &choice.modules);
        known.find(|module| module.name == name).cloned()
    };
    let module = |module: &Value| {
        let read: Result<KymaModule, _> = serde_json::from_value(module.clone());
        read.ok().or_else(|| {
            let name = module.get("name").and_then(Value::as_str)?;
            Some(before(name).unwrap_or_else(|| KymaModule::new(name)))
        })
    };
    let modules = spec.get("modules").and_then(Value::as_array).into_iter().flatten();
    kyma_api::Selection {
        channel: spec.get("channel").and_then(Value::as_str).map(str::to_owned),
        modules: modules.filter_map(module).map(known_fields).collect(),
    }
}

/// Returns the spec with which the target's Kyma is first created: channel and modules of the hub's.
pub fn initial_spec(kyma: &kyma_api::Kyma) -> Value {
    spec_of_new_kyma(&choice(&json!(kyma.spec), None))
}

/// Returns the spec of a new Kyma with this choice.
pub(crate) fn spec_of_new_kyma(choice: &kyma_api::Selection) -> Value {
    let channel = choice.channel.as_deref().filter(|channel| !channel.is_empty());
    json!({ "channel": channel.unwrap_or(DEFAULT_CHANNEL), "modules": choice.modules })
}

fn known_fields(module: KymaModule) -> KymaModule {
    KymaModule { remote_module_template_ref: None, ..module }
}

#[cfg(test)]
mod tests;
