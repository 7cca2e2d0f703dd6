//! Cache of chart metadata by the digest of the archive, so that each archive is unpacked once.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use super::chart_archive::ChartMetadata;
use crate::storage::digest::Digest;

/// Maximum number of remembered archives.
const MAX_ENTRIES: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// Maximum size of remembered metadata, in bytes: any name or version is shorter.
const MAX_METADATA_BYTES: usize = 4096;

/// Metadata of usable archives, by digest. Limited; the least recently used are evicted first.
pub(crate) struct MetadataCache(Mutex<LruCache<Digest, ChartMetadata>>);

impl MetadataCache {
    /// Creates an empty cache.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(LruCache::new(MAX_ENTRIES)))
    }

    pub(super) fn get(&self, archive: Digest) -> Option<ChartMetadata> {
        self.0.lock().get(&archive).cloned()
    }

    pub(super) fn remember(&self, archive: Digest, metadata: &ChartMetadata) {
        if metadata.len() <= MAX_METADATA_BYTES {
            self.0.lock().put(archive, metadata.clone());
        }
    }
}

impl ChartMetadata {
    /// Returns the total length of its texts in bytes.
    fn len(&self) -> usize {
        let Self { api_version, name, version, app_version, kind, kube_version } = self;
        let others = [api_version, app_version, kind, kube_version];
        others.into_iter().flatten().chain([name, version]).map(String::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_to_be_a_name_is_not_remembered() {
        let known = MetadataCache::new();
        for (name, is_kept) in [("demo".to_owned(), true), ("x".repeat(MAX_METADATA_BYTES + 1), false)] {
            let archive = Digest::of(name.as_bytes());
            let metadata: ChartMetadata =
                serde_json::from_value(serde_json::json!({"name": name, "version": "1.0.0"})).unwrap();
            known.remember(archive, &metadata);
            assert_eq!(known.get(archive).is_some(), is_kept);
        }
    }
}
