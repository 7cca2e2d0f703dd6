//! The text of a kubeconfig: its encoding, and markers of documents that hold nothing.

use std::borrow::Cow;

/// Returns text in UTF-8, or in UTF-16 with a byte order mark, as `PowerShell` writes it; `None` for other bytes.
pub fn decode(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let units = |from: fn([u8; 2]) -> u16| {
        let (pairs, rest) = bytes[2..].as_chunks::<2>();
        let units: Vec<u16> = pairs.iter().map(|pair| from(*pair)).collect();
        rest.is_empty().then(|| String::from_utf16(&units).ok().map(Cow::Owned))?
    };
    match bytes {
        [0xff, 0xfe, ..] => units(u16::from_le_bytes),
        [0xfe, 0xff, ..] => units(u16::from_be_bytes),
        _ => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
    }
}

/// `text` without what follows its last line of content: document markers, comments and empty lines, as tools write them
/// that join documents.
pub(super) fn without_empty_documents(text: &str) -> &str {
    let mut rest = text.trim_end();
    while let Some(line) = rest.rsplit(['\n', '\r']).next().filter(|line| is_empty(line)) {
        rest = rest[..rest.len() - line.len()].trim_end();
        if rest.is_empty() {
            return rest;
        }
    }
    rest
}

/// Reports whether a line has no content: it is a comment, or a marker with or without a comment.
fn is_empty(line: &str) -> bool {
    let after = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
    match after {
        Some(after) => {
            after.trim().is_empty() || after.trim_start().starts_with('#') && after.starts_with([' ', '\t'])
        }
        None => line.starts_with('#'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_and_comments_at_the_end_are_left_out() {
        for end in
            ["", "\n", "\n---", "\n---\n", "\n...\n", "\n---\n---\n", "\r\n---\r\n", "\n--- # end\n# x\n"]
        {
            assert_eq!(without_empty_documents(&format!("a: 1{end}")), "a: 1", "{end:?}");
        }
        for whole in ["a: 1\n---\nb: 2", "a: |\n  ---", "a: '\n ---'", "--- a", "---a"] {
            assert_eq!(without_empty_documents(whole), whole);
        }
        assert_eq!(without_empty_documents("---\n"), "");
    }

    #[test]
    fn utf_16_is_read_with_a_byte_order_mark_only() {
        let encoded = |from: fn(u16) -> [u8; 2]| -> Vec<u8> {
            "\u{feff}a: \u{e4}".encode_utf16().flat_map(from).collect()
        };
        for bytes in [encoded(u16::to_le_bytes), encoded(u16::to_be_bytes)] {
            assert_eq!(decode(&bytes).as_deref(), Some("a: \u{e4}"));
        }
        assert_eq!(decode("a: \u{e4}".as_bytes()).as_deref(), Some("a: \u{e4}"));
        for bytes in [&[0xff, 0xfe, 0x80][..], &[0xff, 0xfe, 0x00, 0xd8], &[0x80], &[b'a', 0, b'b', 0, 0xff]]
        {
            assert_eq!(decode(bytes), None, "{bytes:?}");
        }
    }
}
