//! Findings about a release.

use super::facts::Ref;

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The field, with its object if that is not the HelmRelease.
    pub(super) path: String,
    pub(super) weight: Weight,
    /// The consequence, or what to do.
    pub(super) says: String,
}

/// Severity, most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// No component is created.
    Refused,
    /// The chart would be rendered or kept differently, or not be installed: the component is created suspended.
    Changes,
    /// A user has to act before the component can work.
    Todo,
    /// Not converted; installed objects stay unchanged.
    Lost,
    /// Converted with a remark.
    Carried,
    /// Not needed.
    Idle,
}

impl Finding {
    pub(super) fn new(path: impl Into<String>, weight: Weight, says: impl Into<String>) -> Self {
        Self { path: path.into(), weight, says: says.into() }
    }

    /// Returns a finding if a component in namespace `hub` needs a copy of an object of another namespace.
    pub(super) fn copy(path: &str, needed: &Ref, hub: &str) -> Option<Self> {
        let says = format!("copy {} to namespace {hub}", needed.says());
        (needed.namespace != hub).then(|| Self::new(path, Weight::Todo, says))
    }
}

impl Weight {
    /// Returns the label of the finding.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Changes => "made suspended",
            Self::Todo => "to do",
            Self::Lost => "not carried over",
            Self::Carried => "carried over",
            Self::Idle => "not needed",
        }
    }
}
