//! Internals for fuzz targets. Compiled only with the cfg that `cargo fuzz` sets.

use serde_json::Value;

use crate::decision::selection::{self, Selection};

/// One selected module.
#[derive(Debug, PartialEq)]
pub struct ModuleEntry {
    /// The module.
    pub name: String,
    /// Its own channel.
    pub channel: Option<String>,
    /// A pinned version.
    pub version: Option<String>,
    /// The user's values.
    pub values: Option<Value>,
    /// Reason why the entry is invalid.
    pub invalid: Option<String>,
}

/// Reads the spec of a target's Kyma: the channel and the entries, or the reason why it is invalid.
pub fn select(spec: &Value) -> Result<(String, Vec<ModuleEntry>), String> {
    let Selection { channel, entries } = Selection::read(spec).map_err(|error| error.to_string())?;
    let entry = |entry: selection::ModuleEntry| ModuleEntry {
        name: entry.name,
        channel: entry.channel,
        version: entry.version,
        values: entry.values,
        invalid: entry.invalid,
    };
    Ok((channel, entries.into_iter().map(entry).collect()))
}

/// Returns the spec with which a target's Kyma is created for this selection.
pub fn spec_of_new_kyma(spec: &Value) -> Value {
    selection::spec_of_new_kyma(&selection::choice(spec, None))
}
