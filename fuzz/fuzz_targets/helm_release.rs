//! Helm's record of a release, from a Secret on a target: an accepted record is bounded and has the requested
//! release and revision, and no error contains its content.
#![no_main]

use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::{Compression, write::GzEncoder};
use kyma_helm::storage::fuzzing::{RELEASE, objects};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const PLANTED: &str = "Hush4Hush";
/// Maximum number of objects of one manifest, from the documentation of `Limits`.
const MAX_OBJECTS: usize = 5_000;

fuzz_target!(|bytes: &[u8]| {
    let [how, rest @ ..] = bytes else { return };
    let stored = match how % 3 {
        0 => rest.to_vec(),
        1 => BASE64_STANDARD.encode(rest).into_bytes(),
        _ => BASE64_STANDARD.encode(gzip(rest)).into_bytes(),
    };
    match objects(&stored) {
        Ok(count) => {
            assert!(count <= MAX_OBJECTS, "{count} objects");
            if how % 3 != 0
                && let Ok(release) = serde_json::from_slice::<Value>(rest)
            {
                let named =
                    (release["name"].as_str(), release["namespace"].as_str(), release["version"].as_i64());
                assert_eq!(named, (Some(RELEASE.0), Some(RELEASE.1), Some(3)));
            }
        }
        Err(error) => {
            let shown = error.to_string();
            assert!(!shown.contains(PLANTED) || is_in_a_name(rest), "{shown}");
        }
    }
});

/// Reports whether a mutation moved the planted text into a line that names an object or its template, which errors
/// show.
fn is_in_a_name(record: &[u8]) -> bool {
    const SHOWN: [&str; 5] = ["# Source:", "apiVersion", "kind", "name", "namespace"];
    let text = String::from_utf8_lossy(record);
    let mut lines = text.split("\\n").filter(|line| line.contains(PLANTED));
    lines.any(|line| SHOWN.iter().any(|start| line.trim_start().starts_with(start)))
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(plain).and_then(|()| gzip.finish()).expect("memory takes it")
}
