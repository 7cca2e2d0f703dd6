//! Reads the last installed chart from a release's status. Pure.

use serde_json::Value;

use super::facts::{list, text};

/// Number of digest digits that Flux appends to the version of a chart from an OCIRepository.
const SHORT_DIGEST_DIGITS: usize = 12;

/// The last installed chart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InstalledChart {
    /// Version of the chart.
    pub(super) version: Option<String>,
    /// Digest of the OCI manifest, for an OCIRepository.
    pub(super) digest: Option<String>,
}

/// Reads the latest entry of the history, or the status fields of versions before v2beta2, which have no history.
pub(super) fn installed(release: &Value) -> InstalledChart {
    let latest = list(release, "/status/history").max_by_key(|entry| entry["version"].as_i64());
    let entry = |field: &str| latest.and_then(|entry| entry[field].as_str());
    let status = |field: &str| text(release, &format!("/status/{field}"));
    let version = entry("chartVersion")
        .or_else(|| status("lastAppliedRevision"))
        .or_else(|| status("lastAttemptedRevision"));
    let attempted = || status("lastAttemptedRevisionDigest").filter(|_| latest.is_none());
    let digest = entry("ociDigest").or_else(attempted);
    InstalledChart { version: version.map(str::to_owned), digest: digest.map(str::to_owned) }
}

/// Removes the digest: `1.2.3+1234567890ab` is version 1.2.3 with the beginning of the digest.
pub(super) fn without_digest(version: &str) -> &str {
    match version.rsplit_once('+') {
        Some((version, digest))
            if digest.len() == SHORT_DIGEST_DIGITS && digest.chars().all(|c| c.is_ascii_hexdigit()) =>
        {
            version
        }
        _ => version,
    }
}

/// Removes the generation: `1.2.3+4` is version 1.2.3 with the generation of its HelmChart, if that names values
/// files.
pub(super) fn without_generation(version: &str) -> &str {
    match version.rsplit_once('+') {
        Some((version, generation)) if generation.parse::<u64>().is_ok() => version,
        _ => version,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_installed_chart_is_the_latest_of_the_history() {
        let release = json!({"status": {"lastAttemptedRevision": "9.9.9", "history": [
            {"version": 2, "chartVersion": "1.0.1"}, {"version": 11, "chartVersion": "1.2.0", "ociDigest": "sha256:ab"},
        ]}});
        let expected = InstalledChart { version: Some("1.2.0".into()), digest: Some("sha256:ab".into()) };
        assert_eq!(installed(&release), expected);
        let beta = json!({"status": {"lastAppliedRevision": "1.0.0", "lastAttemptedRevision": "1.1.0"}});
        assert_eq!(installed(&beta).version.as_deref(), Some("1.0.0"));
        let failed = json!({"status": {"lastAttemptedRevisionDigest": "sha256:cd", "history": [
            {"version": 1, "chartVersion": "1.0.0"},
        ]}});
        assert_eq!(installed(&failed).digest, None, "that of an attempt is not of what is installed");
    }

    #[test]
    fn only_flux_own_suffix_is_taken_off_a_version() {
        assert_eq!(without_digest("1.2.3+1234567890ab"), "1.2.3");
        assert_eq!(without_digest("1.2.3+build.7"), "1.2.3+build.7");
        assert_eq!(without_digest("1.2.3"), "1.2.3");
        assert_eq!(without_generation("1.2.3+4"), "1.2.3");
        assert_eq!(without_generation("1.2.3+build.7"), "1.2.3+build.7");
    }
}
