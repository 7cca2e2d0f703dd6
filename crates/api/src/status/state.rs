//! The state that Kymas, their modules, components and Watchers report.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a Kyma, a module, a component or a Watcher, with the values of KLM.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum State {
    /// A reconcile is in progress or waits for an event.
    Processing,
    /// The object is being removed.
    Deleting,
    /// The observed state is the desired one.
    Ready,
    /// An error stops the reconcile.
    Error,
    /// No state is reported yet. Serialized as the empty string.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// The module works, but a user has to act.
    Warning,
    /// The user took the module out of management.
    Unmanaged,
}

impl State {
    /// All states in the order of KLM's enum.
    pub const ALL: [Self; 7] = [
        Self::Processing,
        Self::Deleting,
        Self::Ready,
        Self::Error,
        Self::Unset,
        Self::Warning,
        Self::Unmanaged,
    ];

    /// Returns the value in objects.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Processing => "Processing",
            Self::Deleting => "Deleting",
            Self::Ready => "Ready",
            Self::Error => "Error",
            Self::Unset => "",
            Self::Warning => "Warning",
            Self::Unmanaged => "Unmanaged",
        }
    }

    /// Reads a state from an object with another schema; unknown values are `None`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
