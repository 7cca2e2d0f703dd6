//! What a user selects: channel and modules, read from a Kyma that may come from a hostile cluster.
//!
//! Only `channel` and `modules[]` are read. Each entry is judged again here, because the apiserver it comes
//! from may have judged nothing; a bad entry spoils itself and no other, but more than
//! [`limits::MODULES`] entries, or a list that is none, spoil the selection.

use std::collections::BTreeSet;

use kyma_api::{KymaModule, Reason, ResourcePolicy, Upgrade, limits};
use serde_json::{Map, Value, json};

use crate::config::ConfigUids;

mod entry;
mod recovered;

pub(crate) use recovered::recovered;

/// The channel for a module where neither it nor its Kyma names one (KLM's constant).
pub(crate) const DEFAULT_CHANNEL: &str = "regular";
/// A channel name that KLM reserves and refuses.
pub(crate) const CHANNEL_NONE: &str = "none";

/// A channel and the modules asked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Selection {
    /// The default channel.
    pub(crate) channel: String,
    /// The modules, in the user's order, each name once.
    pub(crate) wishes: Vec<Wish>,
}

/// One module asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wish {
    /// The module.
    pub(crate) name: String,
    /// Its own channel.
    pub(crate) channel: Option<String>,
    /// A pinned version.
    pub(crate) version: Option<String>,
    /// False: let go of it.
    pub(crate) managed: bool,
    /// What happens to its default CR.
    pub(crate) policy: ResourcePolicy,
    /// The user's values.
    pub(crate) values: Option<Value>,
    /// How new versions arrive.
    pub(crate) upgrade: Upgrade,
    /// Handed on to the component as a label.
    pub(crate) controller: Option<String>,
    /// What is laid over the module whatever the user says.
    pub(crate) central: Central,
    /// Why the entry cannot be used.
    pub(crate) invalid: Option<String>,
}

impl Wish {
    /// A module with nothing said about it.
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
            central: Central::default(),
            invalid: None,
        }
    }
}

/// What ModuleConfigs lay over a module.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Central {
    /// Values that win over the user's.
    pub(crate) values: Map<String, Value>,
    /// Fields that are merged over the spec of a HelmComponent.
    pub(crate) component: Map<String, Value>,
    /// Fields that are merged over the spec of a component of another kind: without ModuleConfigs for all modules.
    pub(crate) own_kind: Map<String, Value>,
    /// The ModuleConfigs.
    pub(crate) configs: ConfigUids,
}

/// Why a selection as a whole cannot be used; what is installed stays.
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
    /// More than [`limits::MODULES`].
    #[error("spec.modules has {0} entries; at most {max} are taken", max = limits::MODULES)]
    TooMany(usize),
    /// A name comes twice.
    #[error("spec.modules names {0} twice")]
    Twice(String),
}

impl SelectionError {
    /// The stable reason.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::TooMany(_) => Reason::TooManyModules,
            Self::Channel | Self::ChannelNone | Self::Modules | Self::Twice(_) => Reason::SelectionInvalid,
        }
    }
}

impl Selection {
    /// Reads `spec` of a Kyma.
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
        let mut wishes = Vec::with_capacity(modules.len());
        for module in modules {
            let wish = entry::read(module).ok_or(SelectionError::Modules)?;
            if !names.insert(wish.name.clone()) {
                return Err(SelectionError::Twice(wish.name));
            }
            wishes.push(wish);
        }
        Ok(Self { channel: channel.to_owned(), wishes })
    }
}

const SKIP_WINDOWS: &str = "skipMaintenanceWindows";

/// Whether a spec says that upgrades need not wait for a maintenance window.
pub(crate) fn skips_windows(spec: &Value) -> bool {
    spec.get(SKIP_WINDOWS) == Some(&Value::Bool(true))
}

/// Fields of an entry that only the hub sets.
const HUB_ONLY: [&str; 1] = ["remoteModuleTemplateRef"];

/// What is kept of a spec that a target told: what its users have a say in. Of a list that is too long to be taken only
/// its length is left.
pub(crate) fn reduced(spec: &Value) -> Value {
    let mut kept = serde_json::Map::new();
    if let Some(channel) = spec.get("channel") {
        kept.insert("channel".to_owned(), channel.clone());
    }
    if let Some(skips) = spec.get(SKIP_WINDOWS).filter(|skips| skips.is_boolean()) {
        kept.insert(SKIP_WINDOWS.to_owned(), skips.clone());
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
            module.retain(|field, _| !HUB_ONLY.contains(&field.as_str()));
        }
    }
    Value::Object(kept)
}

/// What a user has a say in, of a spec: as the hub remembers it, and as the target's Kyma is born with it. Of an entry
/// that cannot be read stays what was remembered of it, or its name: it takes its module out no more than it changes it.
pub(crate) fn choice(spec: &Value, remembered: Option<&kyma_api::Selection>) -> kyma_api::Selection {
    let before = |name: &str| {
        let mut known = remembered.into_iter().flat_map(|choice| &choice.modules);
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

/// The spec with which the target's Kyma is first born: channel and modules of the hub's.
pub fn initial_spec(kyma: &kyma_api::Kyma) -> Value {
    birth(&choice(&json!(kyma.spec), None))
}

/// The spec of a Kyma that starts from a choice.
pub(crate) fn birth(choice: &kyma_api::Selection) -> Value {
    let channel = choice.channel.as_deref().filter(|channel| !channel.is_empty());
    json!({ "channel": channel.unwrap_or(DEFAULT_CHANNEL), "modules": choice.modules })
}

fn known_fields(module: KymaModule) -> KymaModule {
    KymaModule { remote_module_template_ref: None, ..module }
}

#[cfg(test)]
mod tests;
