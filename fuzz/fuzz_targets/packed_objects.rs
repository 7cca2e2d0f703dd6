//! The packed inventory in an untrusted status: an accepted one is bounded and survives packing, and no error
//! contains its content.
#![no_main]

use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::{Compression, write::GzEncoder};
use kyma_api::InventoryGroup;
use libfuzzer_sys::fuzz_target;

const PLANTED: &str = "Hush4Hush";

fuzz_target!(|bytes: &[u8]| {
    let [how, rest @ ..] = bytes else { return };
    let text = match how % 3 {
        0 => String::from_utf8_lossy(rest).into_owned(),
        1 => BASE64_STANDARD.encode(rest),
        _ => BASE64_STANDARD.encode(gzip(rest)),
    };
    match InventoryGroup::unpack(&text) {
        Ok(groups) => {
            let packed = InventoryGroup::pack(&groups).expect("memory takes it");
            assert_eq!(InventoryGroup::unpack(&packed), Ok(groups));
        }
        Err(error) => {
            let shown = error.to_string();
            assert!(!shown.contains(PLANTED), "{shown}");
        }
    }
});

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(plain).and_then(|()| gzip.finish()).expect("memory takes it")
}
