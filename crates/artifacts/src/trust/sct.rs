//! Signed certificate timestamps (RFC 6962) in certificates.

use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use super::root::{Authority, TrustRoot};
use crate::storage::digest::Digest;

/// Extension with the timestamps.
const TIMESTAMPS_OID: &str = "1.3.6.1.4.1.11129.2.4.2";
/// The same OID as encoded in a certificate.
const TIMESTAMPS_DER: &[u8] = &[0x06, 0x0a, 0x2b, 6, 1, 4, 1, 0xd6, 0x79, 2, 4, 2];

const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
/// Tag of the extensions in the body of a certificate.
const EXTENSIONS: u8 = 0xa3;

/// A timestamp: the promise of a log to include the certificate.
#[derive(Debug, PartialEq, Eq)]
struct Timestamp<'a> {
    log: &'a [u8],
    /// Time in milliseconds, as bytes.
    time: [u8; 8],
    extensions: &'a [u8],
    signature: &'a [u8],
}

/// Reports whether a certificate log of the trust root signed a timestamp for a certificate of this authority.
pub(super) fn is_logged(certificate: &X509Certificate<'_>, authority: &Authority, root: &TrustRoot) -> bool {
    let Some((timestamps, body)) = timestamps(certificate) else { return false };
    let issuers = issuers(certificate, authority);
    timestamps.iter().any(|timestamp| {
        let seconds = i64::try_from(u64::from_be_bytes(timestamp.time) / 1000).unwrap_or(i64::MAX);
        root.certificate_log(timestamp.log, seconds).is_some_and(|log| {
            let signs = |issuer| log.key.has_signed(&timestamp.signed(issuer, &body), timestamp.signature);
            issuers.iter().copied().any(signs)
        })
    })
}

/// Returns the digests of the keys that may have issued the certificate.
fn issuers(certificate: &X509Certificate<'_>, authority: &Authority) -> Vec<Digest> {
    let all = authority.certificates.iter().filter_map(|der| Some(X509Certificate::from_der(der).ok()?.1));
    let named = all.filter(|one| one.subject().as_raw() == certificate.issuer().as_raw());
    named.map(|one| Digest::of(one.public_key().raw)).collect()
}

/// Returns the timestamps in a certificate, and its body without them.
fn timestamps<'a>(certificate: &X509Certificate<'a>) -> Option<(Vec<Timestamp<'a>>, Vec<u8>)> {
    let extension = certificate.extensions().iter().find(|one| one.oid.to_id_string() == TIMESTAMPS_OID)?;
    let list =
        element(extension.value).filter(|list| list.tag == OCTET_STRING && list.rest.is_empty())?.content;
    Some((parse(list)?, without_timestamps(certificate.tbs_certificate.as_ref())?))
}

fn parse(list: &[u8]) -> Option<Vec<Timestamp<'_>>> {
    let (mut list, rest) = prefixed(list)?;
    let mut timestamps = Vec::new();
    while !list.is_empty() {
        let (one, more) = prefixed(list)?;
        list = more;
        let (version, one) = one.split_first()?;
        let (log, one) = one.split_at_checked(32)?;
        let (time, one) = one.split_first_chunk()?;
        let (extensions, one) = prefixed(one)?;
        let (_algorithm, one) = one.split_at_checked(2)?;
        let (signature, end) = prefixed(one)?;
        if *version == 0 && end.is_empty() {
            timestamps.push(Timestamp { log, time: *time, extensions, signature });
        }
    }
    rest.is_empty().then_some(timestamps)
}

/// Splits bytes after a field with a length of two bytes; returns the field and the rest.
fn prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

impl Timestamp<'_> {
    /// Returns the message that the log signed, for a certificate by this issuer.
    fn signed(&self, issuer: Digest, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
        let extensions = u16::try_from(self.extensions.len()).unwrap_or(u16::MAX).to_be_bytes();
        // Version and type of the structure, the time, and the type of entry: a certificate without timestamps.
        let parts: [&[u8]; 8] =
            [&[0, 0], &self.time, &[0, 1], issuer.bytes(), &length[1..], body, &extensions, self.extensions];
        parts.concat()
    }
}

/// Returns the body of a certificate without the extension with timestamps.
fn without_timestamps(body: &[u8]) -> Option<Vec<u8>> {
    let body = element(body).filter(|body| body.tag == SEQUENCE)?;
    let mut fields = Vec::new();
    let mut left = body.content;
    while !left.is_empty() {
        let field = element(left)?;
        left = field.rest;
        if field.tag != EXTENSIONS {
            fields.extend_from_slice(field.whole);
            continue;
        }
        let list = element(field.content).filter(|list| list.tag == SEQUENCE && list.rest.is_empty())?;
        let (mut kept, mut left) = (Vec::new(), list.content);
        while !left.is_empty() {
            let extension = element(left)?;
            left = extension.rest;
            if !extension.content.starts_with(TIMESTAMPS_DER) {
                kept.extend_from_slice(extension.whole);
            }
        }
        fields.extend(encoded(EXTENSIONS, &encoded(SEQUENCE, &kept)));
    }
    Some(encoded(SEQUENCE, &fields))
}

/// An element in DER.
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
    /// The element with tag and length.
    whole: &'a [u8],
    /// Bytes after the element.
    pub(super) rest: &'a [u8],
}

/// Returns the first element of these bytes; `None` for a length of more than three bytes, which no certificate has.
pub(super) fn element(bytes: &[u8]) -> Option<Element<'_>> {
    let (tag, after) = bytes.split_first()?;
    let (first, after) = after.split_first()?;
    let (length, after) = if *first < 0x80 {
        (usize::from(*first), after)
    } else {
        let (digits, after) = after.split_at_checked(usize::from(first & 0x7f))?;
        if digits.is_empty() || digits.len() > 3 {
            return None;
        }
        (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), after)
    };
    let (content, rest) = after.split_at_checked(length)?;
    let (whole, _) = bytes.split_at_checked(bytes.len() - rest.len())?;
    Some(Element { tag: *tag, content, whole, rest })
}

/// Encodes an element in DER.
fn encoded(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let digits: Vec<u8> = length.into_iter().skip_while(|digit| *digit == 0).collect();
    let mut whole = vec![tag];
    match digits[..] {
        [] => whole.push(0),
        [one] if one < 0x80 => whole.push(one),
        _ => {
            whole.push(0x80 | u8::try_from(digits.len()).unwrap_or_default());
            whole.extend(digits);
        }
    }
    whole.extend_from_slice(content);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_as_they_are_written() {
        for size in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let content = vec![7; size];
            let whole = [encoded(SEQUENCE, &content), vec![1, 2]].concat();
            let read = element(&whole).unwrap();
            assert_eq!((read.tag, read.content, read.rest), (SEQUENCE, &*content, &[1, 2][..]));
        }
        for broken in
            [&[][..], &[0x30], &[0x30, 2, 0], &[0x30, 0x80], &[0x30, 0x84, 0, 0, 0, 0], &[0x30, 0x82, 1]]
        {
            assert!(element(broken).is_none(), "{broken:?}");
        }
    }

    #[test]
    fn a_list_of_timestamps_that_does_not_fit_is_none() {
        let one = [&[0][..], &[5; 32], &[0, 0, 0, 0, 0, 0, 0, 9], &[0, 0], &[4, 3], &[0, 2, 8, 8]].concat();
        let list = |one: &[u8]| {
            let inner = [&u16::try_from(one.len()).unwrap().to_be_bytes()[..], one].concat();
            [&u16::try_from(inner.len()).unwrap().to_be_bytes()[..], &inner].concat()
        };
        let whole = list(&one);
        let read = parse(&whole).unwrap();
        assert_eq!((read.len(), read[0].log, read[0].signature), (1, &[5; 32][..], &[8, 8][..]));
        assert!(parse(&list(&one[..one.len() - 1])).is_none());
        assert!(parse(&[list(&one), vec![0]].concat()).is_none());
        assert!(parse(&[0, 9, 0]).is_none());
    }
}
