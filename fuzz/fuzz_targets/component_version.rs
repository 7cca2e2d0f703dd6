//! An OCM component version (manifest, config, descriptor): an accepted one names blobs by digest, a refused one
//! gives a short error.
#![no_main]

use kyma_artifacts::fuzzing::{descriptor, descriptor_layer, layers};
use kyma_artifacts::{ArtifactError, Digest};
use libfuzzer_sys::fuzz_target;

const NAME: &str = "kyma-project.io/module/m";
const VERSION: &str = "1.0.0";

fuzz_target!(|bytes: &[u8]| {
    match layers(bytes) {
        Ok(layers) => layers.iter().for_each(|(_, digest)| check_digest(*digest)),
        Err(error) => check_error(&error),
    }
    if let Some(digest) = descriptor_layer(bytes) {
        check_digest(digest);
    }
    let (resources, images) = match descriptor(bytes, NAME, VERSION) {
        Ok(read) => read,
        Err(error) => return check_error(&error),
    };
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    for (_, blob) in resources {
        match blob {
            // An escaped digest in YAML must not name another blob.
            Ok(digest) => {
                check_digest(digest);
                assert!(text.contains(&digest.hex()) || text.contains('\\') || text.contains('\n'));
            }
            Err(error) => check_error(&error),
        }
    }
    assert!(images.len() <= bytes.len());
});

fn check_digest(digest: Digest) {
    assert_eq!(digest.to_string().parse::<Digest>().expect("a digest parses again"), digest);
}

fn check_error(error: &ArtifactError) {
    let text = error.to_string();
    let _ = (error.class(), error.reason());
    assert!(!text.contains(char::is_control) && text.chars().count() <= 700, "{text:?}");
}
