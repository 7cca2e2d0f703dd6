//! Proofs that credentials may read an artifact, by answers of its source.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::config::Deadlines;
use crate::source::credentials::Fingerprint;
use crate::storage::digest::Digest;

const MAX_PROOFS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(16_383);

/// A credential and its request: the reference of an artifact, or an address.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct AccessRequest {
    pub(crate) who: Fingerprint,
    pub(crate) what: String,
}

/// Stored answers. Limited; the least recently used are evicted first.
pub(crate) struct Proofs {
    deadlines: Deadlines,
    granted: Mutex<LruCache<AccessRequest, (Digest, Instant)>>,
}

impl Proofs {
    pub(crate) fn new(deadlines: Deadlines) -> Self {
        Self { deadlines, granted: Mutex::new(LruCache::new(MAX_PROOFS)) }
    }

    /// Returns the digest of a recent answer of the source to this request.
    pub(crate) fn fresh(&self, access_request: &AccessRequest) -> Option<Digest> {
        self.within(access_request, self.deadlines.proof)
    }

    /// Returns the digest that still counts while the source gives no answer.
    pub(crate) fn during_outage(&self, access_request: &AccessRequest) -> Option<Digest> {
        self.within(access_request, self.deadlines.proof_unreachable)
    }

    pub(crate) fn grant(&self, access_request: AccessRequest, digest: Digest) {
        self.granted.lock().put(access_request, (digest, Instant::now()));
    }

    pub(crate) fn revoke(&self, access_request: &AccessRequest) {
        self.granted.lock().pop(access_request);
    }

    fn within(&self, access_request: &AccessRequest, age: std::time::Duration) -> Option<Digest> {
        let mut granted = self.granted.lock();
        granted.get(access_request).filter(|(_, at)| at.elapsed() < age).map(|(digest, _)| *digest)
    }
}
