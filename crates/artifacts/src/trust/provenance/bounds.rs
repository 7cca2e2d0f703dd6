//! Limits on OpenPGP content before it is parsed: the parser recurses for each signature in another one, and searches
//! a text again for each of its lines. Pure.

use std::io::Read as _;

use pgp::armor::Dearmor;

/// Maximum depth of nested signatures. A signature that binds a subkey for signing contains one; more is not in use.
const MAX_DEPTH: usize = 4;
/// Maximum number of lines of a provenance.
const MAX_LINES: usize = 4096;
/// Maximum size of its armoured signatures, in bytes.
const MAX_ARMOURED_BYTES: usize = 16 << 10;
const TEXT: &str = "-----BEGIN PGP SIGNED MESSAGE-----";
const SIGNATURE: &str = "-----BEGIN PGP SIGNATURE-----";
/// Tag of a signature packet.
const PACKET: u8 = 2;
/// Type of the subpacket with an embedded signature.
const EMBEDDED: u8 = 32;

/// Reports whether a clear-signed text can be parsed at little cost.
pub(super) fn allow_text(text: &str) -> bool {
    // The parser ends the text at the first such line; lines of the text itself are escaped.
    let armoured = text.find("\n-----").map_or("", |end| &text[end + 1..]);
    text.starts_with(TEXT)
        && armoured.starts_with(SIGNATURE)
        && armoured.len() <= MAX_ARMOURED_BYTES
        && text.lines().count() <= MAX_LINES
        && allow_armoured(armoured)
}

/// Reports whether the packets of an armoured block can be parsed at little cost.
pub(super) fn allow_armoured(block: &str) -> bool {
    let mut packets = Vec::new();
    Dearmor::new(block.as_bytes()).read_to_end(&mut packets).is_ok() && allow(&packets)
}

/// Reports whether no signature among these packets contains others too deep. If a length exceeds the end, the
/// remaining bytes count, as in the parser.
pub(super) fn allow(mut packets: &[u8]) -> bool {
    while let Some((head, rest)) = packets.split_first() {
        let (tag, sized) = match head >> 6 {
            0b11 => (head & 0x3f, new_length(rest)),
            0b10 => ((head >> 2) & 0x0f, old_length(head & 3, rest)),
            // The parser stops here.
            _ => return true,
        };
        let Some((length, rest)) = sized else { return false };
        let (body, rest) = rest.split_at(length.min(rest.len()));
        if tag == PACKET && !is_shallow(body, MAX_DEPTH) {
            return false;
        }
        packets = rest;
    }
    true
}

/// Reports whether signatures are nested in this one at most to this depth.
fn is_shallow(signature: &[u8], depth: usize) -> bool {
    let digits = match signature.first() {
        Some(4) => 2,
        Some(6) => 4,
        // Other versions contain none.
        _ => return true,
    };
    // After version, type and two algorithms come the subpackets: signed ones, then unsigned ones.
    let (signed, rest) = prefixed(signature.get(4..).unwrap_or_default(), digits);
    let (unsigned, _) = prefixed(rest, digits);
    let mut embedded = embedded(signed).chain(embedded(unsigned));
    embedded.all(|one| depth > 0 && is_shallow(one, depth - 1))
}

/// Returns the signatures in the subpackets of a signature.
fn embedded(mut said: &[u8]) -> impl Iterator<Item = &[u8]> {
    let all = std::iter::from_fn(move || {
        let (length, rest) = length(said)?;
        let (one, rest) = rest.split_at(length.min(rest.len()));
        said = rest;
        one.split_first()
    });
    // The highest bit marks a critical subpacket.
    all.filter(|(kind, _)| *kind & 0x7f == EMBEDDED).map(|(_, signature)| signature)
}

/// Splits bytes after a field with a length of this number of bytes; returns the field and the rest.
fn prefixed(bytes: &[u8], digits: usize) -> (&[u8], &[u8]) {
    let (length, rest) = bytes.split_at_checked(digits).unwrap_or_default();
    rest.split_at(number(length).min(rest.len()))
}

/// Returns the length of a packet in the old format, and the bytes after it.
fn old_length(kind: u8, bytes: &[u8]) -> Option<(usize, &[u8])> {
    let digits = match kind {
        0 => 1,
        1 => 2,
        2 => 4,
        _ => return Some((bytes.len(), bytes)),
    };
    let (length, rest) = bytes.split_at_checked(digits)?;
    Some((number(length), rest))
}

/// Returns the length of a packet in the new format, and the bytes after it; no packet of keys or signatures is
/// partial.
fn new_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    length(bytes).filter(|_| !matches!(bytes.first(), Some(224..=254)))
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [one @ 0..192, rest @ ..] => Some((usize::from(*one), rest)),
        [255, rest @ ..] => rest.split_at_checked(4).map(|(length, rest)| (number(length), rest)),
        [one, two, rest @ ..] => Some(((usize::from(*one) - 192) * 256 + 192 + usize::from(*two), rest)),
        _ => None,
    }
}

fn number(digits: &[u8]) -> usize {
    digits.iter().fold(0, |number, digit| (number << 8) | usize::from(*digit))
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::*;

    /// Returns the body of a signature with others nested to this depth, in signed or unsigned subpackets.
    fn nested(version: u8, depth: usize, is_signed: bool) -> Vec<u8> {
        let mut said = Vec::new();
        if depth > 0 {
            let inner = nested(version, depth - 1, is_signed);
            let length = u32::try_from(inner.len() + 1).unwrap().to_be_bytes();
            said = [&[255][..], &length, &[EMBEDDED | 0x80], &inner].concat();
        }
        let area = |said: &[u8]| match version {
            4 => [&u16::try_from(said.len()).unwrap().to_be_bytes()[..], said].concat(),
            _ => [&u32::try_from(said.len()).unwrap().to_be_bytes()[..], said].concat(),
        };
        let (first, second) = if is_signed { (&*said, &[][..]) } else { (&[][..], &*said) };
        [&[version, 0, 1, 8][..], &area(first), &area(second), &[0, 0]].concat()
    }

    fn packet(body: &[u8]) -> Vec<u8> {
        [&[0xc2, 255][..], &u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat()
    }

    fn old_packet(body: &[u8]) -> Vec<u8> {
        [&[0x8a][..], &u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat()
    }

    fn text(body: &str, packets: &[u8]) -> String {
        let armoured = STANDARD.encode(packets);
        format!("{TEXT}\nHash: SHA256\n\n{body}\n{SIGNATURE}\n\n{armoured}\n-----END PGP SIGNATURE-----\n")
    }

    #[test]
    fn signatures_inside_of_one_another_have_a_bound() {
        for (version, is_signed) in [(4, true), (4, false), (6, true), (6, false)] {
            let of = |depth| nested(version, depth, is_signed);
            assert!(allow(&packet(&of(MAX_DEPTH))) && allow(&old_packet(&of(MAX_DEPTH))));
            for depth in [MAX_DEPTH + 1, 300] {
                assert!(!allow(&packet(&of(depth))), "{version}, {is_signed}, {depth}");
                assert!(!allow(&old_packet(&of(depth))));
                assert!(!allow(&[packet(&of(0)), packet(&of(depth))].concat()), "behind a good one");
                // If a length exceeds the end, the parser reads the remaining bytes.
                let whole = packet(&of(depth));
                assert!(!allow(&whole[..whole.len() - 2]));
                let endless = [&[0x8b][..], &of(depth)].concat();
                assert!(!allow(&endless), "without a length");
            }
        }
        assert!(allow(b"") && allow(&packet(&[3, 5])) && allow(&packet(&[])) && allow(b"no packet"));
        assert!(!allow(&[0xc2, 230, 4]) && !allow(&[0xc2]), "in parts, or without a length");
    }

    #[test]
    fn a_text_is_parsed_only_with_few_lines_and_small_signatures() {
        let good = packet(&nested(4, 0, true));
        assert!(allow_text(&text("name: demo", &good)));
        assert!(allow_text(&text("name: demo", &good).replace('\n', "\r\n")));
        assert!(!allow_text(&text(&"\n".repeat(MAX_LINES), &good)));
        assert!(!allow_text(&text("name: demo", &vec![0xc0; MAX_ARMOURED_BYTES])));
        assert!(!allow_text(&text("name: demo", &packet(&nested(4, 300, true)))));
        assert!(!allow_text(&text("-----BEGIN PGP MESSAGE-----\n", &good)));
        assert!(!allow_text(&format!("a\n{}", text("name: demo", &good))));
        assert!(!allow_text("") && !allow_text(TEXT) && !allow_text(&format!("{TEXT}\n\na\n-----")));
    }
}
