//! Between pulling content and reading it.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;

use super::{Search, Trust};
use crate::{
    ArtifactError, Credentials, Digest, OciReference,
    fetch::Fetch,
};

/// Lets content pass that carries a signature that counts; all of it where nobody asks for one.
#[derive(Clone, Copy)]
pub(crate) struct Gate<'a> {
    pub(crate) fetch: &'a Arc<Fetch>,
    pub(crate) trust: Option<&'a Arc<Trust>>,
    pub(crate) credentials: &'a Credentials,
}

impl Gate<'_> {
    /// An OCI manifest, before anything that it names is read.
    pub(crate) async fn manifest(
        &self,
        reference: &OciReference,
        digest: Digest,
        manifest: &Bytes,
    ) -> Result<(), ArtifactError> {
        let Some(trust) = self.trust else { return Ok(()) };
        if !trust.counts_signatures() {
            let problem = "neither keys nor identities are trusted; a keyring is for charts alone";
            return Err(ArtifactError::verification(problem));
        }
        let passed = (digest, trust.digest());
        let verified = self.fetch.verified();
        if verified.holds(passed) {
            return Ok(());
        }
        let repository = reference.repository();
        let who = self.credentials.fingerprint(repository.host(), repository.path());
        let search = Search {
            fetch: Arc::clone(self.fetch),
            trust: Arc::clone(trust),
            reference: reference.clone(),
            digest,
            manifest: manifest.clone(),
            credentials: self.credentials.clone(),
        };
        let searched = self.fetch.searches().join((passed, who), move || search.run().boxed());
        searched.await?;
        verified.remember(passed);
        Ok(())
    }

    /// Content of a kind that carries no signature.
    pub(crate) fn unsignable(&self, problem: &str) -> Result<(), ArtifactError> {
        self.trust.map_or(Ok(()), |_| Err(ArtifactError::verification(problem)))
    }
}
