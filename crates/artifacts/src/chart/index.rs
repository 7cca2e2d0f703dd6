//! `index.yaml` of a chart repository.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use serde::Deserialize;
use url::Url;

use crate::{ArtifactError, Credentials, Digest, digest::printable, fetch::Fetch, fetch::shown};

/// Where an index says a chart version lies.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) url: Url,
    pub(super) digest: Option<Digest>,
}

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    entries: HashMap<String, Vec<Entry>>,
}

#[derive(Deserialize)]
struct Entry {
    version: Option<String>,
    #[serde(default)]
    urls: Vec<String>,
    digest: Option<String>,
}

/// Finds a chart version in the repository at `base`.
pub(super) async fn locate(
    fetch: &Arc<Fetch>,
    base: &Url,
    name: &str,
    version: &str,
    credentials: &Credentials,
) -> Result<Located, ArtifactError> {
    let base = directory(base);
    let what = format!("chart {} {} in {}", printable(name), printable(version), shown(&base));
    let address = base.join("index.yaml").map_err(|_| ArtifactError::invalid(&what, "not an address"))?;
    let (_, index) = fetch.document(&address, None, fetch.limits().index, credentials).await?;
    let (name, version) = (name.to_owned(), version.to_owned());
    let described = what.clone();
    let found = tokio::task::spawn_blocking(move || find(&described, &index, &name, &version)).await;
    let found = found.unwrap_or_else(|_| Err(ArtifactError::invalid(&what, "index.yaml cannot be read")))?;
    let url = resolve(&what, &base, &found.0, |url| fetch.http().may_follow(&base, url))?;
    Ok(Located { url, digest: found.1 })
}

/// The versions of a chart in the repository at `base` as it is now, with the digests as its index writes them.
pub(super) async fn versions(
    fetch: &Arc<Fetch>,
    base: &Url,
    name: &str,
    credentials: &Credentials,
) -> Result<HashMap<String, Option<String>>, ArtifactError> {
    let base = directory(base);
    let what = format!("chart {} in {}", printable(name), shown(&base));
    let address = base.join("index.yaml").map_err(|_| ArtifactError::invalid(&what, "not an address"))?;
    let (_, index) = fetch.document_now(&address, fetch.limits().index, credentials).await?;
    let (name, described) = (name.to_owned(), what.clone());
    let found = tokio::task::spawn_blocking(move || {
        let mut versions = HashMap::new();
        for Entry { version, digest, .. } in entries(&described, &index, &name)? {
            // Of two entries of one version the first counts, as where one is looked up.
            version.map(|version| versions.entry(version).or_insert(digest));
        }
        Ok(versions)
    });
    found.await.unwrap_or_else(|_| Err(ArtifactError::invalid(&what, "index.yaml cannot be read")))
}

/// The address that an index gives, if it may be followed: it is the repository's word, like a redirect.
pub(crate) fn resolve(
    what: &str,
    base: &Url,
    address: &str,
    may_follow: impl FnOnce(&Url) -> bool,
) -> Result<Url, ArtifactError> {
    let url =
        base.join(address).map_err(|_| ArtifactError::invalid(what, "its address in index.yaml is none"))?;
    if may_follow(&url) {
        return Ok(url);
    }
    Err(ArtifactError::RedirectNotAllowed { what: what.to_owned(), host: crate::http::authority(&url) })
}

/// Address and digest of a chart version, as the index writes them.
pub(crate) fn find(
    what: &str,
    index: &Bytes,
    name: &str,
    version: &str,
) -> Result<(String, Option<Digest>), ArtifactError> {
    let entry = entries(what, index, name)?
        .into_iter()
        .find(|entry| entry.version.as_deref().is_some_and(|found| same_version(found, version)))
        .ok_or_else(|| ArtifactError::NotFound { what: what.to_owned() })?;
    let digest = read_digest(what, entry.digest.as_deref())?;
    let url = entry.urls.into_iter().next();
    url.map(|url| (url, digest))
        .ok_or_else(|| ArtifactError::invalid(what, "index.yaml gives no address for it"))
}

fn entries(what: &str, index: &Bytes, name: &str) -> Result<Vec<Entry>, ArtifactError> {
    let mut index: Index = serde_saphyr::from_slice_with_options(index, options())
        .map_err(|_| ArtifactError::invalid(what, "index.yaml is unreadable"))?;
    Ok(index.entries.remove(name).unwrap_or_default())
}

/// The digest of an archive as an index writes it.
pub(super) fn read_digest(what: &str, digest: Option<&str>) -> Result<Option<Digest>, ArtifactError> {
    let Some(digest) = digest.filter(|digest| !digest.is_empty()) else { return Ok(None) };
    let read = Digest::from_hex(digest.strip_prefix("sha256:").unwrap_or(digest));
    read.map(Some).ok_or_else(|| ArtifactError::invalid(what, "its digest in index.yaml is no sha256"))
}

/// Helm takes `v1.2.3` and `1.2.3` for the same.
pub(super) fn same_version(found: &str, wanted: &str) -> bool {
    found == wanted || found.strip_prefix('v').unwrap_or(found) == wanted.strip_prefix('v').unwrap_or(wanted)
}

fn directory(url: &Url) -> Url {
    let mut url = url.clone();
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    url
}

/// Public indexes have millions of nodes, their bytes being bounded already; helm writes none with aliases.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 20_000_000,
            max_nodes: 10_000_000,
            max_total_scalar_bytes: 64 << 20,
            max_aliases: 1_000,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 10_000 },
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
    urls: [podinfo-6.1.0.tgz]
    digest: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
  - version: v6.0.0
    name: podinfo
    urls: [https://elsewhere.example/podinfo-6.0.0.tgz]
";

    fn found(version: &str) -> Result<(String, Option<Digest>), ArtifactError> {
        find("chart", &Bytes::from_static(INDEX.as_bytes()), "podinfo", version)
    }

    #[test]
    fn a_version_is_found_with_its_digest() {
        assert_eq!(found("6.1.0").unwrap(), ("podinfo-6.1.0.tgz".to_owned(), Some(Digest::of(b"hello"))));
        assert_eq!(found("6.0.0").unwrap().1, None);
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
}
