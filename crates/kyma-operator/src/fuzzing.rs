//! Internals for fuzz targets. Compiled only with the cfg that `cargo fuzz` sets.

use serde_json::Value;

use crate::selection::{self, Selection};

/// One selected module.
#[derive(Debug, PartialEq)]
pub struct Wish {
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
pub fn select(spec: &Value) -> Result<(String, Vec<Wish>), String> {
    let Selection { channel, wishes } = Selection::read(spec).map_err(|error| error.to_string())?;
    let wish = |wish: selection::Wish| Wish {
        name: wish.name,
        channel: wish.channel,
        version: wish.version,
        values: wish.values,
        invalid: wish.invalid,
    };
    Ok((channel, wishes.into_iter().map(wish).collect()))
}

/// Returns the spec with which a target's Kyma is created for this selection.
pub fn birth(spec: &Value) -> Value {
    selection::birth(&selection::choice(spec, None))
}
