//! HTTP client: allowed hosts only, limited bodies, deadlines, and credentials that are not sent to other hosts.

mod addresses;
mod certificates;
mod client;
mod failure;
mod hosts;

use std::{ops::Deref, time::Duration};

use bytes::{Bytes, BytesMut};
use jiff::{Timestamp, fmt::rfc2822};
use reqwest::{
    Method, StatusCode, Url,
    header::{
        ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
    },
};

use self::{addresses::NetworkScope, client::Clients, failure::cause};
pub(crate) use hosts::{Hosts, authority};

use crate::config::{Config, PUBLIC_REGISTRIES};
use crate::error::ArtifactError;
use crate::refusal::Refusal;
use crate::storage::digest::printable;

const MAX_REDIRECTS: usize = 5;
const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

/// The only client of this crate for the network.
pub(crate) struct Http {
    clients: Clients,
    hosts: Hosts,
    idle: Duration,
}

/// A response whose body has a limit on the time without data.
pub(crate) struct Response {
    inner: reqwest::Response,
    idle: Duration,
}

impl Response {
    /// Returns the next chunk of the body.
    pub(crate) async fn chunk(&mut self, what: &str) -> Result<Option<Bytes>, ArtifactError> {
        match tokio::time::timeout(self.idle, self.inner.chunk()).await {
            Ok(chunk) => chunk.map_err(|error| unreachable(what, &error)),
            Err(_) => Err(ArtifactError::Unreachable {
                what: what.to_owned(),
                cause: format!("no further byte of the answer within {} s", self.idle.as_secs()),
            }),
        }
    }
}

impl Deref for Response {
    type Target = reqwest::Response;

    fn deref(&self) -> &reqwest::Response {
        &self.inner
    }
}

/// The first request; redirects change only its address and drop its authorization.
#[derive(Clone)]
pub(crate) struct Request {
    /// Names the artifact in errors.
    pub(crate) what: String,
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) accept: &'static str,
    pub(crate) authorization: Option<HeaderValue>,
    /// Header on which the answer depends: a condition, or a range.
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
        Ok(Self { clients: Clients::new(config)?, hosts: Hosts::new(config), idle: config.deadlines.idle })
    }

    /// Returns `https://host/`, or `http://host/` for configured insecure hosts.
    pub(crate) fn origin(&self, host: &str) -> Result<Url, ArtifactError> {
        // The registry of Docker Hub has another host name than its images and its pull secrets.
        let is_docker_hub = matches!(host, "docker.io" | "index.docker.io");
        let host = if is_docker_hub { "registry-1.docker.io" } else { host };
        let scheme = if self.hosts.is_insecure(host) { "http" } else { "https" };
        Url::parse(&format!("{scheme}://{host}/"))
            .map_err(|_| ArtifactError::address(printable(host), "not a host"))
    }

    /// Refuses an address that may not be called.
    pub(crate) fn check_address(&self, what: &str, url: &Url) -> Result<(), ArtifactError> {
        self.hosts.check_address(url).map_err(|refusal| {
            let problem = match refusal {
                Refusal::User => {
                    "it has a user or password; put credentials into the pull secret instead".to_owned()
                }
                Refusal::PlainHttp => format!(
                    "only https is allowed; name {} in --oci-insecure-hosts of helm-component to allow http",
                    printable(&authority(url))
                ),
                _ => format!("the scheme {} is not supported; write https://", printable(url.scheme())),
            };
            ArtifactError::address(what, problem)
        })
    }

    /// Checks that a source at `from` may redirect to `to`.
    pub(crate) fn check_link(&self, from: &Url, to: &Url) -> Result<(), Refusal> {
        self.hosts.check(&[from], to)
    }

    /// Returns whether an index at `from` may name an artifact in the registry at `host[:port]`: a configured
    /// registry, the host of the index, or a public registry.
    pub(crate) fn may_ask_registry(&self, from: &Url, host: &str) -> bool {
        let is_known = || self.hosts.is_insecure(host) || PUBLIC_REGISTRIES.contains(&host);
        let https = || Url::parse(&format!("https://{host}/"));
        is_known() || https().is_ok_and(|url| self.hosts.check(&[from], &url).is_ok())
    }

    /// Sends a request and follows allowed redirects of reads. Every status is returned as an answer.
    pub(crate) async fn send(&self, request: Request) -> Result<Response, ArtifactError> {
        let is_read = request.method == Method::GET || request.method == Method::HEAD;
        let (mut url, mut authorization) = (request.url.clone(), request.authorization.clone());
        let what = &request.what;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send_once(&request, &url, authorization.as_ref()).await?;
            if !is_redirect(response.status()) {
                return Ok(Response { inner: response, idle: self.idle });
            }
            let next = location(what, &url, response.headers())?;
            let checked = self.hosts.check(&[&request.url, &url], &next);
            let checked = if is_read { checked } else { checked.and(Err(Refusal::Content)) };
            checked.map_err(|refusal| redirect_refused(what, "redirects to", &next, refusal))?;
            if authority(&next) != authority(&url) || next.scheme() != url.scheme() {
                authorization = None;
            }
            url = next;
        }
        Err(ArtifactError::invalid(what, format!("more than {MAX_REDIRECTS} redirects")))
    }

    async fn send_once(
        &self,
        request: &Request,
        url: &Url,
        authorization: Option<&HeaderValue>,
    ) -> Result<reqwest::Response, ArtifactError> {
        let Request { what, method, accept, modifier, body, .. } = request;
        let authority = authority(url);
        let scope =
            if self.hosts.may_be_private(&authority) { NetworkScope::Private } else { NetworkScope::Public };
        if !self.hosts.is_named(&authority) {
            let refused =
                |refused: addresses::RefusedAddress| address_refused(what, &authority, refused.range);
            scope.check_literal(url).map_err(refused)?;
        }
        let clients = self.clients.get().await;
        let mut builder =
            clients.client_for(scope).request(method.clone(), url.clone()).header(ACCEPT, *accept);
        if let Some(authorization) = authorization {
            builder = builder.header(AUTHORIZATION, authorization);
        }
        if let Some((name, value)) = modifier {
            builder = builder.header(name, value);
        }
        if let Some((content_type, body)) = body {
            builder = builder.header(CONTENT_TYPE, *content_type).body(body.clone());
        }
        builder.send().await.map_err(|error| match addresses::refusal_in(&error) {
            Some(refused) => address_refused(what, &authority, refused.range.clone()),
            None => unreachable(what, &error),
        })
    }
}

fn address_refused(what: &str, host: &str, range: String) -> ArtifactError {
    ArtifactError::AddressNotAllowed { what: what.to_owned(), host: printable(host), range }
}

/// Returns the error for a refused address that a source names in this way.
pub(crate) fn redirect_refused(what: &str, how: &'static str, to: &Url, refusal: Refusal) -> ArtifactError {
    ArtifactError::RedirectNotAllowed { what: what.to_owned(), how, host: authority(to), refusal }
}

/// Returns the address in `Location`, resolved against `from`.
pub(crate) fn location(what: &str, from: &Url, headers: &HeaderMap) -> Result<Url, ArtifactError> {
    headers
        .get(LOCATION)
        .and_then(|location| location.to_str().ok())
        .and_then(|location| from.join(location).ok())
        .ok_or_else(|| ArtifactError::invalid(what, "an answer without a usable Location"))
}

/// Reads a complete body of at most `limit` bytes.
pub(crate) async fn body(what: &str, mut response: Response, limit: u64) -> Result<Bytes, ArtifactError> {
    let too_large = || ArtifactError::TooLarge { what: what.to_owned(), limit };
    if response.content_length().is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let mut content = BytesMut::new();
    while let Some(chunk) = response.chunk(what).await? {
        if (content.len() + chunk.len()) as u64 > limit {
            return Err(too_large());
        }
        content.extend_from_slice(&chunk);
    }
    Ok(content.freeze())
}

/// Returns the error for an answer that is no success.
pub(crate) fn refusal(what: &str, response: &Response) -> ArtifactError {
    let what = what.to_owned();
    let status = response.status().as_u16();
    match status {
        404 | 410 => ArtifactError::NotFound { what },
        401 | 403 => ArtifactError::unauthorized(what, status),
        _ => ArtifactError::Unavailable { what, status, retry_after: retry_after(response.headers()) },
    }
}

/// Returns the delay in `Retry-After`, given in seconds or as a date. A delay of zero counts as none: it would cause
/// requests without growing pauses.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds: u64 = value.parse().ok().or_else(|| seconds_until(value, headers))?;
    (seconds > 0).then(|| Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

/// Returns the seconds until a date, by the server's clock if the answer has its time.
fn seconds_until(date: &str, headers: &HeaderMap) -> Option<u64> {
    let time = |text: &str| rfc2822::DateTimeParser::new().parse_timestamp(text).ok();
    let now = headers.get(DATE).and_then(|now| now.to_str().ok()).and_then(time);
    let left = time(date)?.as_second() - now.unwrap_or_else(Timestamp::now).as_second();
    u64::try_from(left).ok()
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn unreachable(what: &str, error: &reqwest::Error) -> ArtifactError {
    ArtifactError::Unreachable { what: what.to_owned(), cause: cause(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_a_number_of_seconds_or_a_date() {
        let now = "Sun, 06 Nov 2022 08:49:37 GMT";
        let rows = [
            ("7", Some(7)),
            (" 7 ", Some(7)),
            ("86400", Some(3600)),
            ("Sun, 06 Nov 2022 08:50:37 GMT", Some(60)),
            ("Mon, 07 Nov 2022 08:49:37 GMT", Some(3600)),
            (now, None),
            ("Sun, 06 Nov 2022 08:49:36 GMT", None),
            ("0", None),
            ("-1", None),
            ("soon", None),
        ];
        for (value, seconds) in rows {
            let headers = [(RETRY_AFTER, value), (DATE, now)];
            let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
            let delay = retry_after(&headers.into_iter().collect());
            assert_eq!(delay, seconds.map(Duration::from_secs), "{value:?}");
        }
    }

    #[test]
    fn docker_hub_has_one_registry() {
        let http = Http::new(&Config::new("unused")).unwrap();
        for host in ["docker.io", "index.docker.io", "registry-1.docker.io"] {
            assert_eq!(http.origin(host).unwrap().as_str(), "https://registry-1.docker.io/", "{host}");
        }
    }
}
