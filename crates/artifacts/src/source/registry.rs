//! The OCI distribution protocol, reduced to pull and push.

mod link;
mod session;
mod tokens;

use bytes::Bytes;
use reqwest::{
    Method, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LINK},
};
use serde::Deserialize;

use crate::config::Limits;
use crate::error::ArtifactError;
use crate::refusal::Refusal;
use crate::selector::reference::{OciReference, is_tag};
use crate::source::http;
use crate::source::http::{Request, Response};
use crate::storage::digest::Digest;

pub(crate) use session::Session;
#[cfg(fuzzing)]
pub(crate) use tokens::bearer_challenge;
use tokens::{RequestKind, TokenKey, Tokens};
pub(crate) use tokens::{basic, bearer};

const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, \
                         application/vnd.docker.distribution.manifest.v2+json, \
                         application/vnd.oci.image.index.v1+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const BINARY: &str = "application/octet-stream";
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// Maximum number of pages of tags of one repository, and of all its tags.
const MAX_TAG_PAGES: usize = 256;
const MAX_TAGS: usize = 100_000;
/// Maximum number of pages of artifacts that refer to a manifest.
const MAX_REFERRER_PAGES: usize = 16;

/// A client of all registries, with their tokens.
pub(crate) struct Registry {
    tokens: Tokens,
    limits: Limits,
}

impl Registry {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { tokens: Tokens::new(), limits }
    }

    /// Reads a manifest or an index of manifests, and verifies its digest: the one in the reference, or the one that
    /// is returned for a tag.
    pub(crate) async fn manifest(
        &self,
        session: Session<'_>,
        reference: &OciReference,
    ) -> Result<(Digest, Bytes), ArtifactError> {
        let what = reference.to_string();
        let path = format!("manifests/{}", reference.locator());
        let response = self.call(session, &what, Method::GET, &path, None).await?;
        let response = success(session, &what, response)?;
        let told = content_digest(response.headers());
        let content = http::body(&what, response, self.limits.manifest).await?;
        let found = Digest::of(&content);
        match reference.digest().or(told) {
            Some(expected) if expected != found => {
                Err(ArtifactError::DigestMismatch { what, expected, found })
            }
            _ if !is_manifest(&content) => Err(ArtifactError::invalid(what, "not an OCI image manifest")),
            _ => Ok((found, content)),
        }
    }

    /// Sends HEAD to check that these credentials can read a manifest with this digest. A refusal of HEAD proves
    /// neither.
    ///
    /// # Errors
    /// If the registry does not answer, or throttles.
    pub(crate) async fn confirms(
        &self,
        session: Session<'_>,
        reference: &OciReference,
        expected: Digest,
    ) -> Result<bool, ArtifactError> {
        let what = reference.to_string();
        let path = format!("manifests/{}", reference.locator());
        let response = match self.call(session, &what, Method::HEAD, &path, None).await {
            Ok(response) => response,
            Err(error @ ArtifactError::Unreachable { .. }) => return Err(error),
            Err(_) => return Ok(false),
        };
        if matches!(response.status().as_u16(), 429 | 503) {
            return Err(http::refusal(&what, &response));
        }
        let found = content_digest(response.headers());
        Ok(response.status().is_success()
            && (found == Some(expected) || (found.is_none() && reference.digest().is_some())))
    }

    /// Returns all tags of a repository, page by page. Beyond the limits it fails, since a partial list would hide
    /// versions.
    pub(crate) async fn tags(&self, session: Session<'_>) -> Result<Vec<String>, ArtifactError> {
        #[derive(Deserialize)]
        struct Page {
            tags: Option<Vec<String>>,
        }
        let what = format!("the list of tags of {}", session.repository);
        let mut tags = vec![];
        let origin = session.http.origin(session.repository.host())?;
        let mut response = self.call(session, &what, Method::GET, "tags/list?n=1000", None).await?;
        // A registry may allow fewer tags per page.
        if response.status() == StatusCode::BAD_REQUEST {
            response = self.call(session, &what, Method::GET, "tags/list", None).await?;
        }
        for _ in 0..MAX_TAG_PAGES {
            let next = next_page(&what, &origin, &response)?;
            let page = http::body(&what, success(session, &what, response)?, self.limits.manifest).await?;
            let page: Page = serde_json::from_slice(&page)
                .map_err(|_| ArtifactError::invalid(&what, "the registry's answer cannot be read"))?;
            // Other tags cannot be requested.
            tags.extend(page.tags.unwrap_or_default().into_iter().filter(|tag| is_tag(tag)));
            match next {
                None => return Ok(tags),
                Some(_) if tags.len() > MAX_TAGS => break,
                Some(next) => {
                    let request = Request::new(&what, Method::GET, next);
                    response = self.send(session, &what, request).await?;
                }
            }
        }
        Err(ArtifactError::invalid(what, "the list does not end"))
    }

    /// Reads an index by tag.
    pub(crate) async fn index(
        &self,
        session: Session<'_>,
        reference: &OciReference,
    ) -> Result<Bytes, ArtifactError> {
        let what = reference.to_string();
        let url = address(session, &what, &format!("manifests/{}", reference.locator()))?;
        let request = Request::new(&what, Method::GET, url).accept(INDEX);
        let response = self.send(session, &what, request).await?;
        http::body(&what, success(session, &what, response)?, self.limits.manifest).await
    }

    /// Returns the pages of the index of artifacts of a type that refer to a manifest; `None` if the registry does not
    /// offer such lists. All pages together are at most as large as a manifest.
    pub(crate) async fn referrers(
        &self,
        session: Session<'_>,
        subject: Digest,
        artifact_type: &str,
    ) -> Result<Option<Vec<Bytes>>, ArtifactError> {
        let what = session.repository.digest(subject).to_string();
        let origin = session.http.origin(session.repository.host())?;
        let mut url = address(session, &what, &format!("referrers/{subject}"))?;
        url.query_pairs_mut().append_pair("artifactType", artifact_type);
        let mut pages = vec![];
        let mut remaining = self.limits.manifest;
        for _ in 0..MAX_REFERRER_PAGES {
            let request = Request::new(&what, Method::GET, url).accept(INDEX);
            let response = self.send(session, &what, request).await?;
            // Registries without this path answer with one of these statuses, or with content of another type.
            let is_absent = matches!(response.status().as_u16(), 400 | 404 | 405 | 406 | 501);
            if pages.is_empty() && is_absent {
                return Ok(None);
            }
            let response = success(session, &what, response)?;
            if pages.is_empty() && !has_index(response.headers()) {
                return Ok(None);
            }
            let next = next_page(&what, &origin, &response)?;
            let page = http::body(&what, response, remaining).await?;
            remaining -= page.len() as u64;
            pages.push(page);
            let Some(next) = next else { return Ok(Some(pages)) };
            url = next;
        }
        Err(ArtifactError::invalid(what, "its list of referrers does not end"))
    }

    /// Reads a blob of at most `limit` bytes.
    pub(crate) async fn blob(
        &self,
        session: Session<'_>,
        expected: Digest,
        limit: u64,
    ) -> Result<Bytes, ArtifactError> {
        let what = session.repository.digest(expected).to_string();
        let response = self.call(session, &what, Method::GET, &format!("blobs/{expected}"), None).await?;
        let content = http::body(&what, success(session, &what, response)?, limit).await?;
        let found = Digest::of(&content);
        if found == expected {
            Ok(content)
        } else {
            Err(ArtifactError::DigestMismatch { what, expected, found })
        }
    }

    /// Reports whether the repository has a blob.
    pub(crate) async fn has_blob(&self, session: Session<'_>, digest: Digest) -> Result<bool, ArtifactError> {
        let what = session.repository.digest(digest).to_string();
        let response = self.call(session, &what, Method::HEAD, &format!("blobs/{digest}"), None).await?;
        // Some registries do not answer HEAD. An existing blob is then written again.
        if matches!(response.status().as_u16(), 405 | 501) {
            return Ok(false);
        }
        match success(session, &what, response) {
            Ok(_) => Ok(true),
            Err(ArtifactError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes a blob in one piece.
    pub(crate) async fn put_blob(&self, session: Session<'_>, content: &Bytes) -> Result<(), ArtifactError> {
        let digest = Digest::of(content);
        let what = session.repository.digest(digest).to_string();
        let opened =
            self.call(session, &what, Method::POST, "blobs/uploads/", Some((BINARY, Bytes::new()))).await?;
        let opened = success(session, &what, opened)?;
        let origin = session.http.origin(session.repository.host())?;
        let mut upload = http::location(&what, &origin, opened.headers())?;
        check_stays(&what, "sends the upload to", &origin, &upload)?;
        upload.query_pairs_mut().append_pair("digest", &digest.to_string());
        let request = Request::new(&what, Method::PUT, upload).body(BINARY, content.clone());
        let response = self.send(session, &what, request).await?;
        success(session, &what, response).map(|_| ())
    }

    /// Writes a manifest under `reference`'s tag, or its digest when it has no tag.
    pub(crate) async fn put_manifest(
        &self,
        session: Session<'_>,
        reference: &OciReference,
        content: &Bytes,
    ) -> Result<(), ArtifactError> {
        let what = reference.to_string();
        let path = format!("manifests/{}", reference.locator());
        let response =
            self.call(session, &what, Method::PUT, &path, Some((OCI_MANIFEST, content.clone()))).await?;
        success(session, &what, response).map(|_| ())
    }

    async fn call(
        &self,
        session: Session<'_>,
        what: &str,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Response, ArtifactError> {
        let mut request = Request::new(what, method, address(session, what, path)?);
        // A registry may refuse a blob or a list of tags to clients that accept only manifests.
        if path.starts_with("manifests/") {
            request = request.accept(MANIFESTS);
        }
        if let Some((content_type, body)) = body {
            request = request.body(content_type, body);
        }
        self.send(session, what, request).await
    }

    /// Sends a request with the cached token and answers one challenge. A refused token is dropped: it may have been
    /// issued before a right was granted. Some registries answer 404 for content that the token may not read.
    async fn send(
        &self,
        session: Session<'_>,
        what: &str,
        request: Request,
    ) -> Result<Response, ArtifactError> {
        let access = match request.url.path() {
            _ if session.push => RequestKind::Write,
            path if path.ends_with("/tags/list") => RequestKind::List,
            _ => RequestKind::Read,
        };
        let key = TokenKey::new(session, access);
        let cached: Option<HeaderValue> = self.tokens.get(&key);
        let had_token = cached.is_some();
        let mut response = session.http.send(request.clone().authorization(cached)).await?;
        if had_token && response.status() == StatusCode::FORBIDDEN {
            self.tokens.remove(&key);
            response = session.http.send(request.clone()).await?;
        }
        // After a redirect, another host would choose the token service that gets the credentials.
        let is_own = http::authority(response.url()) == http::authority(&request.url);
        let is_hidden = |response: &Response| response.status() == StatusCode::NOT_FOUND && !session.push;
        if response.status() != StatusCode::UNAUTHORIZED || !is_own {
            if is_hidden(&response) {
                self.tokens.remove(&key);
            }
            return Ok(response);
        }
        let Some(authorization) = self.tokens.answer(session, &key, what, response.headers()).await? else {
            return Ok(response);
        };
        let response = session.http.send(request.authorization(Some(authorization))).await?;
        let is_refused = matches!(response.status(), StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED);
        if is_refused || is_hidden(&response) {
            self.tokens.remove(&key);
        }
        Ok(response)
    }
}

/// Returns an address in a repository.
fn address(session: Session<'_>, what: &str, path: &str) -> Result<Url, ArtifactError> {
    session
        .http
        .origin(session.repository.host())?
        .join(&format!("/v2/{}/{path}", session.repository.path()))
        .map_err(|_| ArtifactError::address(what, "not a repository of a registry"))
}

fn success(session: Session<'_>, what: &str, response: Response) -> Result<Response, ArtifactError> {
    if response.status().is_success() {
        return Ok(response);
    }
    let Session { repository, credentials, .. } = session;
    let auth = credentials.for_path(repository.host(), repository.path());
    Err(http::refusal(what, &response).of_request(auth.is_some()))
}

/// Returns the address of the next page in `Link`, which may be relative to the address of the answer.
fn next_page(what: &str, origin: &Url, response: &Response) -> Result<Option<Url>, ArtifactError> {
    let mut links = response.headers().get_all(LINK).iter().filter_map(|link| link.to_str().ok());
    let Some(target) = links.find_map(link::next_target) else { return Ok(None) };
    let next = response.url().join(target);
    let next = next.map_err(|_| ArtifactError::invalid(what, "an answer without a usable Link"))?;
    check_stays(what, "continues the list at", origin, &next)?;
    Ok(Some(next))
}

/// Refuses an address with another host or scheme than the registry's, since it would receive the credentials. That
/// includes an address that the target of a redirect names.
fn check_stays(what: &str, how: &'static str, origin: &Url, url: &Url) -> Result<(), ArtifactError> {
    if http::authority(url) != http::authority(origin) {
        return Err(http::redirect_refused(what, how, url, Refusal::Host));
    }
    if url.scheme() != origin.scheme() {
        return Err(http::redirect_refused(what, how, url, Refusal::PlainHttp));
    }
    Ok(())
}

/// Returns whether content can be a manifest, and not, for example, a page of a proxy.
fn is_manifest(content: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Shape {
        #[serde(rename = "schemaVersion")]
        schema_version: u64,
    }
    serde_json::from_slice::<Shape>(content).is_ok_and(|shape| shape.schema_version == 2)
}

/// Returns whether the content is an OCI index by its media type.
fn has_index(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|value| value.starts_with(INDEX))
}

fn content_digest(headers: &HeaderMap) -> Option<Digest> {
    headers.get(CONTENT_DIGEST)?.to_str().ok()?.parse().ok()
}
