//! Verifies content between its pull and its first read.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use url::Url;

use super::flaw::Flaw;
use super::policy::Trust;
use super::provenance::Keyring;
use super::search::Search;
use crate::error::ArtifactError;
use crate::fetch::{ContentFormat, Fetch, shown};
use crate::selector::reference::OciReference;
use crate::source::credentials::Credentials;
use crate::storage::digest::Digest;
use crate::storage::proofs::AccessRequest;

/// Admits content with a trusted signature; all content if no signature is required.
#[derive(Clone, Copy)]
pub(crate) struct Gate<'a> {
    pub(crate) fetch: &'a Arc<Fetch>,
    pub(crate) trust: Option<&'a Arc<Trust>>,
    pub(crate) credentials: &'a Credentials,
}

impl Gate<'_> {
    /// Verifies an OCI manifest, before any content that it names is read.
    pub(crate) async fn verify_manifest(
        &self,
        reference: &OciReference,
        digest: Digest,
    ) -> Result<(), ArtifactError> {
        let Some(trust) = self.trust else { return Ok(()) };
        if !trust.counts_signatures() {
            let problem = "neither keys nor identities are trusted; a keyring applies only to charts";
            return Err(ArtifactError::verification(problem));
        }
        let passed = (digest, trust.digest());
        let verified = self.fetch.verifications();
        if verified.holds(passed) {
            return Ok(());
        }
        let repository = reference.repository();
        let who = self.credentials.fingerprint(repository.host(), repository.path());
        let access_request = AccessRequest { who, what: repository.to_string() };
        let search = Search {
            fetch: Arc::clone(self.fetch),
            trust: Arc::clone(trust),
            reference: reference.clone(),
            digest,
            credentials: self.credentials.clone(),
        };
        let searched = self.fetch.searches().join((passed, access_request), move || search.run().boxed());
        searched.await?;
        verified.remember(passed);
        Ok(())
    }

    /// Verifies the manifest of a chart, with the digests of the archive and the provenance in it, before either is
    /// read. A provenance covers the archive alone, so it admits no other content of the manifest.
    pub(crate) async fn chart(
        &self,
        reference: &OciReference,
        digest: Digest,
        archive: Digest,
        provenance: Option<Digest>,
    ) -> Result<(), ArtifactError> {
        let Some((trust, keyring)) = self.keyring() else {
            return self.verify_manifest(reference, digest).await;
        };
        if self.fetch.verifications().holds((archive, trust.digest())) {
            return Ok(());
        }
        let what = reference.clone().pinned(digest).to_string();
        let unsigned = || ArtifactError::Unsigned { what: what.clone(), looked: "it has no provenance" };
        let signed = if trust.counts_signatures() {
            self.verify_manifest(reference, digest).await
        } else {
            Err(unsigned())
        };
        match (signed, provenance) {
            (Err(ArtifactError::Unsigned { .. } | ArtifactError::Untrusted { .. }), Some(provenance)) => {
                let limit = self.fetch.limits().signature;
                let content =
                    self.fetch.blob(reference.repository(), provenance, limit, self.credentials).await;
                self.provenance(trust, keyring, &what, archive, content)
            }
            (signed, _) => signed,
        }
    }

    /// Checks that archives from chart repositories can be verified at all.
    pub(crate) fn archives(&self) -> Result<(), ArtifactError> {
        if self.keyring().is_some() {
            return Ok(());
        }
        self.unsignable("charts of HTTP repositories have only provenance as signature: name a keyring")
    }

    /// Verifies an archive from a chart repository by the provenance beside it, before it is opened.
    pub(crate) async fn archive(&self, url: &Url, archive: Digest) -> Result<(), ArtifactError> {
        let Some((trust, keyring)) = self.keyring() else { return self.archives() };
        if self.fetch.verifications().holds((archive, trust.digest())) {
            return Ok(());
        }
        let mut place = url.clone();
        place.set_path(&format!("{}.prov", url.path()));
        let what = shown(url);
        let content = self
            .fetch
            .document(&place, None, (self.fetch.limits().signature, ContentFormat::Any), self.credentials)
            .await;
        match content {
            Err(ArtifactError::NotFound { .. }) => {
                Err(ArtifactError::Unsigned { what, looked: "it has no provenance file" })
            }
            Err(error) => self.provenance(trust, keyring, &what, archive, Err(error)),
            Ok((digest, content)) => {
                let judged = self.provenance(trust, keyring, &what, archive, Ok(content));
                // The content may be a page of a proxy, or be corrected at its address.
                if judged.is_err() {
                    self.fetch.reject_document(&place, digest, self.credentials);
                }
                judged
            }
        }
    }

    fn provenance(
        &self,
        trust: &Trust,
        keyring: &Keyring,
        what: &str,
        archive: Digest,
        content: Result<Bytes, ArtifactError>,
    ) -> Result<(), ArtifactError> {
        let now = jiff::Timestamp::now().as_second();
        let judged = match content {
            Ok(content) => keyring.accepts(&content, archive, now),
            Err(error) => Err(Flaw::of(error)?),
        };
        judged.map_err(|flaw| ArtifactError::Untrusted { what: what.to_owned(), flaws: flaw.to_string() })?;
        self.fetch.verifications().remember((archive, trust.digest()));
        Ok(())
    }

    fn keyring(&self) -> Option<(&Trust, &Keyring)> {
        let trust = self.trust?;
        Some((trust, trust.keyring.as_ref()?))
    }

    /// Refuses content of a kind that carries no signature, if signatures are required.
    pub(crate) fn unsignable(&self, problem: &str) -> Result<(), ArtifactError> {
        self.trust.map_or(Ok(()), |_| Err(ArtifactError::verification(problem)))
    }
}
