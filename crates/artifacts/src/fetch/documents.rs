//! Documents at HTTP addresses: indexes and archives of chart repositories, manifests.

use std::sync::Arc;

use bytes::BytesMut;
use futures::FutureExt as _;
use reqwest::{
    Method, StatusCode, Url,
    header::{HeaderValue, RANGE},
};

use super::document_request::{Document, DocumentRequest};
use super::format::ContentFormat;
use super::state::{AnswerReuse, DigestedBytes, Fetch};
use crate::error::ArtifactError;
use crate::source::credentials::{Auth, Credentials};
use crate::source::http::{Request, Response};
use crate::storage::cache::{IncomingFile, Key, Origin};
use crate::storage::digest::Digest;
use crate::storage::proofs::AccessRequest;
use crate::{source::http, source::registry};

/// Maximum size of one write to disk, in bytes.
const CHUNK_BYTES: usize = 1 << 20;

/// A request for an address with its credentials.
#[derive(Clone)]
struct AddressRequest {
    access_request: AccessRequest,
    what: String,
    origin: Origin,
    url: Url,
    authorization: Option<HeaderValue>,
}

impl Fetch {
    /// Returns the document at an address that these credentials may read.
    pub(crate) async fn document(
        self: &Arc<Self>,
        url: &Url,
        expected: Option<Digest>,
        (limit, form): (u64, ContentFormat),
        credentials: &Credentials,
    ) -> Result<DigestedBytes, ArtifactError> {
        let wanted = DocumentRequest { expected, limit, form, on_disk: false };
        self.whole(url, self.fetch_document(url, wanted, credentials, AnswerReuse::Allowed).await?).await
    }

    /// Returns the current document, whatever answer is remembered.
    pub(crate) async fn document_now(
        self: &Arc<Self>,
        url: &Url,
        (limit, form): (u64, ContentFormat),
        credentials: &Credentials,
    ) -> Result<DigestedBytes, ArtifactError> {
        let wanted = DocumentRequest { expected: None, limit, form, on_disk: false };
        self.whole(url, self.fetch_document(url, wanted, credentials, AnswerReuse::Forbidden).await?).await
    }

    /// Returns the cache key of the index at an address that these credentials may read. The index was written to the
    /// cache, and is never in memory as a whole here. `now`: the current index, whatever answer is remembered.
    pub(crate) async fn index(
        self: &Arc<Self>,
        url: &Url,
        now: bool,
        credentials: &Credentials,
    ) -> Result<Key, ArtifactError> {
        let wanted = DocumentRequest {
            expected: None,
            limit: self.limits.index,
            form: ContentFormat::Yaml,
            on_disk: true,
        };
        let reuse = if now { AnswerReuse::Forbidden } else { AnswerReuse::Allowed };
        let (digest, _) = self.fetch_document(url, wanted, credentials, reuse).await?;
        Ok((Origin::of(url.as_str()), digest))
    }

    async fn whole(&self, url: &Url, (digest, content): Document) -> Result<DigestedBytes, ArtifactError> {
        let content = match content {
            Some(content) => Some(content),
            None => self.cache.get((Origin::of(url.as_str()), digest)).await?,
        };
        let limit = self.cache.capacity();
        content
            .map(|content| (digest, content))
            .ok_or_else(|| ArtifactError::TooLarge { what: shown(url), limit })
    }

    async fn fetch_document(
        self: &Arc<Self>,
        url: &Url,
        wanted: DocumentRequest,
        credentials: &Credentials,
        reuse: AnswerReuse,
    ) -> Result<Document, ArtifactError> {
        let what = shown(url);
        self.http.check_address(&what, url)?;
        let access_request = access_request(url, credentials);
        let origin = Origin::of(url.as_str());
        if reuse == AnswerReuse::Allowed
            && let Some(digest) = self.proofs.fresh(&access_request)
            && wanted.expected.is_none_or(|expected| expected == digest)
            && let Some(found) = self.cached_document((origin, digest), wanted).await?
        {
            return Ok(found);
        }
        let authorization = authorization(url, credentials);
        let address = AddressRequest {
            access_request: access_request.clone(),
            what,
            origin,
            url: url.clone(),
            authorization,
        };
        let fetch = self.clone();
        let work = move || {
            async move {
                let answer = fetch.prove_document(&address, wanted).await;
                let digest = answer.as_ref().map(|(digest, _)| *digest);
                match fetch.judge(&address.access_request, digest) {
                    Some(digest) => match fetch.cached_document((origin, digest), wanted).await? {
                        Some(found) => Ok(found),
                        None => answer,
                    },
                    None => answer,
                }
            }
            .boxed()
        };
        self.documents.join((access_request, wanted), work).await
    }

    async fn cached_document(
        &self,
        key: Key,
        wanted: DocumentRequest,
    ) -> Result<Option<Document>, ArtifactError> {
        if wanted.on_disk {
            return Ok(self.cache.holds(key).then_some((key.1, None)));
        }
        Ok(self.cache.get(key).await?.map(|content| (key.1, Some(content))))
    }

    /// The first caller pulls the document, which proves its access. The others wait, and prove access to the same
    /// content; if the server offers no way to do that, each pulls it.
    async fn prove_document(
        self: &Arc<Self>,
        address: &AddressRequest,
        wanted: DocumentRequest,
    ) -> Result<Document, ArtifactError> {
        if let Some(expected) = wanted.expected
            && self.cache.holds((address.origin, expected))
        {
            self.may_read(address).await?;
            if let Some(found) = self.cached_document((address.origin, expected), wanted).await? {
                return Ok(found);
            }
        }
        let mut is_first = false;
        let pulled = self.pulls.join((address.origin, wanted), || {
            is_first = true;
            let (fetch, address) = (Arc::clone(self), address.clone());
            async move { fetch.pull(&address, wanted).await }.boxed()
        });
        match pulled.await {
            pulled if is_first => pulled,
            Err(error @ ArtifactError::Unreachable { .. }) => Err(error),
            Ok(found) if wanted.expected.is_some() => self.may_read(address).await.map(|()| found),
            // The content may be for other credentials, and a refusal may have been for those of the first caller.
            _ => self.pull(address, wanted).await,
        }
    }

    /// Checks that the source permits these credentials to read the document. Some sources refuse only HEAD: signed
    /// addresses, for instance, are for one method.
    async fn may_read(&self, address: &AddressRequest) -> Result<(), ArtifactError> {
        if self.http.send(address.request(Method::HEAD)).await?.status().is_success() {
            return Ok(());
        }
        let first_byte = (RANGE, HeaderValue::from_static("bytes=0-0"));
        let response = self.http.send(address.request(Method::GET).modifier(first_byte)).await?;
        if response.status().is_success() { Ok(()) } else { Err(address.refusal(&response)) }
    }

    /// Pulls the document with a permit.
    async fn pull(
        &self,
        address: &AddressRequest,
        wanted: DocumentRequest,
    ) -> Result<Document, ArtifactError> {
        let host = http::authority(&address.url);
        self.permits.run(&host, self.pull_changed(address, wanted)).await
    }

    /// Pulls the document, unless the server reports that it is unchanged.
    async fn pull_changed(
        &self,
        address: &AddressRequest,
        wanted: DocumentRequest,
    ) -> Result<Document, ArtifactError> {
        let AddressRequest { access_request, what, origin, .. } = address;
        let known = || self.validators.condition(*origin, access_request.who);
        let known = if wanted.expected.is_none() { known() } else { None };
        let known = known.filter(|known| self.cache.holds((*origin, known.digest)));
        let response = match known {
            Some(known) => {
                let request = address.request(Method::GET).modifier(known.header);
                let response = self.http.send(request).await?;
                if response.status() == StatusCode::NOT_MODIFIED {
                    if let Some(found) = self.cached_document((*origin, known.digest), wanted).await? {
                        return Ok(found);
                    }
                    self.http.send(address.request(Method::GET)).await?
                } else {
                    response
                }
            }
            None => self.http.send(address.request(Method::GET)).await?,
        };
        if !response.status().is_success() {
            return Err(address.refusal(&response));
        }
        let headers = response.headers().clone();
        let found = if wanted.on_disk {
            (self.download(address, response, wanted).await?, None)
        } else {
            let content = http::body(what, response, wanted.limit).await?;
            let found = Digest::of(&content);
            if !wanted.form.is_of(&content) {
                return Err(wanted.form.refusal(what, &content));
            }
            if let Some(expected) = wanted.expected.filter(|expected| *expected != found) {
                return Err(ArtifactError::DigestMismatch { what: what.clone(), expected, found });
            }
            self.cache.put((*origin, found), content.clone()).await?;
            (found, Some(content))
        };
        if wanted.expected.is_none() {
            self.validators.remember(*origin, access_request.who, &headers, found.0);
        }
        Ok(found)
    }

    /// Writes a body of at most `limit` bytes to disk as it arrives.
    async fn download(
        &self,
        AddressRequest { what, origin, .. }: &AddressRequest,
        mut response: Response,
        DocumentRequest { limit, form, .. }: DocumentRequest,
    ) -> Result<Digest, ArtifactError> {
        let mut incoming = self.cache.incoming().await?;
        let mut piece = BytesMut::new();
        let told = response.content_length();
        while let Some(chunk) = response.chunk(what).await? {
            let size = incoming.size() + (piece.len() + chunk.len()) as u64;
            if size > limit || told.is_some_and(|told| told > limit) {
                return Err(ArtifactError::TooLarge { what: what.clone(), limit });
            }
            piece.extend_from_slice(&chunk);
            if piece.len() >= CHUNK_BYTES {
                check_start(what, &incoming, &piece, form)?;
                incoming = incoming.with(piece.split().freeze()).await?;
            }
        }
        check_start(what, &incoming, &piece, form)?;
        self.cache.take(*origin, incoming.with(piece.freeze()).await?).await
    }
}

/// Refuses content of a wrong format after its first bytes.
fn check_start(
    what: &str,
    incoming: &IncomingFile,
    piece: &[u8],
    form: ContentFormat,
) -> Result<(), ArtifactError> {
    if incoming.size() > 0 || form.is_of(piece) { Ok(()) } else { Err(form.refusal(what, piece)) }
}

/// Returns the cache key of a request: address and credentials.
pub(super) fn access_request(url: &Url, credentials: &Credentials) -> AccessRequest {
    let who = credentials.fingerprint(&http::authority(url), url.path().trim_start_matches('/'));
    // The query may contain a credential, so the key contains only its hash.
    AccessRequest { who, what: format!("{} {}", shown(url), Digest::of(url.as_str().as_bytes())) }
}

impl AddressRequest {
    fn request(&self, method: Method) -> Request {
        Request::new(&self.what, method, self.url.clone()).authorization(self.authorization.clone())
    }

    /// Returns the error for an answer that is no success.
    fn refusal(&self, response: &Response) -> ArtifactError {
        http::refusal(&self.what, response).of_request(self.authorization.is_some())
    }
}

/// Returns an address without its query, which may contain a credential.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Both fail only for addresses without user and password.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

/// Returns the `Authorization` header for an address with these credentials.
fn authorization(url: &Url, credentials: &Credentials) -> Option<HeaderValue> {
    match credentials.for_path(&http::authority(url), url.path().trim_start_matches('/'))? {
        Auth::Basic { user, password } => registry::basic(user, password),
        Auth::Bearer(token) => registry::bearer(token),
        Auth::Refresh(_) => None,
    }
}
