//! Findings about a release.

use super::facts::Ref;

/// A finding about the conversion of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The field, with its object if that is not the HelmRelease.
    pub(super) path: String,
    pub(super) severity: Severity,
    /// The consequence, or what to do.
    pub(super) says: String,
}

/// Severity, most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// No component is created.
    Refused,
    /// The chart would be rendered or kept differently, or not be installed: the component is created suspended.
    Suspended,
    /// A user has to act before the component can work.
    ActionRequired,
    /// Not converted; installed objects stay unchanged.
    NotConverted,
    /// Converted with a remark.
    Converted,
    /// Not needed.
    NotNeeded,
}

impl Finding {
    pub(super) fn new(path: impl Into<String>, severity: Severity, says: impl Into<String>) -> Self {
        Self { path: path.into(), severity, says: says.into() }
    }

    /// Returns a finding if a component in namespace `hub` needs a copy of an object of another namespace.
    pub(super) fn copy(path: &str, needed: &Ref, hub: &str) -> Option<Self> {
        let says = format!("copy {} to namespace {hub}", needed.says());
        (needed.namespace != hub).then(|| Self::new(path, Severity::ActionRequired, says))
    }
}

impl Severity {
    /// Returns the label of the finding.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Suspended => "made suspended",
            Self::ActionRequired => "to do",
            Self::NotConverted => "not carried over",
            Self::Converted => "carried over",
            Self::NotNeeded => "not needed",
        }
    }
}
