//! Resolves ranges of chart versions.

use std::borrow::Cow;

use kyma_api::{Reason, ResolvedVersion, Source};
use kyma_artifacts::{ChartVersion, ChartVersions, VersionRange, lenient_version};
use kyma_controller::Failure;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::source::{self, address};

/// Characters that occur in ranges, and never in tags of a registry.
const RANGE_ALONE: [char; 8] = ['<', '>', '=', '~', '^', '|', '*', ','];
/// Maximum length of the reason for which a version stays.
const MAX_REASON_CHARS: usize = 1024;

/// A range and the repository of its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VersionQuery {
    /// Repository of the versions.
    pub versions: ChartVersions,
    /// The range.
    pub range: VersionRange,
    /// Digest of both, to which a resolved version belongs.
    pub request_digest: String,
}

/// Returns the range of a source; `None` if it names its content exactly.
///
/// # Errors
/// `SourceInvalid`: the range is not valid, or contradicts the rest of the source.
pub(crate) fn version_query(source: &Source) -> Result<Option<VersionQuery>, Failure> {
    let Some(chart) = &source.chart else { return Ok(None) };
    let Some(version) = chart.version.as_deref() else { return Ok(None) };
    let parsed: Result<VersionRange, _> = version.parse();
    let is_range = version.contains(RANGE_ALONE) || version.contains(char::is_whitespace);
    if is_exact(version) || (!is_range && parsed.is_err()) {
        return Ok(None);
    }
    if chart.digest.is_some() {
        // For pinned content, a tag such as 1.2 is only a name.
        return if is_range {
            let message =
                "spec.source.chart.version is a range and digest pins the content: name the version exactly";
            Err(source::invalid_spec(message))
        } else {
            Ok(None)
        };
    }
    let range = parsed.map_err(|error| source::failure(&error))?;
    let versions = if chart.url.starts_with("oci://") {
        ChartVersions::Oci(chart.url.parse().map_err(|error| source::failure(&error))?)
    } else {
        // A source without a name is refused when it is read.
        let Some(name) = chart.name.clone() else { return Ok(None) };
        ChartVersions::Repository { url: address(&chart.url)?, name }
    };
    let whole = json!([chart.url, chart.name, version]).to_string();
    let request_digest = format!("sha256:{}", hex::encode(Sha256::digest(whole)));
    Ok(Some(VersionQuery { versions, range, request_digest }))
}

/// Returns the source with the version that its range resolved to, pinned by digest, as if the user had written it
/// so.
pub(crate) fn pinned<'a>(source: &'a Source, resolved: Option<&ResolvedVersion>) -> Cow<'a, Source> {
    let Some(chart) = &source.chart else { return Cow::Borrowed(source) };
    if resolved.is_none() && chart.check_every_seconds.is_none() {
        return Cow::Borrowed(source);
    }
    let mut chart = chart.clone();
    // The check interval does not affect the objects.
    chart.check_every_seconds = None;
    if let Some(ResolvedVersion { version, digest, .. }) = resolved {
        chart.version = Some(version.clone());
        chart.digest = Some(digest.clone());
    }
    Cow::Owned(Source { chart: Some(chart), ..source.clone() })
}

/// Returns the resolved version after a look-up. Only a higher version replaces the previous one for the same range:
/// if that is missing, or its digest changed, nothing is changed.
pub(crate) fn settled(
    held: Option<ResolvedVersion>,
    found: &ChartVersion,
    request_digest: &str,
) -> ResolvedVersion {
    let ChartVersion { version, digest } = found;
    let taken = ResolvedVersion {
        version: version.clone(),
        digest: digest.to_string(),
        request_digest: request_digest.to_owned(),
        ..ResolvedVersion::default()
    };
    let Some(held) = held else { return taken };
    if held.version == *version {
        let message = format!("{version} now has digest {digest}");
        let changed = held.digest != taken.digest;
        return ResolvedVersion { message: changed.then(|| why(Reason::DigestMismatch, &message)), ..held };
    }
    if lenient_version(version) > lenient_version(&held.version) {
        return taken;
    }
    let message = format!("the highest version at the source is {version}");
    ResolvedVersion { message: Some(why(Reason::SourceNotFound, &message)), ..held }
}

/// Returns the resolved version after a failed look-up.
pub(crate) fn kept(held: ResolvedVersion, failure: &Failure) -> ResolvedVersion {
    ResolvedVersion { message: Some(why(failure.reason, &failure.message)), ..held }
}

fn why(reason: Reason, message: &str) -> String {
    format!("{reason}: {message}").chars().take(MAX_REASON_CHARS).collect()
}

/// Reports whether a text is one exact version.
fn is_exact(text: &str) -> bool {
    semver::Version::parse(text.strip_prefix('v').unwrap_or(text)).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn source(chart: &Value) -> Source {
        serde_json::from_value(json!({"chart": chart})).unwrap()
    }

    fn oci(version: &str) -> Source {
        source(&json!({"url": "oci://registry.example.org/charts/a", "version": version}))
    }

    fn found(version: &str, content: &str) -> ChartVersion {
        let digest = kyma_artifacts::Digest::of(content.as_bytes());
        ChartVersion { version: version.to_owned(), digest }
    }

    #[test]
    fn versions_and_tags_are_no_ranges() {
        for exact in ["1.2.3", "v1.2.3", "1.2.3-rc.1+b", "latest", "main-1.2", "1.2.3.4"] {
            assert_eq!(version_query(&oci(exact)), Ok(None), "{exact}");
        }
        for range in [">=1.2 <2", "1.x", "1", "1.2", "*", "x", "~1", "^2", "1 - 2", "=1.2.3"] {
            assert!(version_query(&oci(range)).unwrap().is_some(), "{range}");
        }
        let pinned = |version: &str| {
            let digest = kyma_artifacts::Digest::of(b"x").to_string();
            let url = "oci://registry.example.org/charts/a";
            version_query(&source(&json!({"url": url, "version": version, "digest": digest})))
        };
        assert_eq!(pinned("1.2"), Ok(None));
        for bad in [version_query(&oci(">=a")), version_query(&oci("1 2 x y")), pinned(">=1")] {
            assert_eq!(bad.unwrap_err().reason, Reason::SourceInvalid);
        }
    }

    #[test]
    fn another_range_address_or_name_is_looked_up_anew() {
        let repository = |name: &str, version: &str| {
            let chart = json!({"url": "https://charts.example.org", "name": name, "version": version});
            version_query(&source(&chart)).unwrap().unwrap().request_digest
        };
        let all = [
            repository("a", "1.x"),
            repository("b", "1.x"),
            repository("a", "^1"),
            version_query(&oci("1.x")).unwrap().unwrap().request_digest,
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(repository("a", "1.x"), all[0]);
    }

    #[test]
    fn only_a_higher_version_replaces_what_was_found_before() {
        let first = settled(None, &found("1.2.0", "a"), "of");
        assert_eq!((first.version.as_str(), &first.message), ("1.2.0", &None));
        let again = settled(Some(first.clone()), &found("1.2.0", "a"), "of");
        assert_eq!(again, first);
        let newer = settled(Some(first.clone()), &found("1.10.0", "b"), "of");
        assert_eq!((newer.version.as_str(), &newer.message), ("1.10.0", &None));
        let gone = settled(Some(newer.clone()), &found("1.2.0", "a"), "of");
        assert_eq!((gone.version.as_str(), gone.digest.as_str()), ("1.10.0", newer.digest.as_str()));
        assert_eq!(
            gone.message.as_deref(),
            Some("SourceNotFound: the highest version at the source is 1.2.0")
        );
        let changed = settled(Some(first.clone()), &found("1.2.0", "other"), "of");
        assert_eq!(changed.digest, first.digest);
        assert!(changed.message.unwrap().starts_with("DigestMismatch: 1.2.0 now has digest sha256:"));
        let silent = kept(first.clone(), &Failure::new(Reason::SourceUnreachable, "no answer"));
        assert_eq!(silent.message.as_deref(), Some("SourceUnreachable: no answer"));
        let answered = settled(Some(silent), &found("1.2.0", "a"), "of");
        assert_eq!(answered, first);
    }

    #[test]
    fn a_resolved_source_is_as_if_it_had_been_written_so() {
        let ranged = source(&json!({
            "url": "oci://registry.example.org/charts/a", "version": "1.x", "checkEverySeconds": 60,
        }));
        let resolved = settled(None, &found("1.2.0", "a"), "of");
        let chart = pinned(&ranged, Some(&resolved)).into_owned().chart.unwrap();
        assert_eq!((chart.version, chart.digest), (Some("1.2.0".to_owned()), Some(resolved.digest)));
        assert_eq!(chart.check_every_seconds, None);
        assert!(matches!(pinned(&oci("1.2.0"), None), Cow::Borrowed(_)));
    }
}
