//! Resolves a range of chart versions.

use std::sync::Arc;

use semver::Version;
use url::Url;

use super::chart_archive::archive_of;
use super::index;
use super::index::{ArchiveLocation, Entry, Indexes};
use crate::error::ArtifactError;
use crate::fetch::{ContentFormat, Fetch};
use crate::selector::reference::Repository;
use crate::selector::version_range::{VersionRange, lenient_version};
use crate::source::credentials::Credentials;
use crate::storage::digest::{Digest, printable};

/// Repository of the versions that a range selects from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChartVersions {
    /// Tags of a repository in an OCI registry.
    Oci(Repository),
    /// Entries of the `index.yaml` of a chart repository.
    Repository {
        /// Address of the repository, without `index.yaml`.
        url: Url,
        /// Name of the chart.
        name: String,
    },
}

/// The version that a range resolved to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartVersion {
    /// The version as in the source; for a registry, the tag with `_` as `+`.
    pub version: String,
    /// Digest of the OCI manifest in a registry, of the archive otherwise.
    pub digest: Digest,
}

/// Returns the highest version in the range. The source is always asked. A version that equals the text of the range
/// comes first, as in Helm: `1.2` may be a tag.
pub(crate) async fn resolve(
    fetch: &Arc<Fetch>,
    indexes: &Arc<Indexes>,
    versions: &ChartVersions,
    range: &VersionRange,
    credentials: &Credentials,
) -> Result<ChartVersion, ArtifactError> {
    match versions {
        ChartVersions::Oci(repository) => {
            let tags = fetch.tags(repository, credentials).await?;
            let what = format!("{repository}:{range}");
            let tag = choose(range, &tags, parse_tag).ok_or(ArtifactError::NotFound { what })?;
            let (digest, _) = fetch.manifest_now(&repository.tag(tag)?, credentials).await?;
            Ok(ChartVersion { version: tag.replace('_', "+"), digest })
        }
        ChartVersions::Repository { url, name } => {
            let what = format!("chart {} {range} in {}", printable(name), crate::fetch::shown(url));
            let highest = |entries: &[Entry]| highest(range, entries);
            let found =
                index::choose(fetch, indexes, url, name, format!("range {range}"), highest, credentials)
                    .await?;
            let entry = found.ok_or_else(|| ArtifactError::NotFound { what: what.clone() })?;
            let version = entry.version.as_deref().unwrap_or_default();
            let digest = if let Some(digest) = index::read_digest(&what, entry.digest.as_deref())? {
                digest
            } else {
                // The index has no digest. The archive is needed next anyway, and its credentials and signatures are
                // checked then.
                let found = index::locate(fetch, indexes, url, name, version, credentials).await?;
                match found.archive {
                    ArchiveLocation::Url(url) => {
                        fetch
                            .document_now(&url, (fetch.limits().blob, ContentFormat::Archive), credentials)
                            .await?
                            .0
                    }
                    ArchiveLocation::Registry(reference) => {
                        let (_, manifest) = fetch.manifest_now(&reference, credentials).await?;
                        archive_of(&what, &manifest)?
                    }
                }
            };
            Ok(ChartVersion { version: version.to_owned(), digest })
        }
    }
}

/// Returns the entry of the version that the range selects. Of two entries of one version the first counts, as in a
/// look-up.
fn highest(range: &VersionRange, entries: &[Entry]) -> Option<usize> {
    let known: Vec<String> =
        entries.iter().filter_map(|entry| Some(entry.version.as_deref()?.into())).collect();
    let version = choose(range, &known, lenient_version)?;
    entries.iter().position(|entry| entry.version.as_deref() == Some(version))
}

/// Returns the text of the version that the range selects.
fn choose<'a>(
    range: &VersionRange,
    known: &'a [String],
    read: impl Fn(&str) -> Option<Version>,
) -> Option<&'a str> {
    let wanted = range.to_string();
    if let Some(exact) = known.iter().find(|text| **text == wanted) {
        return Some(exact);
    }
    let readable = known.iter().filter_map(|text| Some((read(text)?, text.as_str())));
    range.highest(readable).map(|(_, text)| text)
}

/// Parses the version in a tag. `1.2` and `latest` are not versions: such tags may move.
pub(super) fn parse_tag(tag: &str) -> Option<Version> {
    let text = tag.replace('_', "+");
    Version::parse(text.strip_prefix('v').unwrap_or(&text)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen<'a>(range: &str, known: &'a [String]) -> Option<&'a str> {
        choose(&range.parse().unwrap(), known, parse_tag)
    }

    #[test]
    fn tags_that_move_are_no_versions_unless_they_are_asked_for() {
        let tags = ["1", "1.9", "latest", "1.2.0", "v1.2.1", "1.2.1-rc.1", "1.1.0_b2", "sha256-12.sig"];
        let tags = tags.map(str::to_owned);
        assert_eq!(chosen("1.x", &tags), Some("v1.2.1"));
        assert_eq!(chosen("1", &tags), Some("1"));
        assert_eq!(chosen("~1.1", &tags), Some("1.1.0_b2"));
        assert_eq!(chosen(">=2", &tags), None);
    }
}
