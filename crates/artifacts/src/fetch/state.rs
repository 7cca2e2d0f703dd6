//! State that all reads share: proofs, the cache, and pulls in progress.

use std::sync::Arc;

use bytes::Bytes;

use super::document_request::{Document, DocumentRequest};
use super::validators::Validators;
use crate::bounds::permits::PullPermits;
use crate::bounds::single_flight::SingleFlight;
use crate::config::Limits;
use crate::error::ArtifactError;
use crate::selector::reference::Repository;
use crate::source::credentials::Credentials;
use crate::source::http::Http;
use crate::source::registry::{Registry, Session};
use crate::storage::cache::{Cache, Key, Origin};
use crate::storage::digest::Digest;
use crate::storage::proofs::{AccessRequest, Proofs};
use crate::storage::verification_cache::{VerificationCache, VerificationKey};

/// State of all reads.
pub(crate) struct Fetch {
    pub(super) http: Http,
    pub(super) registry: Registry,
    pub(super) cache: Cache,
    pub(super) proofs: Proofs,
    pub(super) limits: Limits,
    pub(super) permits: PullPermits,
    pub(super) manifests: SingleFlight<AccessRequest, DigestedBytes>,
    pub(super) blobs: SingleFlight<Key, Bytes>,
    pub(super) documents: SingleFlight<(AccessRequest, DocumentRequest), Document>,
    pub(super) pulls: SingleFlight<(Origin, DocumentRequest), Document>,
    pub(super) validators: Validators,
    pub(super) tags: SingleFlight<AccessRequest, Arc<[String]>>,
    pub(super) searches: SingleFlight<(VerificationKey, AccessRequest), ()>,
    pub(super) verifications: VerificationCache,
}

/// Whether a recent answer of the source may be used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerReuse {
    Allowed,
    Forbidden,
}

/// Content and its digest.
pub(super) type DigestedBytes = (Digest, Bytes);

impl Fetch {
    pub(crate) fn new(
        http: Http,
        registry: Registry,
        cache: Cache,
        proofs: Proofs,
        limits: Limits,
        permits: PullPermits,
    ) -> Self {
        Self {
            http,
            registry,
            cache,
            proofs,
            limits,
            permits,
            manifests: SingleFlight::new(),
            blobs: SingleFlight::new(),
            documents: SingleFlight::new(),
            pulls: SingleFlight::new(),
            validators: Validators::new(),
            tags: SingleFlight::new(),
            searches: SingleFlight::new(),
            verifications: VerificationCache::new(),
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

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Returns the searches for signatures in progress.
    pub(crate) fn searches(&self) -> &SingleFlight<(VerificationKey, AccessRequest), ()> {
        &self.searches
    }

    /// Returns the cache of verified content.
    pub(crate) fn verifications(&self) -> &VerificationCache {
        &self.verifications
    }

    /// Returns a session for reads.
    pub(super) fn session<'a>(
        &'a self,
        repository: &'a Repository,
        credentials: &'a Credentials,
    ) -> Session<'a> {
        Session { http: &self.http, repository, credentials, push: false }
    }

    /// Stores the answer of the source. Without an answer, returns the previous digest if it still counts.
    pub(super) fn judge(
        &self,
        access_request: &AccessRequest,
        answer: Result<Digest, &ArtifactError>,
    ) -> Option<Digest> {
        match answer {
            Ok(digest) => {
                self.proofs.grant(access_request.clone(), digest);
                None
            }
            Err(error) if error.is_outage() => {
                let digest = self.proofs.during_outage(access_request)?;
                tracing::warn!(artifact = %access_request.what, %error, "the source does not answer; the cached content is used");
                Some(digest)
            }
            Err(_) => {
                self.proofs.revoke(access_request);
                None
            }
        }
    }
}
