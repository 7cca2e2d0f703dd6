//! HTTP with manners: known hosts only, bounded bodies, deadlines, credentials that stay at home.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use reqwest::{
    Client, Method, Response, StatusCode, Url,
    header::{
        ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
    },
};
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer, pki_types::pem::PemObject as _};

use crate::{
    ArtifactError, Config,
    config::{PUBLIC_REGISTRIES, WELL_KNOWN_HOSTS},
    digest::printable,
};

const MAX_REDIRECTS: usize = 5;
const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

/// The one way out of this crate.
pub(crate) struct Http {
    client: Client,
    hosts: Hosts,
}

/// A request as it is sent first; redirects change only its address and drop its authorization.
#[derive(Clone)]
pub(crate) struct Request {
    /// Names the artifact in errors.
    pub(crate) what: String,
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) accept: &'static str,
    pub(crate) authorization: Option<HeaderValue>,
    /// What else the answer depends on: a condition, or a part of the content.
    pub(crate) modifier: Option<(HeaderName, HeaderValue)>,
    pub(crate) body: Option<(&'static str, Bytes)>,
}

impl Request {
    pub(crate) fn new(what: impl Into<String>, method: Method, url: Url) -> Self {
        let what = what.into();
        Self { what, method, url, accept: "*/*", authorization: None, modifier: None, body: None }
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    pub(crate) fn authorization(mut self, authorization: Option<HeaderValue>) -> Self {
        self.authorization = authorization;
        self
    }

    pub(crate) fn modifier(mut self, header: (HeaderName, HeaderValue)) -> Self {
        self.modifier = Some(header);
        self
    }

    pub(crate) fn body(mut self, content_type: &'static str, body: Bytes) -> Self {
        self.body = Some((content_type, body));
        self
    }
}

impl Http {
    pub(crate) fn new(config: &Config) -> Result<Self, ArtifactError> {
        let unusable = |setting| move |error: reqwest::Error| settings(setting, &cause(&error));
        let mut builder = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .user_agent(&config.user_agent)
            .connect_timeout(config.deadlines.connect)
            .timeout(config.deadlines.request)
            .read_timeout(config.deadlines.idle)
            .pool_max_idle_per_host(8)
            .tls_backend_preconfigured(tls(config.ca_pem.as_deref())?);
        if let Some(proxy) = &config.proxy {
            builder = builder.proxy(proxied(proxy, &config.proxy_except)?);
        }
        let client = builder.build().map_err(unusable("client"))?;
        Ok(Self { client, hosts: Hosts::new(config) })
    }

    /// `https://host/`, or `http://host/` where the settings name the host.
    pub(crate) fn origin(&self, host: &str) -> Result<Url, ArtifactError> {
        // Docker Hub's registry has another name than its images.
        let host = if host == "docker.io" { "registry-1.docker.io" } else { host };
        let scheme = if self.hosts.is_insecure(host) { "http" } else { "https" };
        Url::parse(&format!("{scheme}://{host}/"))
            .map_err(|_| ArtifactError::invalid(printable(host), "not a host"))
    }

    /// Refuses an address that plain HTTP is not allowed for.
    pub(crate) fn check_scheme(&self, what: &str, url: &Url) -> Result<(), ArtifactError> {
        if self.hosts.scheme_allowed(url) {
            return Ok(());
        }
        Err(ArtifactError::invalid(what, "only https is allowed, and http for hosts named by a flag"))
    }

    /// Whether something at `from` may send us on to `to`.
    pub(crate) fn may_follow(&self, from: &Url, to: &Url) -> bool {
        self.hosts.may_follow(from, to)
    }

    /// Whether an index at `from` may name an artifact in the registry at `host[:port]`: one that the settings name, on the
    /// host of the index, or a public one.
    pub(crate) fn may_ask_registry(&self, from: &Url, host: &str) -> bool {
        let is_known = || self.hosts.is_insecure(host) || PUBLIC_REGISTRIES.contains(&host);
        let https = || Url::parse(&format!("https://{host}/"));
        is_known() || https().is_ok_and(|url| self.hosts.may_follow(from, &url))
    }

    /// Sends, following allowed redirects of reads. Any status is an answer.
    pub(crate) async fn send(&self, request: Request) -> Result<Response, ArtifactError> {
        let Request { what, method, mut url, accept, mut authorization, modifier, body } = request;
        let reads = method == Method::GET || method == Method::HEAD;
        for _ in 0..=MAX_REDIRECTS {
            let mut builder = self.client.request(method.clone(), url.clone()).header(ACCEPT, accept);
            if let Some(authorization) = &authorization {
                builder = builder.header(AUTHORIZATION, authorization);
            }
            if let Some((name, value)) = &modifier {
                builder = builder.header(name, value);
            }
            if let Some((content_type, body)) = &body {
                builder = builder.header(CONTENT_TYPE, *content_type).body(body.clone());
            }
            let response = builder.send().await.map_err(|error| unreachable(&what, &error))?;
            if !is_redirect(response.status()) {
                return Ok(response);
            }
            let next = location(&what, &url, response.headers())?;
            if !reads || !self.hosts.may_follow(&url, &next) {
                return Err(ArtifactError::RedirectNotAllowed { what, host: authority(&next) });
            }
            if authority(&next) != authority(&url) || next.scheme() != url.scheme() {
                authorization = None;
            }
            url = next;
        }
        Err(ArtifactError::invalid(what, format!("more than {MAX_REDIRECTS} redirects")))
    }
}

/// The address in `Location`, relative to where it was found.
pub(crate) fn location(what: &str, from: &Url, headers: &HeaderMap) -> Result<Url, ArtifactError> {
    headers
        .get(LOCATION)
        .and_then(|location| location.to_str().ok())
        .and_then(|location| from.join(location).ok())
        .ok_or_else(|| ArtifactError::invalid(what, "an answer without a usable Location"))
}

/// Reads a whole body of at most `limit` bytes.
pub(crate) async fn body(what: &str, mut response: Response, limit: u64) -> Result<Bytes, ArtifactError> {
    let too_large = || ArtifactError::TooLarge { what: what.to_owned(), limit };
    if response.content_length().is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let mut content = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(what, &error))? {
        if (content.len() + chunk.len()) as u64 > limit {
            return Err(too_large());
        }
        content.extend_from_slice(&chunk);
    }
    Ok(content.freeze())
}

/// What an answer that is no success means.
pub(crate) fn refusal(what: &str, response: &Response) -> ArtifactError {
    let what = what.to_owned();
    let status = response.status().as_u16();
    match status {
        404 | 410 => ArtifactError::NotFound { what },
        401 | 403 => ArtifactError::Unauthorized { what, status },
        _ => ArtifactError::Unavailable { what, status, retry_after: retry_after(response.headers()) },
    }
}

/// `host[:port]` of an address.
pub(crate) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

pub(crate) fn unreachable(what: &str, error: &reqwest::Error) -> ArtifactError {
    ArtifactError::Unreachable { what: what.to_owned(), cause: cause(error) }
}

/// The innermost reason, which names the failure (`Connection refused`, `UnknownIssuer`) and no address.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    printable(&innermost.to_string())
}

/// The proxy, for all hosts but those.
fn proxied(proxy: &Url, except: &[String]) -> Result<reqwest::Proxy, ArtifactError> {
    let plain = proxy.username().is_empty() && proxy.password().is_none() && proxy.path() == "/";
    if !matches!(proxy.scheme(), "http" | "https") || proxy.host_str().is_none() || !plain {
        return Err(settings(
            "proxy",
            "http://host:port or https://host:port is expected, without credentials",
        ));
    }
    let (proxy, except) = (proxy.clone(), lower(except));
    Ok(reqwest::Proxy::custom(move |to| {
        let target = authority(to);
        (!except.iter().any(|pattern| covers(pattern, &target))).then(|| proxy.clone())
    }))
}

fn lower(hosts: &[String]) -> Vec<String> {
    hosts.iter().map(|host| host.to_ascii_lowercase()).collect()
}

fn settings(setting: &'static str, problem: &str) -> ArtifactError {
    ArtifactError::Settings { setting, problem: problem.to_owned() }
}

fn tls(ca_pem: Option<&[u8]>) -> Result<ClientConfig, ArtifactError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    for certificate in ca_pem.map(CertificateDer::pem_slice_iter).into_iter().flatten() {
        let certificate = certificate.map_err(|_| settings("ca_pem", "not PEM certificates"))?;
        roots.add(certificate).map_err(|_| settings("ca_pem", "not a certificate that can be trusted"))?;
    }
    let mut tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| settings("client", &error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

/// Which hosts may be spoken to, and how.
pub(crate) struct Hosts {
    insecure: Vec<String>,
    allowed: Vec<String>,
}

impl Hosts {
    pub(crate) fn new(config: &Config) -> Self {
        let mut allowed = lower(&config.allowed_hosts);
        allowed.extend(WELL_KNOWN_HOSTS.iter().map(|host| (*host).to_owned()));
        Self { insecure: lower(&config.insecure_hosts), allowed }
    }

    fn is_insecure(&self, authority: &str) -> bool {
        self.insecure.iter().any(|host| host.eq_ignore_ascii_case(authority))
    }

    fn scheme_allowed(&self, url: &Url) -> bool {
        url.username().is_empty()
            && url.password().is_none()
            && (url.scheme() == "https" || (url.scheme() == "http" && self.is_insecure(&authority(url))))
    }

    pub(crate) fn may_follow(&self, from: &Url, to: &Url) -> bool {
        let target = authority(to);
        let listed = || self.allowed.iter().any(|pattern| covers(pattern, &target));
        self.scheme_allowed(to) && (authority(from) == target || listed())
    }
}

fn covers(pattern: &str, authority: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(suffix) => {
            suffix.starts_with('.') && authority.len() > suffix.len() && authority.ends_with(suffix)
        }
        None => pattern == authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Hosts {
        let mut config = Config::new("unused");
        config.insecure_hosts = vec!["127.0.0.1:5000".to_owned()];
        config.allowed_hosts = vec!["Tokens.example".to_owned(), "*.cdn.example".to_owned()];
        Hosts::new(&config)
    }

    fn follows(from: &str, to: &str) -> bool {
        hosts().may_follow(&from.parse().unwrap(), &to.parse().unwrap())
    }

    #[test]
    fn only_the_same_and_allowed_hosts_are_followed() {
        let registry = "https://reg.example/v2/a";
        for allowed in [
            "https://reg.example/x",
            "https://tokens.example/t",
            "https://a.cdn.example",
            "https://auth.docker.io/",
        ] {
            assert!(follows(registry, allowed), "{allowed}");
        }
        for foreign in [
            "https://evil.example/",
            "https://reg.example:8443/",
            "http://reg.example/",
            "http://tokens.example/",
            "https://cdn.example/",
            "https://evilcdn.example/",
            "https://reg.example@evil.example/",
            "https://user@reg.example/",
            "http://169.254.169.254/latest",
            "file:///etc/passwd",
        ] {
            assert!(!follows(registry, foreign), "{foreign}");
        }
    }

    #[test]
    fn plain_http_is_for_named_hosts_only() {
        assert!(follows("http://127.0.0.1:5000/", "http://127.0.0.1:5000/x"));
        assert!(!follows("http://127.0.0.1:5000/", "http://127.0.0.1:5001/x"));
    }
}
