//! Content on disk by origin and digest, verified on every read.

mod incoming;

pub(crate) use incoming::IncomingFile;
use incoming::{blocking, settle};

use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;

use crate::error::ArtifactError;
use crate::storage::digest::Digest;

/// Maximum number of cached items, however small.
const MAX_CACHED_ITEMS: usize = 100_000;
/// Age after which a temporary file was left by a killed process.
const ABANDONED_FILE_AGE: Duration = Duration::from_hours(1);

/// Source of content: a repository, or an address. Content is shared within an origin, never across origins: a
/// registry cannot obtain content by claiming to have a known digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Origin([u8; 16]);

impl Origin {
    pub(crate) fn of(name: &str) -> Self {
        let digest = Digest::of(name.as_bytes()).hex();
        let mut origin = [0; 16];
        origin.copy_from_slice(&digest.as_bytes()[..16]);
        Self(origin)
    }

    fn parse(text: &str) -> Option<Self> {
        text.as_bytes().try_into().ok().map(Self)
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Key of an item.
pub(crate) type Key = (Origin, Digest);

/// The cache. Cheap to clone. Limited by bytes and items; the least recently used are evicted first. Files are
/// renamed into place when they are complete. Two processes may share a directory, but each counts only its own
/// bytes.
#[derive(Clone)]
pub(crate) struct Cache {
    directory: Arc<Path>,
    capacity: u64,
    index: Arc<Mutex<CacheIndex>>,
}

struct CacheIndex {
    sizes: LruCache<Key, u64>,
    total: u64,
}

impl Cache {
    /// Opens or creates a cache and loads its index, oldest items first.
    pub(crate) fn open(directory: PathBuf, capacity: u64) -> Result<Self, ArtifactError> {
        let failed = ArtifactError::cache("open");
        fs::create_dir_all(directory.join("blobs")).map_err(&failed)?;
        fs::create_dir_all(directory.join("tmp")).map_err(&failed)?;
        remove_abandoned(&directory.join("tmp")).map_err(&failed)?;
        let mut index = CacheIndex { sizes: LruCache::unbounded(), total: 0 };
        for (key, size) in stock(&directory.join("blobs")).map_err(&failed)? {
            index.sizes.put(key, size);
            index.total += size;
        }
        let cache = Self { directory: directory.into(), capacity, index: Arc::new(Mutex::new(index)) };
        cache.evict();
        Ok(cache)
    }

    /// Reports whether an item exists, without reading it. Counts as a use.
    pub(crate) fn holds(&self, key: Key) -> bool {
        self.index.lock().sizes.get(&key).is_some()
    }

    /// Returns the maximum size in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns content that still has its digest. Content that changed on disk is removed and counts as missing.
    pub(crate) async fn get(&self, key: Key) -> Result<Option<Bytes>, ArtifactError> {
        if self.index.lock().sizes.get(&key).is_none() {
            return Ok(None);
        }
        let path = self.path(key);
        let read = blocking(move || {
            let content = fs::read(path)?;
            let digest = Digest::of(&content);
            Ok((Bytes::from(content), digest))
        });
        match read.await {
            Ok((content, digest)) if digest == key.1 => Ok(Some(content)),
            Ok(_) => {
                tracing::warn!(digest = %key.1, "cached content changed on disk; it is pulled again");
                self.forget(key);
                Ok(None)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.forget(key);
                Ok(None)
            }
            Err(error) => Err(ArtifactError::cache("read")(error)),
        }
    }

    /// Stores content whose digest the caller has verified.
    pub(crate) async fn put(&self, key: Key, content: Bytes) -> Result<(), ArtifactError> {
        let size = content.len() as u64;
        let (path, tmp) = (self.path(key), self.directory.join("tmp"));
        let written = blocking(move || {
            let mut file = tempfile::NamedTempFile::new_in(tmp)?;
            file.write_all(&content)?;
            settle(file, &path)
        });
        written.await.map_err(ArtifactError::cache("write"))?;
        self.account(key, size);
        Ok(())
    }

    /// Creates an empty file for incoming content.
    pub(crate) async fn incoming(&self) -> Result<IncomingFile, ArtifactError> {
        IncomingFile::create(self.directory.join("tmp")).await
    }

    /// Stores the complete content by its digest.
    pub(crate) async fn take(&self, origin: Origin, incoming: IncomingFile) -> Result<Digest, ArtifactError> {
        let (file, digest, size) = incoming.finish();
        let path = self.path((origin, digest));
        blocking(move || settle(file, &path)).await.map_err(ArtifactError::cache("write"))?;
        self.account((origin, digest), size);
        Ok(digest)
    }

    /// Adds a new file to the index, and evicts items beyond the limits.
    fn account(&self, key: Key, size: u64) {
        {
            let mut index = self.index.lock();
            let before = index.sizes.put(key, size).unwrap_or(0);
            index.total = index.total + size - before;
        }
        self.evict();
    }

    /// Returns the current size in bytes.
    #[cfg(test)]
    fn total(&self) -> u64 {
        self.index.lock().total
    }

    /// Removes content.
    pub(crate) fn forget(&self, key: Key) {
        let mut index = self.index.lock();
        if let Some(size) = index.sizes.pop(&key) {
            index.total -= size;
        }
        self.remove(key);
    }

    /// Removes a file, and the directory of its origin if it is empty then: each address has an origin of its own.
    fn remove(&self, key: Key) {
        let path = self.path(key);
        remove(&path);
        path.parent().map(remove_empty);
    }

    fn evict(&self) {
        let mut index = self.index.lock();
        while index.total > self.capacity || index.sizes.len() > MAX_CACHED_ITEMS {
            let Some((key, size)) = index.sizes.pop_lru() else {
                break;
            };
            index.total -= size;
            self.remove(key);
        }
    }

    fn path(&self, (origin, digest): Key) -> PathBuf {
        self.directory.join("blobs").join(origin.as_str()).join(digest.hex())
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, "cannot remove a file of the artifact cache");
    }
}

/// Removes a directory if it is empty.
fn remove_empty(directory: &Path) {
    if let Err(error) = fs::remove_dir(directory)
        && !matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound)
    {
        tracing::warn!(%error, "cannot remove a directory of the artifact cache");
    }
}

fn remove_abandoned(tmp: &Path) -> io::Result<()> {
    for entry in fs::read_dir(tmp)? {
        let entry = entry?;
        let age = entry.metadata()?.modified()?.elapsed().unwrap_or_default();
        if age > ABANDONED_FILE_AGE {
            remove(&entry.path());
        }
    }
    Ok(())
}

fn stock(blobs: &Path) -> io::Result<Vec<(Key, u64)>> {
    let mut found: Vec<(SystemTime, Key, u64)> = Vec::new();
    for origin in fs::read_dir(blobs)? {
        let origin = origin?;
        let Some(name) = origin.file_name().to_str().and_then(Origin::parse) else {
            continue;
        };
        for blob in fs::read_dir(origin.path())? {
            let blob = blob?;
            let Some(digest) = blob.file_name().to_str().and_then(Digest::from_hex) else {
                continue;
            };
            let metadata = blob.metadata()?;
            found.push((metadata.modified()?, (name, digest), metadata.len()));
        }
        remove_empty(&origin.path());
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, key, size)| (key, size)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(content: &Bytes) -> Key {
        (Origin::of("registry.example/a"), Digest::of(content))
    }

    fn content(letter: u8, size: usize) -> Bytes {
        vec![letter; size].into()
    }

    #[tokio::test]
    async fn content_survives_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let content = content(b'a', 10);
        let cache = Cache::open(directory.path().into(), 100).unwrap();
        cache.put(key(&content), content.clone()).await.unwrap();
        let cache = Cache::open(directory.path().into(), 100).unwrap();
        assert_eq!(cache.get(key(&content)).await.unwrap(), Some(content));
    }

    #[tokio::test]
    async fn content_of_one_origin_is_not_found_under_another() {
        let directory = tempfile::tempdir().unwrap();
        let content = content(b'a', 10);
        let cache = Cache::open(directory.path().into(), 100).unwrap();
        cache.put(key(&content), content.clone()).await.unwrap();
        let elsewhere = (Origin::of("registry.example/b"), Digest::of(&content));
        assert_eq!(cache.get(elsewhere).await.unwrap(), None);
    }

    #[tokio::test]
    async fn content_changed_on_disk_is_never_returned() {
        let directory = tempfile::tempdir().unwrap();
        let content = content(b'a', 10);
        let cache = Cache::open(directory.path().into(), 100).unwrap();
        cache.put(key(&content), content.clone()).await.unwrap();
        fs::write(cache.path(key(&content)), "evil").unwrap();
        assert_eq!(cache.get(key(&content)).await.unwrap(), None);
        assert!(!cache.holds(key(&content)));
        assert_eq!(cache.total(), 0);
    }

    #[tokio::test]
    async fn the_least_recently_used_goes_first() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().into(), 25).unwrap();
        let [a, b, c] = [b'a', b'b', b'c'].map(|letter| content(letter, 10));
        for content in [&a, &b] {
            cache.put(key(content), content.clone()).await.unwrap();
        }
        cache.get(key(&a)).await.unwrap();
        cache.put(key(&c), c.clone()).await.unwrap();
        assert_eq!([&a, &b, &c].map(|content| cache.holds(key(content))), [true, false, true]);
        assert!(!cache.path(key(&b)).exists());
        assert_eq!(cache.total(), 20);
    }

    fn origins(directory: &Path) -> usize {
        fs::read_dir(directory.join("blobs")).unwrap().count()
    }

    #[tokio::test]
    async fn an_origin_of_which_nothing_is_held_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().into(), 25).unwrap();
        for number in 0..100 {
            let content = Bytes::from(format!("content {number:02}"));
            let key = (Origin::of(&format!("https://charts.example/{number}.tgz")), Digest::of(&content));
            cache.put(key, content).await.unwrap();
        }
        assert_eq!((origins(directory.path()), cache.total()), (2, 20));
        fs::create_dir(directory.path().join("blobs").join(Origin::of("of a killed process").as_str()))
            .unwrap();
        let cache = Cache::open(directory.path().into(), 0).unwrap();
        assert_eq!((origins(directory.path()), cache.total()), (0, 0));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn content_comes_into_a_directory_that_another_piece_just_left() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().into(), 10).unwrap();
        let puts = (0..500).map(|number| {
            let (cache, content) = (cache.clone(), Bytes::from(format!("{number:010}")));
            tokio::spawn(async move { cache.put(key(&content), content).await })
        });
        for put in futures::future::join_all(puts).await {
            put.unwrap().unwrap();
        }
        assert_eq!(cache.total(), 10);
    }
}
