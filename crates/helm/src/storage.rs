//! Helm's record of releases on a target: one Secret for each revision. Pure.
//!
//! The format is Helm's (`pkg/storage/driver` of Helm 3 and 4): type `helm.sh/release.v1`, name
//! `sh.helm.release.v1.<release>.v<revision>`, labels that identify it, and in `release` the release as JSON,
//! compressed, in base64.

mod decode;
mod encode;
#[cfg(fuzzing)]
pub mod fuzzing;
mod secret;

use std::collections::BTreeMap;

pub use decode::{HelmRelease, StorageError, decode};
pub use encode::{ReleaseStatus, Revision, encode, first_deployed, superseded};
pub use secret::{KEY, TYPE, secret_name};

/// Returns the label selector for the records of a release.
pub fn selector(release: &str) -> String {
    format!("owner=helm,name={release}")
}

/// Label selector for the records of all deployed releases.
pub const DEPLOYED: &str = "owner=helm,status=deployed";

/// Returns the deployed revision by the labels of the records, the newest if there are several. Pending and failed
/// revisions do not count.
pub fn deployed<'a>(records: impl Iterator<Item = &'a BTreeMap<String, String>>) -> Option<i64> {
    let deployed = records.filter(|labels| labels.get("status").is_some_and(|status| status == "deployed"));
    deployed.filter_map(|labels| labels.get("version")?.parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(status: &str, version: &str) -> BTreeMap<String, String> {
        [("status", status), ("version", version)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    #[test]
    fn the_newest_deployed_revision_counts_whatever_is_under_way() {
        let all = [
            labels("superseded", "1"),
            labels("deployed", "2"),
            labels("deployed", "10"),
            labels("failed", "11"),
            labels("pending-upgrade", "12"),
            labels("deployed", "odd"),
        ];
        assert_eq!(deployed(all.iter()), Some(10));
        assert_eq!(deployed([labels("pending-install", "1"), BTreeMap::new()].iter()), None);
        assert_eq!(secret_name("shop", 10), "sh.helm.release.v1.shop.v10");
    }
}
