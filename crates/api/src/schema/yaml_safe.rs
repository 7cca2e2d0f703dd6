//! JSON text that YAML parsers read as the same data.
//!
//! API servers parse the body of a server-side apply, and Helm parses values, as YAML 1.1, even if the text is JSON. In
//! YAML 1.1, U+0085, U+2028 and U+2029 are line breaks, U+007F to U+009F and some other characters are not allowed, and
//! a key of more than 1,024 characters is an error.

/// Longest key without an indicator, in bytes with its quotes. YAML's own limit is 1,024 characters.
const MAX_IMPLICIT_KEY_BYTES: usize = 1_000;

/// Indicator of a key of any length.
const EXPLICIT_KEY: &[u8] = b"? ";

/// Escapes every character of JSON text that a YAML parser would change or refuse.
///
/// The result is YAML, and also JSON unless a key is longer than 1,000 bytes. The function is idempotent. The input
/// must be JSON.
pub fn yaml_safe(json: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(json.len());
    let mut string_start = None;
    let mut rest = json;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let Some(start) = string_start else {
            string_start = (byte == b'"').then_some(text.len());
            text.push(byte);
            continue;
        };
        match byte {
            b'\\' => {
                text.push(byte);
                if let Some((&escaped, after)) = rest.split_first() {
                    text.push(escaped);
                    rest = after;
                }
            }
            b'"' => {
                text.push(byte);
                string_start = None;
                if text.len() - start > MAX_IMPLICIT_KEY_BYTES && is_key(rest) {
                    mark_as_key(&mut text, start);
                }
            }
            _ => match special(byte, rest) {
                Some((code, length)) => {
                    text.extend_from_slice(format!("\\u{code:04x}").as_bytes());
                    rest = rest.get(length..).unwrap_or_default();
                }
                None => text.push(byte),
            },
        }
    }
    text
}

/// Returns the code point of a character that needs an escape, and the number of its continuation bytes.
fn special(first: u8, rest: &[u8]) -> Option<(u32, usize)> {
    match (first, rest) {
        (0x7f, _) => Some((0x7f, 0)),
        (0xc2, [second @ 0x80..=0x9f, ..]) => Some((u32::from(*second), 1)),
        (0xe2, [0x80, 0xa8, ..]) => Some((0x2028, 2)),
        (0xe2, [0x80, 0xa9, ..]) => Some((0x2029, 2)),
        (0xef, [0xbb, 0xbf, ..]) => Some((0xfeff, 2)),
        (0xef, [0xbf, 0xbe, ..]) => Some((0xfffe, 2)),
        (0xef, [0xbf, 0xbf, ..]) => Some((0xffff, 2)),
        _ => None,
    }
}

/// Returns whether the text after a string makes it a key.
fn is_key(rest: &[u8]) -> bool {
    rest.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

fn mark_as_key(text: &mut Vec<u8>, start: usize) {
    let is_marked = text.get(..start).is_some_and(|before| before.ends_with(EXPLICIT_KEY));
    if !is_marked {
        text.splice(start..start, EXPLICIT_KEY.iter().copied());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Returns whether go-yaml reads and writes a character unchanged.
    fn is_plain(character: char) -> bool {
        matches!(character, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{fefe}'
            | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..)
    }

    #[test]
    fn every_character_keeps_its_value_and_is_one_that_yaml_takes() {
        let all: String = (char::MIN..=char::MAX).collect();
        for value in [json!({ "text": all }), json!({ all.clone(): 1 }), json!([all])] {
            let safe = String::from_utf8(yaml_safe(&serde_json::to_vec(&value).unwrap())).unwrap();
            let bad: Vec<char> = safe.chars().filter(|character| !is_plain(*character)).collect();
            assert_eq!(bad, [], "{value}");
            let json = safe.replace("{? ", "{");
            assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), value);
        }
    }

    #[test]
    fn long_keys_get_the_indicator_of_yaml_once() {
        let key = |length: usize| "k".repeat(length);
        let value = json!({ "a": { key(2000): key(2000), "\"": 1 }, key(900): [key(2000)] });
        let once = yaml_safe(&serde_json::to_vec(&value).unwrap());
        let text = String::from_utf8(once.clone()).unwrap();
        assert_eq!(text.matches("? ").count(), 1, "{text}");
        assert!(text.contains(&format!("? \"{}\":", key(2000))), "{text}");
        assert_eq!(yaml_safe(&once), once);
    }

    #[test]
    fn plain_text_stays_as_it_is() {
        let text = r#"{"a": "b\\\"c\n\u2028 é 😀", "d": [1, -2.5e3, true, null]}"#;
        assert_eq!(yaml_safe(text.as_bytes()), text.as_bytes());
        for cut_off in ["", "\"", "\"\\", "{\"a\u{85}"] {
            yaml_safe(cut_off.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn any_text_keeps_its_value(texts in proptest::collection::vec(any::<String>(), 0..8)) {
            let map = texts.iter().map(|text| (text.clone(), json!([text]))).collect();
            let value = Value::Object(map);
            let once = yaml_safe(&serde_json::to_vec(&value).unwrap());
            prop_assert_eq!(&yaml_safe(&once), &once);
            prop_assert_eq!(serde_json::from_slice::<Value>(&once).unwrap(), value);
        }
    }
}
