//! Checks free disk space before the first step: API servers on a full disk respond with timeouts, and the tests
//! that fail do not name the cause.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use nix::sys::statvfs::statvfs;

use crate::workspace;

const GIB: u64 = 1 << 30;

/// Size of all builds for the tests, without incremental data.
const BUILD: u64 = 10 * GIB;
/// Size of control planes, caches and logs of all tests that run at the same time.
const TESTS: u64 = 4 * GIB;

/// A directory and the space that it needs.
struct DiskSpace {
    directory: PathBuf,
    /// Device id: directories of one file system share its space.
    file_system: u64,
    /// Bytes.
    free: u64,
    /// Bytes.
    needed: u64,
}

/// Fails if compiling or testing would fill the disk.
pub(super) fn check() -> Result<()> {
    let target = workspace::target();
    let build = if target.join("debug/deps").is_dir() { 0 } else { BUILD };
    let place = if target.is_dir() { target } else { workspace::root().to_owned() };
    enough(&[DiskSpace::look(place, build)?, DiskSpace::look(env::temp_dir(), TESTS)?])
}

impl DiskSpace {
    fn look(directory: PathBuf, needed: u64) -> Result<Self> {
        let found = statvfs(&directory)
            .with_context(|| format!("cannot tell the room of {}", directory.display()))?;
        let free = found.blocks_available() * found.fragment_size();
        Ok(Self { directory, file_system: found.filesystem_id(), free, needed })
    }
}

fn enough(places: &[DiskSpace]) -> Result<()> {
    for place in places {
        let shared = places.iter().filter(|other| other.file_system == place.file_system);
        let needed: u64 = shared.map(|other| other.needed).sum();
        ensure!(
            place.free >= needed,
            "{:.1} GiB are free at {}, and the tests take {:.1}: make room, or set CARGO_TARGET_DIR or TMPDIR to \
             where there is some",
            in_gib(place.free),
            place.directory.display(),
            in_gib(needed)
        );
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "for people to read, with one digit")]
fn in_gib(bytes: u64) -> f64 {
    bytes as f64 / GIB as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(directory: &str, file_system: u64, free: u64, needed: u64) -> DiskSpace {
        DiskSpace { directory: directory.into(), file_system, free: free * GIB, needed: needed * GIB }
    }

    #[test]
    fn directories_of_one_file_system_share_its_room() {
        enough(&[place("/build", 1, 12, 10), place("/tmp", 2, 5, 4)]).unwrap();
        let error = enough(&[place("/build", 1, 12, 10), place("/tmp", 1, 12, 4)]).unwrap_err();
        assert!(error.to_string().starts_with("12.0 GiB are free at /build, and the tests take 14.0: "));
    }

    #[test]
    fn too_little_room_in_one_of_two_is_named() {
        let error = enough(&[place("/build", 1, 12, 10), place("/tmp", 2, 3, 4)]).unwrap_err();
        assert!(error.to_string().starts_with("3.0 GiB are free at /tmp, and the tests take 4.0: "));
    }
}
