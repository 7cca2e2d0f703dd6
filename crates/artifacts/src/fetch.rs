//! Reads through the cache: first the proof, then the content. Concurrent reads share a pull.

mod document_request;
mod documents;
mod format;
mod state;
mod validators;

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use reqwest::Url;

use self::documents::access_request;
use self::state::{AnswerReuse, DigestedBytes};
pub(crate) use self::{
    documents::shown,
    format::{ContentFormat, check_unpacked},
    state::Fetch,
};
use crate::error::ArtifactError;
use crate::selector::reference::{OciReference, Repository};
use crate::source::credentials::Credentials;
use crate::storage::cache::{Key, Origin};
use crate::storage::digest::Digest;
use crate::storage::proofs::AccessRequest;

impl Fetch {
    /// Returns an OCI manifest that these credentials may read. This also proves access to the blobs of its
    /// repository: registries grant access by repository.
    pub(crate) async fn manifest(
        self: &Arc<Self>,
        reference: &OciReference,
        credentials: &Credentials,
    ) -> Result<DigestedBytes, ArtifactError> {
        self.find_manifest(reference, credentials, AnswerReuse::Allowed).await
    }

    /// Returns the current manifest, whatever answer is remembered.
    pub(crate) async fn manifest_now(
        self: &Arc<Self>,
        reference: &OciReference,
        credentials: &Credentials,
    ) -> Result<DigestedBytes, ArtifactError> {
        self.find_manifest(reference, credentials, AnswerReuse::Forbidden).await
    }

    async fn find_manifest(
        self: &Arc<Self>,
        reference: &OciReference,
        credentials: &Credentials,
        reuse: AnswerReuse,
    ) -> Result<DigestedBytes, ArtifactError> {
        let repository = reference.repository();
        let who = credentials.fingerprint(repository.host(), repository.path());
        let access_request = AccessRequest { who, what: reference.to_string() };
        let origin = Origin::of(&repository.to_string());
        if reuse == AnswerReuse::Allowed
            && let Some(digest) = self.proofs.fresh(&access_request)
            && let Some(content) = self.cache.get((origin, digest)).await?
        {
            return Ok((digest, content));
        }
        let (fetch, reference, credentials) = (self.clone(), reference.clone(), credentials.clone());
        let key = access_request.clone();
        let work = move || {
            async move { fetch.request_manifest(access_request, origin, &reference, &credentials).await }
                .boxed()
        };
        self.manifests.join(key, work).await
    }

    async fn request_manifest(
        &self,
        access_request: AccessRequest,
        origin: Origin,
        reference: &OciReference,
        credentials: &Credentials,
    ) -> Result<DigestedBytes, ArtifactError> {
        let answer = self.prove_manifest(&access_request, origin, reference, credentials).await;
        let stands_in = self.judge(&access_request, answer.as_ref().map(|(digest, _)| *digest));
        if let Some(digest) = stands_in
            && let Some(content) = self.cache.get((origin, digest)).await?
        {
            return Ok((digest, content));
        }
        answer
    }

    /// Uses HEAD if the content is likely the cached one, GET otherwise. Some registries, and proxies before them,
    /// refuse HEAD but answer GET, so only GET decides whether these credentials may read it.
    async fn prove_manifest(
        &self,
        access_request: &AccessRequest,
        origin: Origin,
        reference: &OciReference,
        credentials: &Credentials,
    ) -> Result<DigestedBytes, ArtifactError> {
        let session = self.session(reference.repository(), credentials);
        let expected = reference.digest().or_else(|| self.proofs.during_outage(access_request));
        if let Some(expected) = expected
            && self.cache.holds((origin, expected))
            && self.registry.confirms(session, reference, expected).await?
            && let Some(content) = self.cache.get((origin, expected)).await?
        {
            return Ok((expected, content));
        }
        let (digest, content) = self.registry.manifest(session, reference).await?;
        self.cache.put((origin, digest), content.clone()).await?;
        Ok((digest, content))
    }

    /// Drops the cached content of an address whose content is invalid, so that the next read pulls it again.
    pub(crate) fn reject_document(&self, url: &Url, digest: Digest, credentials: &Credentials) {
        let origin = Origin::of(url.as_str());
        self.proofs.revoke(&access_request(url, credentials));
        self.validators.forget(origin);
        self.cache.forget((origin, digest));
    }

    /// Drops the cached content of a reference whose content is invalid, so that the next read pulls it again.
    pub(crate) fn reject_manifest(&self, reference: &OciReference, credentials: &Credentials) {
        let repository = reference.repository();
        let who = credentials.fingerprint(repository.host(), repository.path());
        self.proofs.revoke(&AccessRequest { who, what: reference.to_string() });
    }

    /// Returns the current tags of a repository.
    pub(crate) async fn tags(
        self: &Arc<Self>,
        repository: &Repository,
        credentials: &Credentials,
    ) -> Result<Arc<[String]>, ArtifactError> {
        let who = credentials.fingerprint(repository.host(), repository.path());
        let access_request = AccessRequest { who, what: repository.to_string() };
        let (fetch, repository, credentials) = (self.clone(), repository.clone(), credentials.clone());
        let work = move || {
            async move {
                let pull = fetch.registry.tags(fetch.session(&repository, &credentials));
                let tags = fetch.permits.run(repository.host(), pull).await?;
                Ok(tags.into())
            }
            .boxed()
        };
        self.tags.join(access_request, work).await
    }

    /// Returns a blob of a repository of which these credentials have just read a manifest.
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
            // The refusal may have been for the credentials of the first caller.
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
            let pull = self.pull_into_cache(key, &repository, limit, &credentials);
            self.permits.run(repository.host(), pull).await
        }
        .boxed()
    }

    async fn pull_into_cache(
        &self,
        key: Key,
        repository: &Repository,
        limit: u64,
        credentials: &Credentials,
    ) -> Result<Bytes, ArtifactError> {
        let content = self.registry.blob(self.session(repository, credentials), key.1, limit).await?;
        self.cache.put(key, content.clone()).await?;
        Ok(content)
    }
}

fn bounded(what: &OciReference, content: Bytes, limit: u64) -> Result<Bytes, ArtifactError> {
    if content.len() as u64 > limit {
        return Err(ArtifactError::TooLarge { what: what.to_string(), limit });
    }
    Ok(content)
}
