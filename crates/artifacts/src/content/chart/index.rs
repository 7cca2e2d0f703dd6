//! `index.yaml` of a chart repository.

mod content;
mod entry_cache;

use std::sync::Arc;

use futures::FutureExt as _;
use url::Url;

use crate::error::ArtifactError;
use crate::fetch::{Fetch, shown};
use crate::refusal::Refusal;
use crate::selector::reference::OciReference;
use crate::source::credentials::Credentials;
use crate::source::http;
use crate::storage::cache::Key;
use crate::storage::digest::{Digest, printable};

#[cfg(fuzzing)]
pub(crate) use content::find;
pub(super) use content::{Entry, is_build_of, read_digest, same_version};
use content::{Index, at_version, place};
use entry_cache::EntryKey;
pub(crate) use entry_cache::Indexes;

/// Location of a chart version by an index.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChartLocation {
    pub(super) archive: ArchiveLocation,
    pub(super) digest: Option<Digest>,
}

/// The location of a chart archive.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ArchiveLocation {
    /// The URL of the archive.
    Url(Url),
    /// A reference in an OCI registry.
    Registry(OciReference),
}

/// Finds a chart version in the repository at `base`.
pub(super) async fn locate(
    fetch: &Arc<Fetch>,
    indexes: &Arc<Indexes>,
    base: &Url,
    name: &str,
    version: &str,
    credentials: &Credentials,
) -> Result<ChartLocation, ArtifactError> {
    let base = directory(base);
    let what = format!("chart {} {} in {}", printable(name), printable(version), shown(&base));
    let query = |now| IndexQuery { indexes, base: &base, name, what: format!("version {version}"), now };
    let choose = |entries: &[Entry]| at_version(entries, version);
    let found = match query(false).pick(fetch, choose, credentials).await? {
        // The version may have been published since.
        None => query(true).pick(fetch, choose, credentials).await?,
        found => found,
    };
    let (address, digest) = place(&what, found)?;
    if let Some(reference) = registry_reference(&what, &address, version)? {
        if fetch.http().may_ask_registry(&base, reference.repository().host()) {
            return Ok(ChartLocation { archive: ArchiveLocation::Registry(reference), digest });
        }
        let host = printable(reference.repository().host());
        return Err(ArtifactError::IndexHostNotAllowed { what, host, address: printable(&address) });
    }
    let url = resolve(&what, &base, &address, |url| fetch.http().check_link(&base, url))?;
    Ok(ChartLocation { archive: ArchiveLocation::Url(url), digest })
}

/// Returns the artifact of an `oci://` address; without a tag or digest, the chart's version is the tag, as in Helm.
fn registry_reference(
    what: &str,
    address: &str,
    version: &str,
) -> Result<Option<OciReference>, ArtifactError> {
    let Some(bare) = address.strip_prefix("oci://") else { return Ok(None) };
    let name = bare.rsplit('/').next().unwrap_or(bare);
    let whole = if name.contains([':', '@']) {
        bare.to_owned()
    } else {
        format!("{bare}:{}", version.replace('+', "_"))
    };
    let invalid = |_| {
        ArtifactError::invalid(
            what,
            "its address in index.yaml is not the address of an artifact in a registry",
        )
    };
    whole.parse().map(Some).map_err(invalid)
}

/// Returns the entry that `choose` selects among the versions of a chart, from the current index of the repository at
/// `base`. `what` must distinguish this query from all others on an index.
pub(super) async fn choose(
    fetch: &Arc<Fetch>,
    indexes: &Arc<Indexes>,
    base: &Url,
    name: &str,
    what: String,
    choose: impl Fn(&[Entry]) -> Option<usize>,
    credentials: &Credentials,
) -> Result<Option<Entry>, ArtifactError> {
    let base = directory(base);
    IndexQuery { indexes, base: &base, name, what, now: true }.pick(fetch, choose, credentials).await
}

/// Query for a chart in an index.
struct IndexQuery<'a> {
    indexes: &'a Arc<Indexes>,
    base: &'a Url,
    name: &'a str,
    what: String,
    now: bool,
}

impl IndexQuery<'_> {
    async fn pick(
        self,
        fetch: &Arc<Fetch>,
        choose: impl Fn(&[Entry]) -> Option<usize>,
        credentials: &Credentials,
    ) -> Result<Option<Entry>, ArtifactError> {
        let Self { indexes, base, name, what, now } = self;
        let address = base.join("index.yaml");
        let mut address = address.map_err(|_| ArtifactError::address(shown(base), "not an address"))?;
        address.set_query(base.query());
        // Content that changed on disk is missing at the second attempt.
        for _ in 0..2 {
            let key = fetch.index(&address, now, credentials).await?;
            let entry_key = EntryKey { index: key.1, name: name.to_owned(), what: what.clone() };
            if let Some(answer) = indexes.cached_entry(&entry_key) {
                return Ok(answer);
            }
            let index = read(fetch, indexes, &address, key).await;
            if let Err(ArtifactError::Invalid { .. }) = &index {
                fetch.reject_document(&address, key.1, credentials);
            }
            if let Some(index) = index? {
                let entries = index.entries(name);
                let answer = choose(entries).and_then(|at| entries.get(at)).cloned();
                indexes.cache_entry(entry_key, answer.clone());
                return Ok(answer);
            }
        }
        Err(ArtifactError::TooLarge { what: shown(&address), limit: fetch.cache().capacity() })
    }
}

/// Reads the index with this key, once for all concurrent callers and one index at a time; `None` if the cache does
/// not have it.
async fn read(
    fetch: &Arc<Fetch>,
    indexes: &Arc<Indexes>,
    address: &Url,
    key: Key,
) -> Result<Option<Arc<Index>>, ArtifactError> {
    let (fetch, owner, what) = (Arc::clone(fetch), Arc::clone(indexes), shown(address));
    let work = move || {
        async move {
            let _permit = owner.acquire_read_permit().await;
            let Some(content) = fetch.cache().get(key).await? else { return Ok(None) };
            let (described, limit) = (what.clone(), fetch.limits().index);
            let parsed = tokio::task::spawn_blocking(move || Index::read(&described, content, limit)).await;
            let parsed =
                parsed.unwrap_or_else(|_| Err(ArtifactError::invalid(what, "index.yaml cannot be read")));
            parsed.map(|index| Some(Arc::new(index)))
        }
        .boxed()
    };
    indexes.reads().join(key, work).await
}

/// Returns the address from an index if the host rules allow it: the repository chooses it, as with a redirect. A
/// relative address gets the query of the repository's address, as in Helm: the query may be the credential.
pub(crate) fn resolve(
    what: &str,
    base: &Url,
    address: &str,
    check: impl FnOnce(&Url) -> Result<(), Refusal>,
) -> Result<Url, ArtifactError> {
    let mut url = base
        .join(address)
        .map_err(|_| ArtifactError::invalid(what, "its address in index.yaml cannot be read"))?;
    check(&url).map_err(|refusal| http::redirect_refused(what, "points in index.yaml to", &url, refusal))?;
    let is_relative = Url::parse(address) == Err(url::ParseError::RelativeUrlWithoutBase);
    let is_same_origin = url.scheme() == base.scheme() && http::authority(&url) == http::authority(base);
    if let Some(query) = base.query().filter(|_| is_relative && is_same_origin) {
        let query = match url.query() {
            Some(own) => format!("{own}&{query}"),
            None => query.to_owned(),
        };
        url.set_query(Some(&query));
    }
    Ok(url)
}

/// Returns the address of a repository with a trailing `/` and its query.
fn directory(url: &Url) -> Url {
    let mut url = url.clone();
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(base: &str, address: &str) -> String {
        let base = directory(&base.parse().unwrap());
        resolve("chart", &base, address, |_| Ok(())).unwrap().into()
    }

    #[test]
    fn charts_at_relative_addresses_get_the_query_of_the_repository() {
        let base = "https://store.example/charts?sig=a%2Fb";
        for (address, expected) in [
            ("demo.tgz", "https://store.example/charts/demo.tgz?sig=a%2Fb"),
            ("/other/demo.tgz", "https://store.example/other/demo.tgz?sig=a%2Fb"),
            ("demo.tgz?v=1", "https://store.example/charts/demo.tgz?v=1&sig=a%2Fb"),
            ("https://store.example/demo.tgz", "https://store.example/demo.tgz"),
            ("https://other.example/demo.tgz", "https://other.example/demo.tgz"),
            ("//other.example/demo.tgz", "https://other.example/demo.tgz"),
        ] {
            assert_eq!(resolved(base, address), expected, "{address}");
        }
        assert_eq!(
            resolved("https://store.example/charts/", "demo.tgz"),
            "https://store.example/charts/demo.tgz"
        );
    }

    #[test]
    fn addresses_in_registries_are_references() {
        let reference = |address: &str| {
            registry_reference("x", address, "1.2.3+b").map(|found| found.map(|r| r.to_string()))
        };
        assert_eq!(reference("https://a.example/x.tgz").unwrap(), None);
        assert_eq!(
            reference("oci://a.example/charts/x:1.0.0").unwrap().as_deref(),
            Some("a.example/charts/x:1.0.0")
        );
        assert_eq!(
            reference("oci://a.example/charts/x").unwrap().as_deref(),
            Some("a.example/charts/x:1.2.3_b")
        );
    }
}
