//! Names of registries, repositories and artifacts.

use std::{fmt, net::Ipv6Addr, str::FromStr};

use oci_spec::distribution::Reference;

use crate::error::ArtifactError;
use crate::storage::digest::{Digest, printable};

/// Prefix of a registry's repositories: `host[:port][/subpath]`.
///
/// Parses with or without `oci://` or `https://`. Plain HTTP for a host is configured by
/// [`Config::insecure_hosts`](crate::Config::insecure_hosts), so `http://` is refused here.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegistryBase {
    host: String,
    path: String,
}

impl RegistryBase {
    /// Returns `host[:port]`.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the path below the host; empty for the host itself.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the repository `name` below this base.
    pub fn repository(&self, name: &str) -> Result<Repository, ArtifactError> {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) };
        Repository::new(&self.host, &path)
    }

    /// Returns the repository of an OCM component: `<base>/component-descriptors/<component>`, the `urlPath` mapping
    /// of OCM that KLM reads.
    pub fn component(&self, component: &str) -> Result<Repository, ArtifactError> {
        self.repository(&format!("component-descriptors/{component}"))
    }
}

impl FromStr for RegistryBase {
    type Err = ArtifactError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = strip_scheme(text)?.trim_end_matches('/');
        let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
        // The path is checked as part of a repository name; a probe name makes an empty one valid.
        let probe = if path.is_empty() { "x".to_owned() } else { format!("{path}/x") };
        Repository::new(host, &probe)?;
        Ok(Self { host: host.to_owned(), path: path.to_owned() })
    }
}

impl fmt::Display for RegistryBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", self.path) }
    }
}

impl fmt::Debug for RegistryBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One repository: `host[:port]/path`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Repository {
    host: String,
    path: String,
}

impl Repository {
    fn new(host: &str, path: &str) -> Result<Self, ArtifactError> {
        let whole = format!("{host}/{path}");
        let bad = || ArtifactError::address(shown(&whole), "not a repository of a registry");
        if !is_authority(host) {
            return Err(bad());
        }
        // Only the path is parsed by the reference grammar. The grammar reads a first part without dot or port as a
        // path on docker.io, and has no IPv6 addresses.
        let parsed = Reference::from_str(&format!("registry.example/{path}:probe")).map_err(|_| bad())?;
        if parsed.registry() != "registry.example" || parsed.repository() != path {
            return Err(bad());
        }
        Ok(Self { host: host.to_owned(), path: path.to_owned() })
    }

    /// Returns `host[:port]`.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the path below the host, without a leading slash.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the reference to `tag`.
    pub fn tag(&self, tag: &str) -> Result<OciReference, ArtifactError> {
        format!("{self}:{tag}").parse()
    }

    /// Returns the reference to this digest.
    pub fn digest(&self, digest: Digest) -> OciReference {
        OciReference { repository: self.clone(), tag: None, digest: Some(digest) }
    }
}

impl FromStr for Repository {
    type Err = ArtifactError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, path) = strip_scheme(text)?.split_once('/').ok_or_else(|| {
            ArtifactError::address(shown(text), "a registry host and a repository are needed")
        })?;
        Self::new(host, path.trim_end_matches('/'))
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.path)
    }
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An artifact in a registry: `host[:port]/path[:tag][@sha256:…]`, with at least one of tag and digest. If it has
/// both, the digest decides.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct OciReference {
    repository: Repository,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl OciReference {
    /// Returns the repository of the artifact.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Returns the digest that pins it.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Returns the tag.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Returns the same artifact, pinned to `digest`.
    pub fn pinned(mut self, digest: Digest) -> Self {
        self.digest = Some(digest);
        self
    }

    /// Returns the part that identifies it in a URL: the digest, otherwise the tag.
    pub(crate) fn locator(&self) -> String {
        match (self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            // Impossible: the parser requires one of the two.
            (None, None) => String::new(),
        }
    }
}

impl FromStr for OciReference {
    type Err = ArtifactError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = strip_scheme(text)?;
        let (named, digest) = match bare.split_once('@') {
            Some((named, digest)) => {
                let no_digest = |_| ArtifactError::address(shown(text), "not a sha256 digest behind `@`");
                (named, Some(digest.parse().map_err(no_digest)?))
            }
            None => (bare, None),
        };
        let slash = named.find('/').unwrap_or(0);
        let (path, tag) = match named[slash..].rfind(':') {
            Some(colon) => (&named[..slash + colon], Some(&named[slash + colon + 1..])),
            None => (named, None),
        };
        let (host, path) = path.split_once('/').ok_or_else(|| {
            ArtifactError::address(shown(text), "a registry host and a repository are needed")
        })?;
        if tag.is_none() && digest.is_none() {
            return Err(ArtifactError::address(shown(text), "neither tag nor digest"));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(ArtifactError::address(shown(text), "not a tag of a registry"));
        }
        Ok(Self { repository: Repository::new(host, path)?, tag: tag.map(str::to_owned), digest })
    }
}

impl fmt::Display for OciReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.repository, f)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        self.digest.map_or(Ok(()), |digest| write!(f, "@{digest}"))
    }
}

impl fmt::Debug for OciReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn strip_scheme(text: &str) -> Result<&str, ArtifactError> {
    if text.starts_with("http://") {
        return Err(ArtifactError::address(
            shown(text),
            "write it without http://; plain HTTP needs --insecure of kymactl, or --oci-insecure-hosts of helm-component",
        ));
    }
    Ok(text.strip_prefix("oci://").or_else(|| text.strip_prefix("https://")).unwrap_or(text))
}

/// Returns an address for messages: without the part before the host, which may be a password, and without a query.
fn shown(text: &str) -> String {
    let (address, digest) = text.rfind("@sha256:").map_or((text, ""), |at| text.split_at(at));
    let place = address.rsplit('@').next().unwrap_or_default();
    let place = place.split(['?', '#']).next().unwrap_or_default();
    printable(&format!("{place}{digest}"))
}

/// Returns whether a text is a valid tag.
pub(crate) fn is_tag(tag: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= 128 && tag.starts_with(word) && tag.chars().all(|c| word(c) || c == '.' || c == '-')
}

/// Reports whether the text is a host name or address with an optional port. Refuses text that could change the
/// authority of a URL, or that a URL reads as another host, such as `127.1`.
fn is_authority(host: &str) -> bool {
    let name =
        host.rsplit_once(':').map_or(host, |(name, port)| if port.contains(']') { host } else { name });
    if let Some(address) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'))
        && address.parse::<Ipv6Addr>().is_ok_and(|parsed| !parsed.to_string().eq_ignore_ascii_case(address))
    {
        return false;
    }
    url::Url::parse(&format!("https://{host}/")).is_ok_and(|url| {
        url.path() == "/"
            && url.username().is_empty()
            && url.password().is_none()
            && url.host_str().is_some_and(|taken| taken.eq_ignore_ascii_case(name))
    }) && !host.contains(['?', '#', '\\', '@'])
}

impl FromStr for Digest {
    type Err = ArtifactError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).ok_or_else(|| ArtifactError::address(printable(text), "not a sha256 digest"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_lie_under_component_descriptors_of_the_base() {
        let base: RegistryBase = "https://europe-docker.pkg.dev/project/prod/".parse().unwrap();
        let repository = base.component("kyma-project.io/module/keda").unwrap();
        assert_eq!(
            repository.to_string(),
            "europe-docker.pkg.dev/project/prod/component-descriptors/kyma-project.io/module/keda"
        );
        let base: RegistryBase = "127.0.0.1:5000".parse().unwrap();
        assert_eq!(
            base.component("a.io/b").unwrap().to_string(),
            "127.0.0.1:5000/component-descriptors/a.io/b"
        );
    }

    #[test]
    fn a_reference_keeps_tag_and_digest_apart() {
        let digest = Digest::of(b"x");
        let reference: OciReference = format!("oci://localhost:5000/a/b:1.0@{digest}").parse().unwrap();
        assert_eq!(reference.tag(), Some("1.0"));
        assert_eq!(reference.digest(), Some(digest));
        assert_eq!(reference.locator(), digest.to_string());
        let reference: OciReference = "localhost:5000/a/b:1.0".parse().unwrap();
        assert_eq!(reference.locator(), "1.0");
    }

    #[test]
    fn ipv6_addresses_and_names_of_one_label_are_hosts() {
        for (text, host) in [
            ("oci://[::1]:9068/charts/a:1", "[::1]:9068"),
            ("oci://[fd00::1]/charts/a:1.0", "[fd00::1]"),
            ("oci://[FD00::A]:5000/charts/a:1.0", "[FD00::A]:5000"),
            ("oci://registry/charts/a:1", "registry"),
            ("oci://registry:5000/a:1", "registry:5000"),
        ] {
            let reference: OciReference = text.parse().unwrap();
            assert_eq!(reference.repository().host(), host, "{text}");
            assert_eq!(format!("oci://{reference}"), text);
            assert_eq!(
                format!("oci://{}", reference.repository()).parse::<Repository>().unwrap().host(),
                host
            );
        }
        let base: RegistryBase = "[fd00::1]:5000/modules".parse().unwrap();
        assert_eq!((base.host(), base.path()), ("[fd00::1]:5000", "modules"));
    }

    #[test]
    fn an_address_with_http_names_the_flags_for_it() {
        let error = "http://localhost:5000/a".parse::<RegistryBase>().unwrap_err().to_string();
        assert!(
            error.contains("--insecure of kymactl, or --oci-insecure-hosts of helm-component"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_artifact_of_a_registry_is_refused() {
        for text in [
            "nginx",
            "localhost:5000/a",
            "http://localhost:5000/a:1",
            "user@host/a:1",
            "host.io/A:1",
            "host.io/a/../b:1",
            "host.io/a:1/../../x",
            "host.io?x/a:1",
            "host.io/a:b c",
            // A URL reads these as addresses.
            "1:5000/a:1",
            "127.1:5000/a:1",
            "0x7f.1:5000/a:1",
            "0177.0.0.1:5000/a:1",
            // Not IPv6 addresses.
            "[::1/a:1",
            "::1/a:1",
            "[fe80::1%eth0]/a:1",
            "[fd00::0001]:5000/a:1",
            "[not:an:address]/a:1",
            "re gistry/a:1",
            "/a:1",
        ] {
            assert!(text.parse::<OciReference>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_refused_is_told_without_password_and_query() {
        for text in [
            "me:hush@localhost:5000/a:1",
            "oci://me:hush@localhost:5000/a:1",
            "http://me:hu/sh?hush@localhost:5000/a:1",
            "me@you:hush@localhost:5000/a",
            "localhost:5000/a?token=hush",
            "oci://me:hush@localhost:5000/A:1@sha256:2c",
            "localhost:5000/A:1?signature=hush",
        ] {
            let errors = [text.parse::<OciReference>().err(), text.parse::<RegistryBase>().err()];
            for error in errors.into_iter().flatten().map(|error| error.to_string()) {
                assert!(!error.contains("hu") && error.contains("localhost:5000"), "{text}: {error}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn what_parses_prints_as_the_same_reference(text in "[a-z0-9:/@._-]{0,60}|\\PC{0,30}") {
            if let Ok(reference) = text.parse::<OciReference>() {
                assert_eq!(reference.to_string().parse::<OciReference>().unwrap(), reference);
            }
        }
    }
}
