//! What an upgrade waits for while nothing is wrong.

use std::fmt;

use jiff::Timestamp;

use crate::maintenance::Window;

/// What an upgrade waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Its maintenance window.
    Window {
        /// The version to come.
        version: String,
        /// When it may.
        window: Window,
    },
    /// A person.
    Approval {
        /// The version to come.
        version: String,
        /// Since when one has been asked.
        since: Timestamp,
        /// When it comes all the same.
        deadline: Option<Timestamp>,
    },
}

impl Awaited {
    /// When the waiting ends by itself.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Window { window, .. } => Some(window.begin),
            Self::Approval { deadline, .. } => *deadline,
        }
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window { version, window } => {
                write!(f, "version {version} waits for the maintenance window {window}")
            }
            Self::Approval { version, deadline, .. } => {
                write!(f, "version {version} waits for approval: set upgrade.approved to it")?;
                deadline.map_or(Ok(()), |deadline| write!(f, "; without that it comes on {deadline}"))
            }
        }
    }
}
