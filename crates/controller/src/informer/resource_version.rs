//! resourceVersions as numbers. Pure.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A resourceVersion as a number. Versions of one kind on one server are comparable: a later state has a higher one
/// (KEP-5504). The default is lower than the version of any state.
///
/// A server that is restored from a backup continues with the versions of the backup, so a state may be later than
/// another one with a higher version. Only a comparison detects this, never a clock:
///
/// - A server lacks a version that it delivered before: [`is_lost`](Self::is_lost). A watch from this version would
///   receive no event until the server reaches it (kubernetes/kubernetes#107457), so the objects are listed again.
/// - A list shows the present state, whatever its versions are: [`WriteThrough`](crate::WriteThrough).
///
/// ```
/// use kyma_controller::ResourceVersion;
///
/// let [delivered, newest] = ["1200", "980"].map(ResourceVersion::parse);
/// assert!(delivered > newest);
/// assert!(delivered.zip(newest).is_some_and(|(delivered, newest)| delivered.is_lost(newest)));
/// assert_eq!(ResourceVersion::parse("abc"), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(u64);

impl ResourceVersion {
    /// Maximum version: that of a state whose version is unknown and that must count as later than all others.
    pub const MAX: Self = Self(u64::MAX);

    /// Reads a version; `None` if it is not a number.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    /// Reads the version of an object; `None` if it has none, or not a number.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        Self::parse(metadata.resource_version.as_deref()?)
    }

    /// Reports whether a server that delivered this version lost it: `newest`, its newest version, is lower, so the
    /// server was restored from a backup.
    pub fn is_lost(self, newest: Self) -> bool {
        newest < self
    }
}

impl From<u64> for ResourceVersion {
    fn from(version: u64) -> Self {
        Self(version)
    }
}

/// Formats the version as API servers do.
impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(version: Option<&str>) -> Option<ResourceVersion> {
        let resource_version = version.map(str::to_owned);
        ResourceVersion::of(&ObjectMeta { resource_version, ..ObjectMeta::default() })
    }

    #[test]
    fn only_numbers_are_versions_and_they_are_compared_as_numbers() {
        assert!(of(Some("10")) > of(Some("9")), "as texts they would be in the other order");
        assert_eq!(of(Some("10")).map(|version| version.to_string()).as_deref(), Some("10"));
        for version in [None, Some(""), Some("-1"), Some("1e3"), Some("18446744073709551616")] {
            assert_eq!(of(version), None, "{version:?}");
        }
        assert_eq!(of(Some("18446744073709551615")), Some(ResourceVersion::MAX));
    }

    #[test]
    fn a_version_is_lost_if_the_newest_one_is_lower() {
        let [lower, delivered, higher] = [9_u64, 10, 11].map(ResourceVersion::from);
        assert!(delivered.is_lost(lower));
        assert!(!delivered.is_lost(delivered) && !delivered.is_lost(higher));
        assert!(!ResourceVersion::default().is_lost(ResourceVersion::default()));
    }
}
