//! Archives of manifests: limits hold, no path leaves the archive, gzip changes nothing, and unpacked files can be
//! packed again unchanged.
#![no_main]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Component, Path};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use kyma_artifacts::Limits;
use kyma_artifacts::fuzzing::{files, manifests};
use libfuzzer_sys::fuzz_target;

const BLOCK: usize = 512;
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Beginnings of formats that are refused by name, unless the rest is a tar archive.
const REFUSED_FORMATS: [&[u8]; 5] =
    [b"BZh", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"\xfd7zXZ\0", b"7z\xbc\xaf\x27\x1c"];

fn limits(factor: usize) -> Limits {
    let unpacked = 16 * 1024 * factor as u64;
    Limits { unpacked, file: 8 * 1024, entries: 16 * factor, ..Limits::default() }
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let mut mended = bytes.to_vec();
    mend(&mut mended);
    if mended != bytes {
        check(&mended);
    }
});

fn check(bytes: &[u8]) {
    let limits = limits(1);
    if let Ok(yaml) = manifests(&Bytes::copy_from_slice(bytes), &limits) {
        // Two files are at most separated by a separator and an end of line.
        assert!(yaml.len() as u64 <= limits.unpacked + 5 * limits.entries as u64 || yaml == bytes);
    }
    let found = files(bytes, &limits);
    let is_of_another_format = REFUSED_FORMATS.iter().any(|format| bytes.starts_with(format));
    if !bytes.starts_with(&GZIP) && !is_of_another_format {
        assert_eq!(files(&gzip(bytes), &limits).ok(), found.as_ref().ok().cloned());
    }
    match found {
        Ok(found) => check_files(&found, &limits),
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains(char::is_control) && text.chars().count() <= 400, "{text:?}");
        }
    }
}

fn check_files(found: &BTreeMap<String, Bytes>, limits: &Limits) {
    assert!(found.len() <= limits.entries);
    assert!(found.values().all(|content| content.len() as u64 <= limits.file));
    assert!(found.values().map(|content| content.len() as u64).sum::<u64>() <= limits.unpacked);
    for path in found.keys() {
        assert!(Path::new(path).components().all(|part| matches!(part, Component::Normal(_))), "{path:?}");
        assert!(path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{path:?}");
        assert!(!path.contains(['\\', '\0']) && path.as_bytes().get(1) != Some(&b':'), "{path:?}");
    }
    assert_eq!(files(&packed(found), &self::limits(8)).expect("what was packed unpacks"), *found);
}

fn packed(found: &BTreeMap<String, Bytes>) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in found {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, content.as_ref()).expect("a path that was accepted");
    }
    archive.into_inner().expect("memory takes it")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes it")
}

/// Sets the checksums of headers, which a fuzzer does not guess.
fn mend(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = bytes.get_mut(at..at + BLOCK) {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let size = std::str::from_utf8(&header[124..135]).ok();
        let size = size.and_then(|size| usize::from_str_radix(size.trim_matches(['\0', ' ']), 8).ok());
        at = at.saturating_add(BLOCK).saturating_add(size.unwrap_or(0).next_multiple_of(BLOCK));
    }
}
