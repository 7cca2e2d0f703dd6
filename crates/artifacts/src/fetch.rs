//! Reading through the cache: proof first, then content, each piece pulled once for all.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use reqwest::{Method, Url, header::HeaderValue};
use tokio::sync::Semaphore;

use crate::{
    ArtifactError, Credentials, Digest, Limits, OciReference, Repository,
    cache::{Cache, Key, Origin},
    credentials::Auth,
    flight::Flights,
    http::{self, Http, Request},
    proofs::{Ask, Proofs},
    registry::{self, Registry, Session},
    trust::{Passed, Verified},
};

/// Everything that a read needs.
pub(crate) struct Fetch {
    http: Http,
    registry: Registry,
    cache: Cache,
    proofs: Proofs,
    limits: Limits,
    permits: Semaphore,
    manifests: Flights<Ask, Found>,
    blobs: Flights<Key, Bytes>,
    documents: Flights<(Ask, Option<Digest>), Found>,
    tags: Flights<Ask, Arc<[String]>>,
    searches: Flights<(Passed, Ask), ()>,
    verified: Verified,
}

/// Whether a source's answer of a short time ago will do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Remembered {
    Counts,
    IsOld,
}

/// Content and its digest.
type Found = (Digest, Bytes);

impl Fetch {
    pub(crate) fn new(
        http: Http,
        registry: Registry,
        cache: Cache,
        proofs: Proofs,
        limits: Limits,
        permits: Semaphore,
    ) -> Self {
        let (manifests, blobs, documents) = (Flights::new(), Flights::new(), Flights::new());
        let (tags, searches, verified) = (Flights::new(), Flights::new(), Verified::new());
        Self {
            http,
            registry,
            cache,
            proofs,
            limits,
            permits,
            manifests,
            blobs,
            documents,
            tags,
            searches,
            verified,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Searches for signatures under way.
    pub(crate) fn searches(&self) -> &Flights<(Passed, Ask), ()> {
        &self.searches
    }

    /// What was found to be signed.
    pub(crate) fn verified(&self) -> &Verified {
        &self.verified
    }

    /// A reading session.
    fn session<'a>(&'a self, repository: &'a Repository, credentials: &'a Credentials) -> Session<'a> {
        Session { http: &self.http, repository, credentials, push: false }
    }

    /// An OCI manifest that these credentials may read. This is the proof for the blobs of its repository too:
    /// registries grant reading by repository.
    pub(crate) async fn manifest(
        self: &Arc<Self>,
        reference: &OciReference,
        credentials: &Credentials,
    ) -> Result<Found, ArtifactError> {
        self.look_up(reference, credentials, Remembered::Counts).await
    }

    /// The same as it is now, whatever is remembered of it.
    pub(crate) async fn manifest_now(
        self: &Arc<Self>,
        reference: &OciReference,
        credentials: &Credentials,
    ) -> Result<Found, ArtifactError> {
        self.look_up(reference, credentials, Remembered::IsOld).await
    }

    async fn look_up(
        self: &Arc<Self>,
        reference: &OciReference,
        credentials: &Credentials,
        remembered: Remembered,
    ) -> Result<Found, ArtifactError> {
        let repository = reference.repository();
        let who = credentials.fingerprint(repository.host(), repository.path());
        let ask = Ask { who, what: reference.to_string() };
        let origin = Origin::of(&repository.to_string());
        if remembered == Remembered::Counts
            && let Some(digest) = self.proofs.fresh(&ask)
            && let Some(content) = self.cache.get((origin, digest)).await?
        {
            return Ok((digest, content));
        }
        let (fetch, reference, credentials) = (self.clone(), reference.clone(), credentials.clone());
        let key = ask.clone();
        let work =
            move || async move { fetch.ask_manifest(ask, origin, &reference, &credentials).await }.boxed();
        self.manifests.join(key, work).await
    }

    async fn ask_manifest(
        &self,
        ask: Ask,
        origin: Origin,
        reference: &OciReference,
        credentials: &Credentials,
    ) -> Result<Found, ArtifactError> {
        let answer = self.prove_manifest(&ask, origin, reference, credentials).await;
        self.judge(ask, origin, answer).await
    }

    /// HEAD when the content is likely the cached one, GET otherwise.
    async fn prove_manifest(
        &self,
        ask: &Ask,
        origin: Origin,
        reference: &OciReference,
        credentials: &Credentials,
    ) -> Result<Found, ArtifactError> {
        let session = self.session(reference.repository(), credentials);
        let expected = reference.digest().or_else(|| self.proofs.during_outage(ask));
        if let Some(expected) = expected
            && self.cache.holds((origin, expected))
            && let told = self.registry.head_manifest(session, reference).await?
            && (told == Some(expected) || (told.is_none() && reference.digest().is_some()))
            && let Some(content) = self.cache.get((origin, expected)).await?
        {
            return Ok((expected, content));
        }
        let (digest, content) = self.registry.manifest(session, reference).await?;
        self.cache.put((origin, digest), content.clone()).await?;
        Ok((digest, content))
    }

    /// Remembers what the source said; without an answer, what it said before still counts for a while.
    async fn judge(
        &self,
        ask: Ask,
        origin: Origin,
        answer: Result<Found, ArtifactError>,
    ) -> Result<Found, ArtifactError> {
        match answer {
            Ok(found) => {
                self.proofs.grant(ask, found.0);
                Ok(found)
            }
            Err(error) if error.is_outage() => {
                let Some(digest) = self.proofs.during_outage(&ask) else {
                    return Err(error);
                };
                let Some(content) = self.cache.get((origin, digest)).await? else {
                    return Err(error);
                };
                tracing::warn!(artifact = %ask.what, %error, "source gives no answer; cached content is used");
                Ok((digest, content))
            }
            Err(error) => {
                self.proofs.revoke(&ask);
                Err(error)
            }
        }
    }

    /// The tags of a repository as they are now.
    pub(crate) async fn tags(
        self: &Arc<Self>,
        repository: &Repository,
        credentials: &Credentials,
    ) -> Result<Arc<[String]>, ArtifactError> {
        let who = credentials.fingerprint(repository.host(), repository.path());
        let ask = Ask { who, what: repository.to_string() };
        let (fetch, repository, credentials) = (self.clone(), repository.clone(), credentials.clone());
        let work = move || {
            async move {
                let _permit = fetch.permits.acquire().await;
                let tags = fetch.registry.tags(fetch.session(&repository, &credentials)).await?;
                Ok(tags.into())
            }
            .boxed()
        };
        self.tags.join(ask, work).await
    }

    /// A blob of a repository of which these credentials have just read a manifest.
    pub(crate) async fn blob(
        self: &Arc<Self>,
        repository: &Repository,
        digest: Digest,
        limit: u64,
        credentials: &Credentials,
    ) -> Result<Bytes, ArtifactError> {
        let key = (Origin::of(&repository.to_string()), digest);
        if let Some(content) = self.cache.get(key).await? {
            return bounded(&repository.digest(digest), content, limit);
        }
        let pulled =
            self.blobs.join(key, || self.clone().pull_blob(key, repository, limit, credentials)).await;
        match pulled {
            // The refusal may have been meant for the credentials of whoever came first.
            Err(ArtifactError::Unauthorized { .. } | ArtifactError::TooLarge { .. }) => {
                let session = self.session(repository, credentials);
                self.registry.blob(session, digest, limit).await
            }
            pulled => bounded(&repository.digest(digest), pulled?, limit),
        }
    }

    fn pull_blob(
        self: Arc<Self>,
        key: Key,
        repository: &Repository,
        limit: u64,
        credentials: &Credentials,
    ) -> futures::future::BoxFuture<'static, Result<Bytes, ArtifactError>> {
        let (repository, credentials) = (repository.clone(), credentials.clone());
        async move {
            let _permit = self.permits.acquire().await;
            let content = self.registry.blob(self.session(&repository, &credentials), key.1, limit).await?;
            self.cache.put(key, content.clone()).await?;
            Ok(content)
        }
        .boxed()
    }

    /// What lies at an address that these credentials may read.
    pub(crate) async fn document(
        self: &Arc<Self>,
        url: &Url,
        expected: Option<Digest>,
        limit: u64,
        credentials: &Credentials,
    ) -> Result<Found, ArtifactError> {
        self.look(url, expected, limit, credentials, Remembered::Counts).await
    }

    /// The same as it is now, whatever is remembered of it.
    pub(crate) async fn document_now(
        self: &Arc<Self>,
        url: &Url,
        limit: u64,
        credentials: &Credentials,
    ) -> Result<Found, ArtifactError> {
        self.look(url, None, limit, credentials, Remembered::IsOld).await
    }

    async fn look(
        self: &Arc<Self>,
        url: &Url,
        expected: Option<Digest>,
        limit: u64,
        credentials: &Credentials,
        remembered: Remembered,
    ) -> Result<Found, ArtifactError> {
        let what = shown(url);
        self.http.check_scheme(&what, url)?;
        let who = credentials.fingerprint(&http::authority(url), url.path().trim_start_matches('/'));
        // The query may be part of a credential, so only its hash takes part in the key.
        let ask = Ask { who, what: format!("{what} {}", Digest::of(url.as_str().as_bytes())) };
        let origin = Origin::of(url.as_str());
        if remembered == Remembered::Counts
            && let Some(digest) = self.proofs.fresh(&ask)
            && expected.is_none_or(|expected| expected == digest)
            && let Some(content) = self.cache.get((origin, digest)).await?
        {
            return Ok((digest, content));
        }
        let (fetch, url, credentials) = (self.clone(), url.clone(), credentials.clone());
        let key = (ask.clone(), expected);
        let work = move || {
            async move {
                let answer = fetch.prove_document(origin, &url, expected, limit, &credentials).await;
                fetch.judge(ask, origin, answer).await
            }
            .boxed()
        };
        self.documents.join(key, work).await
    }

    async fn prove_document(
        &self,
        origin: Origin,
        url: &Url,
        expected: Option<Digest>,
        limit: u64,
        credentials: &Credentials,
    ) -> Result<Found, ArtifactError> {
        let what = shown(url);
        let authorization = authorization(url, credentials);
        let request = |method| Request::new(&what, method, url.clone()).authorization(authorization.clone());
        if let Some(expected) = expected
            && self.cache.holds((origin, expected))
        {
            let answer = self.http.send(request(Method::HEAD)).await?;
            if answer.status().is_success()
                && let Some(content) = self.cache.get((origin, expected)).await?
            {
                return Ok((expected, content));
            }
        }
        let _permit = self.permits.acquire().await;
        let response = self.http.send(request(Method::GET)).await?;
        if !response.status().is_success() {
            return Err(http::refusal(&what, &response));
        }
        let content = http::body(&what, response, limit).await?;
        let found = Digest::of(&content);
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            return Err(ArtifactError::DigestMismatch { what, expected, found });
        }
        self.cache.put((origin, found), content.clone()).await?;
        Ok((found, content))
    }
}

/// An address without its query, which may hold a credential.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Both fail only for addresses that cannot have them.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

/// What is sent to an address with these credentials.
fn authorization(url: &Url, credentials: &Credentials) -> Option<HeaderValue> {
    match credentials.for_path(&http::authority(url), url.path().trim_start_matches('/'))? {
        Auth::Basic { user, password } => registry::basic(user, password),
        Auth::Bearer(token) => registry::bearer(token),
        Auth::Refresh(_) => None,
    }
}

fn bounded(what: &OciReference, content: Bytes, limit: u64) -> Result<Bytes, ArtifactError> {
    if content.len() as u64 > limit {
        return Err(ArtifactError::TooLarge { what: what.to_string(), limit });
    }
    Ok(content)
}
