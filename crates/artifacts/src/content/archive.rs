//! Reads untrusted tar archives: with limits on size, count and nesting, and without links or paths that leave the
//! archive.

mod room;

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::{Component, Path},
};

use bytes::Bytes;
use flate2::{Compression, GzBuilder, read::MultiGzDecoder};
use tar::EntryType;

pub use self::room::{max_unpacked_bytes, run_unpacking};
use crate::config::Limits;
use crate::error::ArtifactError;
use crate::storage::digest::printable;

/// The regular files of an archive by their path, `/`-separated, without leading `./`.
pub type Files = BTreeMap<String, Bytes>;

const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Maximum length of a path in bytes, as on Linux. The limits of an archive count a path once, and it is copied.
const MAX_PATH_BYTES: usize = 4_096;

/// Reports whether `content` begins like gzip.
pub(crate) fn is_gzip(content: &[u8]) -> bool {
    content.starts_with(&GZIP)
}

/// Reports whether `content` is a tar archive, by the magic of POSIX and GNU tar.
pub(crate) fn is_tar(content: &[u8]) -> bool {
    content.get(257..262) == Some(b"ustar")
}

/// First bytes of formats that are not read, and their names.
const OTHER_FORMATS: [(&[u8], &str); 5] = [
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
];

/// Returns the problem of content in an archive format that is not read.
pub(crate) fn other_format(content: &[u8]) -> Option<String> {
    let (_, name) = OTHER_FORMATS.iter().find(|(start, _)| content.starts_with(start) && !is_tar(content))?;
    Some(format!("it is in the format {name}; only tar and gzip are read"))
}

/// Returns the header of a file of `size` bytes; it does not depend on the time or the user.
pub(crate) fn reproducible_header(size: usize) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_size(size as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Unpacks a tar archive, gzipped or not, into memory. `what` names it in errors.
///
/// Refused: absolute paths, `..`, links, devices, two entries of one path, more or larger than `limits`.
pub(crate) fn files(what: &str, content: &[u8], limits: &Limits) -> Result<Files, ArtifactError> {
    Unpacker::new(limits).files(what, content)
}

/// Unpacks an archive and archives in it, with common limits.
pub struct Unpacker {
    limits: Limits,
    unpacked: u64,
    entries: usize,
    /// Bytes of archives that may still be read. Headers, long names and padding count too, since an archive of a
    /// million empty entries also takes much memory.
    raw: u64,
}

impl Unpacker {
    /// Creates an unpacker with these limits.
    pub fn new(limits: &Limits) -> Self {
        let raw = limits.unpacked + (limits.entries as u64 + 2) * 1536;
        Self { limits: *limits, unpacked: limits.unpacked, entries: limits.entries, raw }
    }

    /// Returns the regular files of a tar archive, gzipped or not. `what` names it in errors.
    ///
    /// Refused: absolute paths, `..`, links, devices, two entries of one path, more or larger than the remaining
    /// limits.
    pub fn files(&mut self, what: &str, content: &[u8]) -> Result<Files, ArtifactError> {
        if let Some(problem) = other_format(content) {
            return Err(ArtifactError::invalid(what, problem));
        }
        if is_gzip(content) {
            self.read(what, MultiGzDecoder::new(content))
        } else {
            self.read(what, content)
        }
    }

    fn read(&mut self, what: &str, reader: impl Read) -> Result<Files, ArtifactError> {
        let Self { limits, unpacked, entries, raw } = self;
        let broken = |_| ArtifactError::invalid(what, "broken archive");
        let mut archive = tar::Archive::new(LimitedReader { inner: reader, left: raw });
        let mut files = Files::new();
        for entry in archive.entries().map_err(broken)? {
            let mut entry = entry
                .map_err(|error| over(&error, what, limits.unpacked).unwrap_or_else(|| broken(error)))?;
            *entries = entries.checked_sub(1).ok_or_else(|| {
                ArtifactError::invalid(what, format!("more than {} entries", limits.entries))
            })?;
            let kind = entry.header().entry_type();
            if matches!(kind, EntryType::Directory | EntryType::XGlobalHeader) {
                continue;
            }
            let path = path_of(what, &entry.path_bytes())?;
            if !matches!(kind, EntryType::Regular | EntryType::Continuous) {
                return Err(ArtifactError::invalid(
                    what,
                    format!("{} is a link or a device", printable(&path)),
                ));
            }
            let size = entry.size();
            let too_large =
                |limit| ArtifactError::TooLarge { what: format!("{what}: {}", printable(&path)), limit };
            if size > limits.file {
                return Err(too_large(limits.file));
            }
            *unpacked = unpacked.checked_sub(size).ok_or_else(|| too_large(limits.unpacked))?;
            let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
            entry.read_to_end(&mut content).map_err(broken)?;
            if files.insert(path.clone(), content.into()).is_some() {
                return Err(ArtifactError::invalid(what, format!("it contains {} twice", printable(&path))));
            }
        }
        Ok(files)
    }
}

/// Packs files as a gzipped tar. Equal files give equal bytes.
pub fn pack(files: &Files, compression: Compression) -> io::Result<Bytes> {
    let gzip = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), compression);
    let mut archive = tar::Builder::new(gzip);
    for (path, content) in files {
        archive.append_data(&mut reproducible_header(content.len()), path, content.as_ref())?;
    }
    Ok(archive.into_inner()?.finish()?.into())
}

/// Unpacks gzip in memory, at most `limit` bytes.
pub(crate) fn gunzip(what: &str, content: &[u8], limit: u64) -> Result<Bytes, ArtifactError> {
    let mut unpacked = Vec::new();
    MultiGzDecoder::new(content)
        .take(limit + 1)
        .read_to_end(&mut unpacked)
        .map_err(|_| ArtifactError::invalid(what, "broken gzip"))?;
    if unpacked.len() as u64 > limit {
        return Err(ArtifactError::TooLarge { what: what.to_owned(), limit });
    }
    Ok(unpacked.into())
}

/// Returns the entry's path, or an error if it leaves the archive. Backslashes separate too, as in Helm.
fn path_of(what: &str, raw: &[u8]) -> Result<String, ArtifactError> {
    let refuse = |shown: &str| {
        Err(ArtifactError::invalid(what, format!("the path {} leads out of the archive", printable(shown))))
    };
    if raw.len() > MAX_PATH_BYTES {
        return Err(ArtifactError::invalid(what, format!("a path has more than {MAX_PATH_BYTES} bytes")));
    }
    let Ok(text) = std::str::from_utf8(raw) else {
        return Err(ArtifactError::invalid(what, "a path is not UTF-8"));
    };
    let text = text.replace('\\', "/");
    let drive = text.as_bytes().get(1) == Some(&b':');
    if text.starts_with('/') || drive || text.contains('\0') {
        return refuse(&text);
    }
    let mut parts = Vec::new();
    for part in Path::new(&text).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_string_lossy()),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return refuse(&text),
        }
    }
    if parts.is_empty() { refuse(&text) } else { Ok(parts.join("/")) }
}

/// A reader that fails, instead of ending, beyond its limit.
struct LimitedReader<'a, R> {
    inner: R,
    left: &'a mut u64,
}

impl<R: Read> Read for LimitedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        *self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or_else(|| io::Error::new(io::ErrorKind::FileTooLarge, "archive larger than allowed"))?;
        Ok(count)
    }
}

fn over(error: &io::Error, what: &str, limit: u64) -> Option<ArtifactError> {
    (error.kind() == io::ErrorKind::FileTooLarge)
        .then(|| ArtifactError::TooLarge { what: what.to_owned(), limit })
}

#[cfg(test)]
mod tests;
