use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

use super::*;

fn limits() -> Limits {
    Limits { unpacked: 10_000, file: 5_000, entries: 50, ..Limits::default() }
}

/// Returns an archive of entries with raw names, which `Builder::append_data` would refuse to write.
fn archive(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, kind, content) in entries {
        let mut header = Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        if matches!(kind, EntryType::Symlink | EntryType::Link) {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn read(content: &[u8]) -> Result<Files, ArtifactError> {
    files("test", content, &limits())
}

#[test]
fn plain_and_gzipped_archives_read_alike() {
    let tar = archive(&[("./a/b.yaml", EntryType::Regular, b"x: 1"), ("a/", EntryType::Directory, b"")]);
    assert!(is_tar(&tar));
    for content in [tar.clone(), gzip(&tar)] {
        let found = read(&content).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [("a/b.yaml".to_owned(), Bytes::from("x: 1"))]);
    }
}

#[test]
fn paths_out_of_the_archive_are_refused() {
    for path in ["../x", "/etc/passwd", "a/../../x", "..\\x", "C:\\x", "a/..", "."] {
        let error = read(&archive(&[(path, EntryType::Regular, b"x")])).unwrap_err();
        assert!(error.to_string().contains("leads out"), "{path}: {error}");
    }
}

#[test]
fn paths_that_no_file_system_takes_are_refused() {
    let read_path_of = |bytes: usize| {
        let path = "a/".repeat(bytes / 2 - 1) + "bc" + &"d".repeat(bytes % 2);
        let long = ("long", EntryType::GNULongName, path.as_bytes());
        read(&archive(&[long, ("x", EntryType::Regular, b"x")])).map(|files| files.contains_key(&path))
    };
    assert!(read_path_of(4_096).unwrap());
    let error = read_path_of(4_097).unwrap_err();
    assert!(error.to_string().contains("a path has more than 4096 bytes"), "{error}");
}

#[test]
fn links_and_devices_are_refused() {
    for kind in [EntryType::Symlink, EntryType::Link, EntryType::Char, EntryType::Fifo] {
        let error = read(&archive(&[("a", kind, b"")])).unwrap_err();
        assert!(error.to_string().contains("link or a device"), "{kind:?}: {error}");
    }
}

#[test]
fn one_path_twice_is_refused() {
    let twice = archive(&[("a", EntryType::Regular, b"1"), ("./a", EntryType::Regular, b"2")]);
    assert!(read(&twice).is_err());
}

#[test]
fn sizes_are_bounded_by_file_and_in_total() {
    let large = [0; 5_001];
    let error = read(&gzip(&archive(&[("a", EntryType::Regular, &large)]))).unwrap_err();
    assert!(matches!(error, ArtifactError::TooLarge { limit: 5_000, .. }), "{error}");
    let part = &large[..4_000];
    let many = archive(&[
        ("a", EntryType::Regular, part),
        ("b", EntryType::Regular, part),
        ("c", EntryType::Regular, part),
    ]);
    let error = read(&gzip(&many)).unwrap_err();
    assert!(matches!(error, ArtifactError::TooLarge { limit: 10_000, .. }), "{error}");
}

#[test]
fn a_bomb_of_headers_or_zeroes_ends_early() {
    let names: Vec<String> = (0..60).map(|number| number.to_string()).collect();
    let entries: Vec<_> = names.iter().map(|name| (name.as_str(), EntryType::Regular, &b""[..])).collect();
    assert!(read(&archive(&entries)).unwrap_err().to_string().contains("more than 50 entries"));
    // A small declared size, followed by a long name of many megabytes.
    let bomb = gzip(&archive(&[("long", EntryType::GNULongName, &vec![b'a'; 5 << 20])]));
    assert!(bomb.len() < 10_000);
    assert!(read(&bomb).is_err());
    assert!(matches!(gunzip("test", &gzip(&vec![0; 20_000]), 10_000), Err(ArtifactError::TooLarge { .. })));
}

#[test]
fn archives_share_one_budget() {
    // Each entry declares a small size and is preceded by a long name.
    let long = vec![b'a'; 50_000];
    let hidden = gzip(&archive(&[("long", EntryType::GNULongName, &long), ("x", EntryType::Directory, b"")]));
    let full = archive(&[("a", EntryType::Regular, &[0; 4_000])]);
    for (content, fits) in [(&hidden, 1), (&full, 2)] {
        let mut unpacker = Unpacker::new(&limits());
        let read = (0..=fits).map(|_| unpacker.files("test", content).is_ok()).collect::<Vec<_>>();
        assert_eq!(read.iter().filter(|ok| **ok).count(), fits, "{read:?}");
    }
}

#[test]
fn what_is_packed_unpacks_to_the_same() {
    let long = format!("{}/b", "a".repeat(200));
    let files = Files::from([("a".to_owned(), Bytes::from("1")), (long, Bytes::from("2"))]);
    let packed = pack(&files, flate2::Compression::fast()).unwrap();
    assert_eq!(read(&packed).unwrap(), files);
}

#[test]
fn other_formats_are_named() {
    let tar = archive(&[("BZh/a", EntryType::Regular, b"x: 1")]);
    assert!(read(&tar).unwrap().contains_key("BZh/a"));
    for (content, name) in
        [(&b"\x28\xb5\x2f\xfd\0\0"[..], "zstd"), (&b"BZh91AY"[..], "bzip2"), (&b"PK\x03\x04"[..], "zip")]
    {
        let error = read(content).unwrap_err();
        assert!(error.to_string().contains(&format!("in the format {name};")), "{error}");
        assert_eq!(error.reason(), kyma_api::Reason::SourceInvalid);
    }
}

#[test]
fn broken_archives_are_invalid() {
    let whole = gzip(&archive(&[("a", EntryType::Regular, &[7; 3_000])]));
    for content in [&whole[..whole.len() / 2], &b"\x1f\x8bnonsense"[..]] {
        assert_eq!(read(content).unwrap_err().reason(), kyma_api::Reason::SourceInvalid);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..2048), magic: bool) {
        if magic && bytes.len() > 262 {
            bytes[257..262].copy_from_slice(b"ustar");
        }
        let _ = read(&bytes);
    }
}
