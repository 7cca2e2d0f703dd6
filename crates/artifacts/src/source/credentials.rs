//! Credentials, bound to their hosts.

use std::fmt;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::error::ArtifactError;

/// Decodes `auth` as kubelets do: with or without padding.
const AUTH: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Credentials, each bound to a host, and to a path below it if the pull secret has one.
///
/// They are never sent to another host by redirect, upload location or repository index. A token service on another
/// host receives them only if [`Config::allowed_hosts`](crate::Config::allowed_hosts) allows that host. `Debug` shows
/// only the hosts.
#[derive(Clone, Default)]
pub struct Credentials {
    entries: Vec<Entry>,
}

#[derive(Clone)]
struct Entry {
    host: String,
    path: String,
    auth: Auth,
}

/// One kind of credential.
#[derive(Clone)]
pub(crate) enum Auth {
    /// User and password, for Basic authentication or in exchange for a token.
    Basic { user: String, password: SecretString },
    /// A token that is sent unchanged.
    Bearer(SecretString),
    /// An `OAuth2` refresh token (`identitytoken`), in exchange for a token.
    Refresh(SecretString),
}

impl Auth {
    /// Returns user and password; `None` if both are empty, as templates write them for anonymous access.
    fn of_pair(user: &str, password: &str) -> Option<Self> {
        let is_given = !user.is_empty() || !password.is_empty();
        is_given.then(|| Self::Basic { user: user.to_owned(), password: password.into() })
    }
}

impl Credentials {
    /// Returns no credentials.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// Returns user and password for `host[:port]`.
    pub fn basic(host: &str, user: &str, password: &str) -> Self {
        Self::default().with(host, Auth::Basic { user: user.to_owned(), password: password.into() })
    }

    /// Returns a bearer token for `host[:port]`.
    pub fn bearer(host: &str, token: &str) -> Self {
        Self::default().with(host, Auth::Bearer(token.into()))
    }

    /// Parses `.dockerconfigjson` of a Secret of type `kubernetes.io/dockerconfigjson`. Credential helpers and stores
    /// in it are ignored, since they are programs. Host patterns with `*` match as in a kubelet.
    ///
    /// # Errors
    /// If the JSON is no such configuration, or an entry's `auth` is not base64 of `user:password`.
    pub fn from_docker_config(json: &[u8]) -> Result<Self, ArtifactError> {
        let config: DockerConfig =
            serde_json::from_slice(json).map_err(|_| bad_pull_secret("not a docker config"))?;
        let entries = config.auths.unwrap_or_default().into_iter();
        entries.filter_map(|(key, auth)| Some((key, auth?))).try_fold(
            Self::default(),
            |credentials, (key, auth)| {
                Ok(match auth.parse()? {
                    Some(auth) => credentials.with(&key, auth),
                    None => credentials,
                })
            },
        )
    }

    /// Adds the credentials of `other`; on the same host and path the existing ones win.
    pub fn and(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self
    }

    /// Reports whether there are none.
    pub fn is_anonymous(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reports whether there are credentials for a host.
    pub fn has_host(&self, host: &str) -> bool {
        let host = canonical_host(host);
        self.entries.iter().any(|entry| host_matches(&entry.host, &host))
    }

    fn with(mut self, key: &str, auth: Auth) -> Self {
        let (host, path) = split_key(key);
        // Kubelets leave out the path of the registry's API before the path of a repository.
        if let Some(("v1" | "v2", below)) = path.split_once('/') {
            self.entries.push(Entry { host: host.clone(), path: below.to_owned(), auth: auth.clone() });
        }
        self.entries.push(Entry { host, path, auth });
        self
    }

    /// Returns the entry with the longest path that covers `host/path`; as in kubelets, an entry for exactly this host
    /// comes before a pattern.
    pub(crate) fn for_path(&self, host: &str, path: &str) -> Option<&Auth> {
        let host = canonical_host(host);
        let fits = |entry: &&Entry| {
            host_matches(&entry.host, &host)
                && (entry.path.is_empty()
                    || path == entry.path
                    || path.strip_prefix(&entry.path).is_some_and(|rest| rest.starts_with('/')))
        };
        let rank = |entry: &&Entry| (!entry.host.contains('*'), entry.path.len());
        self.entries.iter().rev().filter(fits).max_by_key(rank).map(|entry| &entry.auth)
    }

    /// Returns a hash that distinguishes the credentials used on `host/path` without revealing them; key of proofs
    /// and tokens.
    pub(crate) fn fingerprint(&self, host: &str, path: &str) -> Fingerprint {
        let mut hasher = Sha256::new();
        let mut part = |kind: u8, text: &str| {
            hasher.update([kind]);
            hasher.update(text.len().to_le_bytes());
            hasher.update(text);
        };
        match self.for_path(host, path) {
            None => part(0, ""),
            Some(Auth::Basic { user, password }) => {
                part(1, user);
                part(1, password.expose_secret());
            }
            Some(Auth::Bearer(token)) => part(2, token.expose_secret()),
            Some(Auth::Refresh(token)) => part(3, token.expose_secret()),
        }
        Fingerprint(hasher.finalize().into())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.entries.iter().map(|entry| &entry.host)).finish()
    }
}

/// A hash of a credential. Not printable.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint([u8; 32]);

#[derive(Deserialize)]
struct DockerConfig {
    auths: Option<std::collections::BTreeMap<String, Option<DockerAuth>>>,
}

#[derive(Deserialize)]
struct DockerAuth {
    username: Option<String>,
    password: Option<SecretString>,
    auth: Option<SecretString>,
    identitytoken: Option<SecretString>,
    registrytoken: Option<SecretString>,
}

impl DockerAuth {
    fn parse(self) -> Result<Option<Auth>, ArtifactError> {
        let given = |token: &SecretString| !token.expose_secret().is_empty();
        if let Some(token) = self.registrytoken.filter(given) {
            return Ok(Some(Auth::Bearer(token)));
        }
        if let Some(token) = self.identitytoken.filter(given) {
            return Ok(Some(Auth::Refresh(token)));
        }
        if let Some(pair) = self.auth.filter(given) {
            // `base64` without `-w0` encodes long tokens with line breaks. Some tools use the alphabet for URLs.
            let pair = pair.expose_secret().chars().filter(|c| !c.is_ascii_whitespace());
            let standard = |c| match c {
                '-' => '+',
                '_' => '/',
                other => other,
            };
            let pair: String = pair.map(standard).collect();
            let decoded = AUTH.decode(pair).ok().and_then(|pair| String::from_utf8(pair).ok());
            let (user, password) = decoded
                .as_deref()
                .and_then(|pair| pair.split_once(':'))
                .ok_or_else(|| bad_pull_secret("auth is not base64 of user:password"))?;
            return Ok(Auth::of_pair(user, password.trim_matches('\0')));
        }
        let pair = self.username.zip(self.password);
        Ok(pair.and_then(|(user, password)| Auth::of_pair(&user, password.expose_secret())))
    }
}

fn bad_pull_secret(problem: &'static str) -> ArtifactError {
    ArtifactError::PullSecret { problem }
}

/// Splits a key into host and path. Docker writes keys as host, host/path or URL, and its own with `/v1/` or `/v2/`.
fn split_key(key: &str) -> (String, String) {
    let bare = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
    let path = path.trim_matches('/');
    let path = if matches!(path, "v1" | "v2") { "" } else { path };
    (canonical_host(host), path.to_owned())
}

/// Returns the canonical name of a host. Docker Hub has three names.
fn canonical_host(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    match host.strip_suffix(":443").unwrap_or(&host) {
        "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        host => host.to_owned(),
    }
}

/// Reports whether a host matches a pattern. Each `*` matches any part of one label, as in kubelets; ports must be
/// equal. An IPv6 address matches only itself.
fn host_matches(pattern: &str, host: &str) -> bool {
    if host.starts_with('[') {
        return pattern == host;
    }
    let port = |text: &str| text.split_once(':').map(|(_, port)| port.to_owned());
    let labels =
        |text: &str| text.split(':').next().unwrap_or("").split('.').map(str::to_owned).collect::<Vec<_>>();
    let (wanted, found) = (labels(pattern), labels(host));
    port(pattern) == port(host)
        && wanted.len() == found.len()
        && wanted.iter().zip(&found).all(|(wanted, found)| label_matches(wanted, found))
}

fn label_matches(pattern: &str, label: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == label };
    let Some(mut left) = label.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some((_, after)) = left.split_once(part) else { return false };
        left = after;
    }
    left.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(credentials: &Credentials, host: &str, path: &str) -> Option<String> {
        match credentials.for_path(host, path)? {
            Auth::Basic { user, .. } => Some(user.clone()),
            Auth::Bearer(_) | Auth::Refresh(_) => Some("token".to_owned()),
        }
    }

    #[test]
    fn a_pull_secret_serves_its_host_and_the_longest_path() {
        let pair = AUTH.encode("deep:p:w");
        let json = format!(
            r#"{{"auths":{{"https://reg.example/v1/":{{"username":"wide","password":"x"}},
                "reg.example/team":{{"auth":"{pair}"}},"*.corp.example":{{"identitytoken":"t"}}}}}}"#
        );
        let credentials = Credentials::from_docker_config(json.as_bytes()).unwrap();
        assert_eq!(user(&credentials, "reg.example", "other/x"), Some("wide".to_owned()));
        assert_eq!(user(&credentials, "reg.example", "team/x"), Some("deep".to_owned()));
        assert_eq!(user(&credentials, "reg.example", "teammates/x"), Some("wide".to_owned()));
        assert_eq!(user(&credentials, "a.corp.example", "x"), Some("token".to_owned()));
        assert_eq!(user(&credentials, "corp.example", "x"), None);
        assert_eq!(user(&credentials, "reg.example:5000", "x"), None);
        assert_eq!(user(&credentials, "reg.example.evil.org", "x"), None);
    }

    #[test]
    fn a_host_comes_before_a_pattern() {
        let json = r#"{"auths":{"*.example":{"username":"all","password":"x"},
            "*.example/team":{"username":"team","password":"x"},
            "reg.example":{"username":"one","password":"x"}}}"#;
        let credentials = Credentials::from_docker_config(json.as_bytes()).unwrap();
        for (host, path, expected) in [
            ("reg.example", "x", "one"),
            ("reg.example", "team/x", "one"),
            ("other.example", "x", "all"),
            ("other.example", "team/x", "team"),
        ] {
            assert_eq!(user(&credentials, host, path).as_deref(), Some(expected), "{host}/{path}");
        }
    }

    #[test]
    fn each_star_of_a_pattern_matches_within_one_label() {
        for (pattern, host, expected) in [
            ("*.example", "reg.example", true),
            ("*.example", "a.reg.example", false),
            ("*.*.example", "a.reg.example", true),
            ("reg-*.example", "reg-1.example", true),
            ("reg-*-eu-*.example", "reg-1-eu-2.example", true),
            ("reg-*-eu-*.example", "reg-1-us-2.example", false),
            ("**.example", "reg.example", true),
            ("a*a.example", "a.example", false),
            ("a*b*b.example", "ab.example", false),
            ("*.example:5000", "reg.example", false),
        ] {
            assert_eq!(host_matches(pattern, host), expected, "{pattern} and {host}");
        }
    }

    #[test]
    fn keys_may_begin_with_the_path_of_the_api() {
        let json = r#"{"auths":{"https://reg.example/v2/team":{"username":"a","password":"x"},
            "https://index.docker.io/v1/":{"username":"b","password":"x"},
            "http://lan:5000/v2/":{"username":"c","password":"x"}}}"#;
        let credentials = Credentials::from_docker_config(json.as_bytes()).unwrap();
        let rows = [
            ("reg.example", "team/x", Some("a")),
            ("reg.example", "v2/team/x", Some("a")),
            ("reg.example", "other/x", None),
            ("docker.io", "bitnamicharts/x", Some("b")),
            ("registry-1.docker.io", "x", Some("b")),
            ("index.docker.io:443", "x", Some("b")),
            ("lan:5000", "x", Some("c")),
            ("lan", "x", None),
        ];
        for (host, path, expected) in rows {
            assert_eq!(user(&credentials, host, path).as_deref(), expected, "{host}/{path}");
        }
    }

    #[test]
    fn auth_is_read_as_a_kubelet_reads_it() {
        // Its base64 has both characters that differ in the alphabet for URLs.
        let token = "t?~>".repeat(23);
        for user in ["robot", "robot1", "robot12"] {
            let padded = AUTH.encode(format!("{user}:{token}"));
            let unpadded = padded.trim_end_matches('=').to_owned();
            let wrapped = |separator: &str| {
                let lines = padded.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap());
                lines.collect::<Vec<_>>().join(separator) + separator
            };
            let for_urls = padded.replace('+', "-").replace('/', "_");
            for auth in [padded.clone(), unpadded, wrapped("\n"), wrapped("\r\n"), for_urls] {
                let json = serde_json::json!({"auths": {"reg.example": {"auth": auth}}}).to_string();
                let credentials = Credentials::from_docker_config(json.as_bytes()).unwrap();
                let Some(Auth::Basic { user: found, password }) = credentials.for_path("reg.example", "x")
                else {
                    panic!("no credentials of {auth:?}")
                };
                assert_eq!((found.as_str(), password.expose_secret()), (user, token.as_str()), "{auth:?}");
            }
        }
    }

    #[test]
    fn an_entry_without_credentials_stands_for_none() {
        for json in [
            r#"{"auths":{"h":null}}"#,
            r#"{"auths":{"h":{}}}"#,
            r#"{"auths":null}"#,
            "{}",
            r#"{"auths":{"h":{"username":"","password":"","auth":""}}}"#,
            r#"{"auths":{"h":{"auth":"Og=="}}}"#,
            r#"{"credsStore":"desktop","credHelpers":{"h":"ecr-login"}}"#,
        ] {
            assert!(Credentials::from_docker_config(json.as_bytes()).unwrap().is_anonymous(), "{json}");
        }
    }

    #[test]
    fn a_broken_pull_secret_is_named_without_its_content() {
        for json in [r#"{"auths":{"h":{"auth":"hunter2"}}}"#, "hunter2", r#"{"auths":["hunter2"]}"#] {
            let error = Credentials::from_docker_config(json.as_bytes()).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
    }

    #[test]
    fn debug_shows_hosts_only() {
        let credentials = Credentials::basic("reg.example", "robot", "hunter2");
        assert_eq!(format!("{credentials:?}"), r#"{"reg.example"}"#);
    }

    #[test]
    fn fingerprints_differ_by_what_is_sent_to_the_host() {
        let one = Credentials::basic("h", "u", "p");
        let two = Credentials::basic("h", "u", "q");
        assert!(one.fingerprint("h", "") != two.fingerprint("h", ""));
        assert!(one.fingerprint("elsewhere", "") == two.fingerprint("elsewhere", ""));
        assert!(one.fingerprint("elsewhere", "") == Credentials::anonymous().fingerprint("elsewhere", ""));
    }
}
