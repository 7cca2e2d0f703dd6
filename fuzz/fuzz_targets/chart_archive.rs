//! Untrusted chart archives: `helm` only receives regular files with plain paths, and no schema, including those of
//! subcharts, refers to a file or an address.
#![no_main]

use std::io::{Read as _, Write as _};

use arbitrary::Arbitrary;
use bytes::Bytes;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use kyma_artifacts::Limits;
use kyma_helm::chart::Chart;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const CHART: &[u8] = b"apiVersion: v2\nname: demo\nversion: 1.0.0\n";
const SCHEMA: &str = "values.schema.json";
const SEGMENTS: [&str; 14] = [
    "demo",
    "charts",
    SCHEMA,
    "sub.tgz",
    "sub",
    "templates",
    "a.yaml",
    "Chart.yaml",
    ".",
    "",
    "..",
    "\\",
    "demo\\charts",
    "\0",
];
/// Marks an absent segment, so that a path may have fewer segments and no folder.
const NO_SEGMENT: u8 = 0xff;
const SCHEMAS: [&[u8]; 10] = [
    br##"{"$ref": "#/definitions/a"}"##,
    br#"{"$schema": "https://json-schema.org/draft/2020-12/schema"}"#,
    br#"{"$ref": "file:///outside"}"#,
    br#"{"$schema": "http://outside.example/"}"#,
    b"\xef\xbb\xbf{\"$ref\": \"http://outside.example/\"}",
    br#"{"minimum": 1e999, "$ref": "http://outside.example/"}"#,
    br#"{"title": "\ud800", "$ref": "http://outside.example/"}"#,
    b"{\"title\": \"\xff\", \"$ref\": \"http://outside.example/\"}",
    br##"{"$id": "http://outside.example/", "$ref": "#/a"}"##,
    br#"{"$dynamicRef": "outside"}"#,
];
const KINDS: &[u8] = b"0\x007LSgxK25Z";

#[derive(Arbitrary, Debug)]
struct Entry<'a> {
    path: [u8; 3],
    shape: u8,
    content: Content<'a>,
}

#[derive(Arbitrary, Debug)]
enum Content<'a> {
    Schema(u8),
    Text(&'a str),
    Deep(u8),
    Chart(Vec<Entry<'a>>),
}

fuzz_target!(|entries: Vec<Entry<'_>>| {
    let limits = Limits { unpacked: 1 << 20, file: 1 << 18, entries: 100, ..Limits::default() };
    let Ok(pulled) = kyma_artifacts::fuzzing::chart(packed(&entries).into(), &limits) else { return };
    assert!(pulled.files(&limits).is_ok_and(|files| files.contains_key("Chart.yaml")));
    if let Ok(chart) = Chart::open(pulled.content()) {
        assert_eq!((chart.name(), chart.version()), (&*pulled.metadata.name, &*pulled.metadata.version));
        check(chart.archive());
    }
});

/// Returns the chart as `helm` receives it.
fn check(archive: &Bytes) {
    let mut archive = tar::Archive::new(GzDecoder::new(archive.as_ref()));
    for entry in archive.entries().expect("a tar archive") {
        let mut entry = entry.expect("a whole archive");
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("a whole archive");
        let path = String::from_utf8(entry.path_bytes().into_owned()).expect("text");
        assert!(entry.header().entry_type().is_file(), "{path}");
        let parts: Vec<&str> = path.split('/').collect();
        assert!(!parts.iter().any(|part| matches!(*part, "" | "." | "..")), "{path:?}");
        assert!(!path.contains(['\\', '\0']), "{path:?}");
        if is_schema(&parts) {
            check_schema(&content);
        }
        if matches!(parts[..], [_, "charts", file] if file.ends_with(".tgz")) {
            check(&content.into());
        }
    }
}

/// Returns whether Helm reads a file as the schema of a chart: it is in the folder of the chart or of a subchart.
fn is_schema(parts: &[&str]) -> bool {
    let Some((file, folders)) = parts.split_last() else { return false };
    *file == SCHEMA
        && folders.len() % 2 == 1
        && folders.iter().skip(1).step_by(2).all(|folder| *folder == "charts")
}

fn check_schema(content: &[u8]) {
    let mut open = vec![serde_json::from_slice::<Value>(content).expect("a schema that we can read, too")];
    while let Some(value) = open.pop() {
        let outside = |key: &str| value[key].as_str().is_some_and(|target| target.contains("outside"));
        assert!(!["$ref", "$schema", "$dynamicRef"].into_iter().any(outside), "{value}");
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(map) => open.extend(map.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
}

fn packed(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut tar = Vec::new();
    put(&mut tar, b"demo/Chart.yaml", 0, CHART);
    for Entry { path, shape, content } in entries {
        let segments = path.iter().filter(|part| **part != NO_SEGMENT);
        let segments: Vec<&str> =
            segments.map(|part| SEGMENTS[usize::from(*part) % SEGMENTS.len()]).collect();
        let path = segments.join("/");
        let path = if shape & 1 == 0 { format!("demo/{path}") } else { path };
        let content = match content {
            Content::Schema(which) => SCHEMAS[usize::from(*which) % SCHEMAS.len()].to_vec(),
            Content::Text(text) => text.as_bytes().to_vec(),
            Content::Deep(depth) => deep(usize::from(*depth)),
            Content::Chart(entries) => packed(entries),
        };
        put(&mut tar, path.as_bytes(), shape >> 1, &content);
    }
    tar.extend([0; 1024]);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&tar).and_then(|()| gzip.finish()).expect("memory takes it")
}

fn deep(depth: usize) -> Vec<u8> {
    let inner = r#"{"$ref": "http://outside.example/"}"#;
    format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth)).into_bytes()
}

/// Appends an entry that no packer writes.
fn put(tar: &mut Vec<u8>, path: &[u8], shape: u8, content: &[u8]) {
    let mut header = if shape & 1 == 0 { tar::Header::new_ustar() } else { tar::Header::new_gnu() };
    let bytes = header.as_mut_bytes();
    let length = path.len().min(100);
    bytes[..length].copy_from_slice(&path[..length]);
    // GNU and star store other data in ustar's prefix.
    if shape & 2 != 0 {
        bytes[345..349].copy_from_slice(b"demo");
    }
    if shape & 4 != 0 {
        bytes[508..512].copy_from_slice(b"tar\0");
    }
    bytes[156] = KINDS[usize::from(shape >> 3) % KINDS.len()];
    header.set_size(content.len() as u64);
    header.set_cksum();
    tar.extend(header.as_bytes());
    tar.extend(content);
    tar.resize(tar.len().next_multiple_of(512), 0);
}
