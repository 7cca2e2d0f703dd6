//! Builds planted secrets and searches texts for them, without I/O.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use e2e::outputs::Output;

/// Prefix of every planted secret: one search finds all of them, also those that are cut off at the end. It has no
/// character that an address or a string literal escapes.
const SECRET_PREFIX: &str = "planted-";
/// Harmless word that is planted beside the secrets and may appear anywhere.
pub(crate) const HARMLESS_WORD: &str = "periwinkle";

/// Returns a secret that contains this name and ends with characters that addresses have to escape.
pub(crate) fn secret(name: &str) -> String {
    format!("{SECRET_PREFIX}{name}+/1")
}

/// Returns [`secret`] as it is escaped in an address.
pub(crate) fn secret_in_url(name: &str) -> String {
    format!("{SECRET_PREFIX}{name}%2B%2F1")
}

/// Texts that must not be in any output.
pub(crate) struct SecretSearch(Vec<String>);

impl SecretSearch {
    /// Builds the search for planted secrets and these real ones.
    pub(crate) fn of(real: &[String]) -> Self {
        let mut all = Vec::new();
        for secret in real.iter().map(String::as_str).chain([SECRET_PREFIX]) {
            all.push(secret.to_owned());
            all.extend((0..3).flat_map(|offset| encoded(secret, offset)));
        }
        Self(all)
    }

    /// Returns the places that contain one of the texts, with the text around it.
    pub(crate) fn found_in(&self, output: &Output) -> Vec<String> {
        let around = |at: usize| {
            let clear = |at: usize| (0..=at).rev().find(|&at| output.text.is_char_boundary(at)).unwrap_or(0);
            let (from, to) = (clear(at.saturating_sub(160)), clear((at + 100).min(output.text.len())));
            format!("{}: …{}…", output.place, output.text[from..to].replace('\n', " ⏎ "))
        };
        self.0.iter().filter_map(|text| output.text.find(text.as_str())).map(around).collect()
    }
}

/// Returns the base64 characters that depend only on the secret if it begins at this offset in a group of three
/// bytes.
fn encoded(secret: &str, offset: usize) -> [String; 2] {
    let bytes: Vec<u8> = std::iter::repeat_n(b'.', offset).chain(secret.bytes()).collect();
    let (first, last) = ((offset * 8).div_ceil(6), bytes.len() * 8 / 6);
    [STANDARD.encode(&bytes), URL_SAFE.encode(&bytes)].map(|text| text[first..last].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(text: &str) -> bool {
        let output = Output { place: "here".to_owned(), kind: "log".to_owned(), text: text.to_owned() };
        !SecretSearch::of(&["a-real-token?>~".to_owned()]).found_in(&output).is_empty()
    }

    #[test]
    fn secret_is_found_plain_encoded_and_inside_encoded_text() {
        let secret = secret("x");
        assert!(finds(&format!("é bad value {secret:?} é")));
        assert!(finds(&secret_in_url("x")) && finds(&secret[..12]));
        for before in ["", "a", "ab", "abc"] {
            for secret in [secret.as_str(), "a-real-token?>~"] {
                let longer = format!("{before}{secret} and more");
                assert!(finds(&STANDARD.encode(&longer)), "{longer}");
                assert!(finds(&URL_SAFE.encode(&longer)), "{longer}");
            }
        }
        assert!(finds("Bearer a-real-token?>~"));
        assert!(!finds(HARMLESS_WORD) && !finds(&STANDARD.encode("nothing of that sort")));
    }
}
