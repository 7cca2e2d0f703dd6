//! What fuzz targets reach beyond the API. Only in their builds: `cargo fuzz` sets the cfg.

use serde_json::Value;

use crate::selection::{self, Selection};

/// One module asked for.
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
    /// Why the entry cannot be used.
    pub invalid: Option<String>,
}

/// Reads the spec of a target's Kyma: the channel and the wishes, or why it cannot be used.
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

/// The spec of a target's Kyma that is born with what a spec chooses.
pub fn birth(spec: &Value) -> Value {
    selection::birth(&selection::choice(spec, None))
}
