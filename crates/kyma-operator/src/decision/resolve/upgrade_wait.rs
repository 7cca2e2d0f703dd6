//! Conditions that an upgrade waits for.

use std::fmt;

use jiff::Timestamp;

use crate::decision::maintenance::Window;

/// The condition that an upgrade waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UpgradeWait {
    /// The maintenance window of the Kyma.
    Window {
        /// The new version.
        version: String,
        /// The next window.
        window: Window,
    },
    /// An approval by the user.
    Approval {
        /// The new version.
        version: String,
        /// When the upgrade began to wait.
        since: Timestamp,
        /// When the upgrade starts without approval.
        deadline: Option<Timestamp>,
    },
}

impl UpgradeWait {
    /// Returns when the upgrade no longer waits.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Window { window, .. } => Some(window.begin),
            Self::Approval { deadline, .. } => *deadline,
        }
    }
}

impl fmt::Display for UpgradeWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window { version, window } => {
                write!(f, "version {version} waits for the maintenance window {window}")
            }
            Self::Approval { version, deadline, .. } => {
                write!(f, "version {version} waits for approval: set upgrade.approved to it")?;
                deadline
                    .map_or(Ok(()), |deadline| write!(f, "; without approval it is installed on {deadline}"))
            }
        }
    }
}
