//! What is worth knowing about one release.

use super::facts::Ref;

/// One thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The field, with the object it is in where that is not the HelmRelease.
    pub(super) path: String,
    pub(super) weight: Weight,
    /// What follows, or what to do.
    pub(super) says: String,
}

/// How much it matters, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// No component is made.
    Refused,
    /// Without it the chart would be rendered or kept otherwise, or nothing be installed: the component is made suspended.
    Changes,
    /// To be done before the component can work.
    Todo,
    /// Not carried over; what is installed stays as it is.
    Lost,
    /// Carried over, and worth a word.
    Carried,
    /// Not needed.
    Idle,
}

impl Finding {
    pub(super) fn new(path: impl Into<String>, weight: Weight, says: impl Into<String>) -> Self {
        Self { path: path.into(), weight, says: says.into() }
    }

    /// What has to be done where a component of namespace `hub` needs an object of another.
    pub(super) fn copy(path: &str, needed: &Ref, hub: &str) -> Option<Self> {
        let says = format!("copy {} to namespace {hub}", needed.says());
        (needed.namespace != hub).then(|| Self::new(path, Weight::Todo, says))
    }
}

impl Weight {
    /// What stands before the finding.
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
