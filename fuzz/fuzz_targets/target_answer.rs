//! Responses of a target's apiserver, and the state of its objects: messages are bounded and contain no text of
//! theirs.
#![no_main]

use jiff::Timestamp;
use kyma_targets::TargetError;
use kyma_targets::fuzzing::{answer, refusal};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const LIMIT: usize = 2048;
const TYPES: [&[u8]; 4] = [b"application/json", b"text/html", b"application/x+json; q=1", b"application/"];
/// Allowed parts of a message: fixed words, names and paths of the API.
const MARKS: &str = " ._-/[]()\"=,:;'+";
const LONGEST: usize = 1000;

fuzz_target!(|bytes: &[u8]| {
    let Some((&[code, kind], body)) = bytes.split_first_chunk() else { return };
    // 200, 400, 401, …, and codes in between.
    let code = 100 + u16::from(code) * 2;
    if let Some(read) = answer(code, TYPES[usize::from(kind) % TYPES.len()], body, LIMIT) {
        match read {
            Err(error) => check_error(&error),
            Ok(answer) => {
                assert!(answer.body().len() <= LIMIT);
                if !answer.status().is_success() {
                    check_error(&refusal(answer.body()).expect("a refusal holds a Status"));
                }
            }
        }
    }
    if let Ok(object) = serde_json::from_slice::<Value>(body) {
        let health = kyma_health::assess(&object, Timestamp::UNIX_EPOCH);
        check_text(&health.message);
    }
});

fn check_error(error: &TargetError) {
    let _ = (error.class(), error.reason());
    check_text(&error.to_string());
}

fn check_text(text: &str) {
    assert!(text.len() <= LONGEST, "{} bytes", text.len());
    assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || MARKS.contains(c)), "{text:?}");
}
