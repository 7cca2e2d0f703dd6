//! Content of an index, reduced to the fields in use.

use std::{collections::HashMap, fmt};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};

use crate::content::archive;
use crate::error::ArtifactError;
use crate::storage::digest::Digest;

/// Maximum number of charts and versions together. The largest public repositories have about ten thousand.
const MAX_ENTRIES: usize = 200_000;

/// The charts of a repository, with the fields in use of each version.
#[derive(Deserialize)]
pub(super) struct Index {
    #[serde(rename = "apiVersion")]
    api_version: Option<Box<str>>,
    entries: Option<Charts>,
}

/// One version of a chart, as in the index.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(in crate::content::chart) struct Entry {
    pub(in crate::content::chart) version: Option<Box<str>>,
    #[serde(default, rename = "urls", deserialize_with = "first")]
    url: Option<Box<str>>,
    pub(in crate::content::chart) digest: Option<Box<str>>,
}

struct Charts(HashMap<Box<str>, Vec<Entry>>);

#[derive(Default)]
struct Versions(Vec<Entry>);

impl Index {
    /// Parses an index that may be compressed by gzip. `limit` bounds its uncompressed size, in bytes.
    pub(super) fn read(what: &str, content: Bytes, limit: u64) -> Result<Self, ArtifactError> {
        let is_gzip = archive::is_gzip(&content);
        let content = if is_gzip { archive::gunzip(what, &content, limit)? } else { content };
        Self::parse(what, &content)
    }

    pub(super) fn parse(what: &str, index: &[u8]) -> Result<Self, ArtifactError> {
        let unreadable = |error: serde_saphyr::Error| {
            let line = error.location().map(|at| format!(" at line {}", at.line())).unwrap_or_default();
            ArtifactError::invalid(what, format!("index.yaml is unreadable{line}"))
        };
        let index: Self = serde_saphyr::from_slice_with_options(index, options()).map_err(unreadable)?;
        // An answer such as `{"error": "…"}` is not an empty index.
        if index.api_version.is_none() && index.entries.is_none() {
            return Err(ArtifactError::invalid(what, "index.yaml has neither apiVersion nor entries"));
        }
        Ok(index)
    }

    /// Returns the versions of a chart, in the index's order.
    pub(super) fn entries(&self, name: &str) -> &[Entry] {
        self.entries.as_ref().and_then(|charts| charts.0.get(name)).map_or(&[], Vec::as_slice)
    }
}

impl Entry {
    /// Returns the total length of its texts in bytes.
    pub(super) fn size(&self) -> usize {
        [&self.version, &self.url, &self.digest].into_iter().flatten().map(|text| text.len()).sum()
    }
}

/// Returns the position of the first entry of a version. As in Helm, an entry with exactly this text comes before one
/// that differs by a leading `v`, and that before one with build metadata which the version does not name.
pub(super) fn at_version(entries: &[Entry], version: &str) -> Option<usize> {
    let first = |is_wanted: fn(&str, &str) -> bool| {
        entries
            .iter()
            .position(|entry| entry.version.as_deref().is_some_and(|found| is_wanted(found, version)))
    };
    first(|found, wanted| found == wanted).or_else(|| first(same_version)).or_else(|| first(is_build_of))
}

/// Reports whether a version is `wanted` with build metadata.
pub(in crate::content::chart) fn is_build_of(found: &str, wanted: &str) -> bool {
    let release = found.split_once('+').map(|(release, _)| release);
    release.is_some_and(|release| same_version(release, wanted))
}

/// Returns the address and digest in an entry.
pub(super) fn place(what: &str, entry: Option<Entry>) -> Result<(String, Option<Digest>), ArtifactError> {
    let entry = entry.ok_or_else(|| ArtifactError::NotFound { what: what.to_owned() })?;
    let digest = read_digest(what, entry.digest.as_deref())?;
    let url = entry.url.ok_or_else(|| ArtifactError::invalid(what, "index.yaml has no address for it"))?;
    Ok((url.into(), digest))
}

/// Returns the address and digest of a chart version, as in the index.
#[cfg(any(test, fuzzing))]
pub(crate) fn find(
    what: &str,
    index: &Bytes,
    name: &str,
    version: &str,
) -> Result<(String, Option<Digest>), ArtifactError> {
    let index = Index::parse(what, index)?;
    let entries = index.entries(name);
    place(what, at_version(entries, version).and_then(|at| entries.get(at)).cloned())
}

/// Parses the digest of an archive in an index.
pub(in crate::content::chart) fn read_digest(
    what: &str,
    digest: Option<&str>,
) -> Result<Option<Digest>, ArtifactError> {
    let Some(digest) = digest.filter(|digest| !digest.is_empty()) else { return Ok(None) };
    let read = Digest::from_hex(digest.strip_prefix("sha256:").unwrap_or(digest));
    read.map(Some)
        .ok_or_else(|| ArtifactError::invalid(what, "its digest in index.yaml is not a sha256 digest"))
}

/// Reports whether two versions are the same; Helm treats `v1.2.3` and `1.2.3` as equal.
pub(in crate::content::chart) fn same_version(found: &str, wanted: &str) -> bool {
    found == wanted || found.strip_prefix('v').unwrap_or(found) == wanted.strip_prefix('v').unwrap_or(wanted)
}

fn first<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<str>>, D::Error> {
    Ok(Vec::<Box<str>>::deserialize(deserializer)?.into_iter().next())
}

impl<'de> Deserialize<'de> for Charts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Charts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("charts by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Charts, A::Error> {
                let (mut charts, mut count) = (HashMap::new(), 0);
                while let Some((name, Versions(versions))) = map.next_entry()? {
                    count += 1 + versions.len();
                    if count > MAX_ENTRIES {
                        return Err(A::Error::custom("too many entries"));
                    }
                    charts.insert(name, versions);
                }
                Ok(Charts(charts))
            }
        }
        deserializer.deserialize_map(All)
    }
}

impl<'de> Deserialize<'de> for Versions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Versions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("versions of a chart")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Versions, A::Error> {
                let mut versions = Vec::new();
                while let Some(entry) = list.next_element()? {
                    if versions.len() == MAX_ENTRIES {
                        return Err(A::Error::custom("too many entries"));
                    }
                    versions.push(entry);
                }
                Ok(Versions(versions))
            }
        }
        deserializer.deserialize_seq(All)
    }
}

/// Returns the limits of the parser. Public indexes have millions of nodes, and their size is limited already. Helm
/// writes no aliases, but scripts write one for each version that shares maintainers or keywords with another. Content
/// that an alias repeats counts towards all limits.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 20_000_000,
            max_nodes: 10_000_000,
            max_total_scalar_bytes: 64 << 20,
            max_aliases: 100_000,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 1_000_000 },
        with_snippet: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = r"
apiVersion: v1
entries:
  podinfo:
  - version: 6.1.0
    name: podinfo
    urls: [podinfo-6.1.0.tgz, https://mirror.example/podinfo-6.1.0.tgz]
    digest: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
  - version: v6.0.0
    name: podinfo
    urls: [https://elsewhere.example/podinfo-6.0.0.tgz]
  - version: 5.0.0
  nothing: []
";

    fn found(version: &str) -> Result<(String, Option<Digest>), ArtifactError> {
        find("chart", &Bytes::from_static(INDEX.as_bytes()), "podinfo", version)
    }

    #[test]
    fn a_version_is_found_with_its_digest() {
        assert_eq!(found("6.1.0").unwrap(), ("podinfo-6.1.0.tgz".to_owned(), Some(Digest::of(b"hello"))));
        assert_eq!(found("6.0.0").unwrap().1, None);
        assert!(found("5.0.0").unwrap_err().to_string().contains("no address"));
    }

    #[test]
    fn an_entry_of_exactly_the_version_comes_before_one_with_a_v() {
        let index = "entries: {demo: [{version: v1.0.0, urls: [a]}, {version: 1.0.0, urls: [b]}, \
                     {version: 1.0.0+x, urls: [c]}, {version: 1.0.0+y, urls: [d]}]}";
        let address = |version: &str| find("chart", &Bytes::from(index), "demo", version).unwrap().0;
        for (version, expected) in [("1.0.0", "b"), ("v1.0.0", "a"), ("1.0.0+y", "d"), ("v1.0.0+x", "c")] {
            assert_eq!(address(version), expected, "{version}");
        }
        let index = "entries: {demo: [{version: 2.0.0, urls: [a]}, {version: v1.0.0+x, urls: [b]}]}";
        let found = |version: &str| find("chart", &Bytes::from(index), "demo", version).ok();
        assert_eq!(found("1.0.0").map(|(address, _)| address).as_deref(), Some("b"));
        assert_eq!(found("1.0.0+y"), None);
    }

    #[test]
    fn versions_may_share_fields_by_aliases() {
        let versions: String = (0..2_000)
            .map(|number| format!("  - version: 1.{number}.0\n    urls: [a]\n    maintainers: *all\n"))
            .collect();
        let index = format!(
            "entries:\n  demo:\n  - version: 2.0.0\n    urls: [a]\n    maintainers: &all\n    - name: one\n      \
             email: one@example.org\n    - name: two\n{versions}"
        );
        assert_eq!(Index::parse("index", index.as_bytes()).unwrap().entries("demo").len(), 2_001);
    }

    #[test]
    fn the_line_at_which_an_index_is_unreadable_is_named() {
        let error = Index::parse("index", b"entries:\n  demo:\n  - version: [hunter2]\n").err().unwrap();
        let text = error.to_string();
        assert!(text.ends_with("index.yaml is unreadable at line 3") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn an_answer_that_is_no_index_is_no_empty_index() {
        for answer in ["{\"error\": \"maintenance\"}", "Service in maintenance", "[]", "", "entries: x"] {
            assert!(Index::parse("index", answer.as_bytes()).is_err(), "{answer:?}");
        }
        for empty in
            ["apiVersion: v1", "apiVersion: v1\nentries: {}", "entries: {}", "apiVersion: v1\nentries:"]
        {
            assert!(Index::parse("index", empty.as_bytes()).unwrap().entries("a").is_empty(), "{empty:?}");
        }
    }

    #[test]
    fn an_absent_version_is_not_found() {
        assert!(matches!(found("1.0.0"), Err(ArtifactError::NotFound { .. })));
    }

    #[test]
    fn an_index_of_aliases_upon_aliases_is_refused() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let last = level - 1;
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{last}"); 9].join(", ")));
        }
        bomb.push_str("entries: {podinfo: *a11}\n");
        let error = find("chart", &Bytes::from(bomb), "podinfo", "1.0.0").unwrap_err();
        assert!(matches!(error, ArtifactError::Invalid { .. }), "{error}");
    }

    #[test]
    fn an_index_of_more_entries_than_any_has_is_refused() {
        let versions = |count: usize| "{},".repeat(count);
        let one = format!("entries: {{demo: [{}]}}", versions(MAX_ENTRIES - 1));
        assert_eq!(Index::parse("index", one.as_bytes()).unwrap().entries("demo").len(), MAX_ENTRIES - 1);
        let more = format!("entries: {{demo: [{}]}}", versions(MAX_ENTRIES + 1));
        assert!(Index::parse("index", more.as_bytes()).is_err());
        let names: String = (0..=MAX_ENTRIES).map(|number| format!("a{number}: [],")).collect();
        assert!(Index::parse("index", format!("entries: {{{names}}}").as_bytes()).is_err());
    }
}
