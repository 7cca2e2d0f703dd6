//! Validators of content, so that unchanged content is not sent again (RFC 9110, 13).

use std::{num::NonZeroUsize, time::Duration};

use jiff::{Timestamp, fmt::rfc2822};
use lru::LruCache;
use parking_lot::Mutex;
use reqwest::header::{
    DATE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};

use crate::source::credentials::Fingerprint;
use crate::storage::cache::Origin;
use crate::storage::digest::Digest;

const MAX_VALIDATORS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1_023);
/// Maximum length of a validator that is kept.
const MAX_VALIDATOR_BYTES: usize = 256;
/// Minimum age of content whose date identifies it (RFC 9110, 8.8.2.2).
const MIN_DATE_AGE: Duration = Duration::from_mins(1);

/// The last validator of each address. Limited; the least recently used are evicted first.
pub(super) struct Validators(Mutex<LruCache<Origin, Validator>>);

/// Validators of an answer, and the credentials that received it.
struct Validator {
    value: ValidatorValue,
    digest: Digest,
    who: Fingerprint,
}

enum ValidatorValue {
    /// Identifies one representation, whatever the credentials.
    Strong(HeaderValue),
    Weak(HeaderValue),
    Date(HeaderValue),
}

/// A request header that the server answers with 304 if these credentials would still get the content of this digest.
/// A server that would refuse the credentials must refuse this request too (RFC 9110, 13.2.1).
pub(super) struct Condition {
    pub(super) header: (HeaderName, HeaderValue),
    pub(super) digest: Digest,
}

impl Validators {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(MAX_VALIDATORS)))
    }

    /// Stores the validator of an answer.
    pub(super) fn remember(&self, origin: Origin, who: Fingerprint, headers: &HeaderMap, digest: Digest) {
        let mut held = self.0.lock();
        match ValidatorValue::read(headers) {
            Some(value) => held.put(origin, Validator { value, digest, who }),
            None => held.pop(&origin),
        };
    }

    /// Drops the validators of an address.
    pub(super) fn forget(&self, origin: Origin) {
        self.0.lock().pop(&origin);
    }

    /// Returns the condition for a request with these credentials. A date or a weak tag may belong to two
    /// representations, so only the credentials that received it may use it.
    pub(super) fn condition(&self, origin: Origin, who: Fingerprint) -> Option<Condition> {
        let mut held = self.0.lock();
        let Validator { value, digest, who: given } = held.get(&origin)?;
        let header = match value {
            ValidatorValue::Strong(tag) => (IF_NONE_MATCH, tag.clone()),
            _ if *given != who => return None,
            ValidatorValue::Weak(tag) => (IF_NONE_MATCH, tag.clone()),
            ValidatorValue::Date(date) => (IF_MODIFIED_SINCE, date.clone()),
        };
        Some(Condition { header, digest: *digest })
    }
}

impl ValidatorValue {
    fn read(headers: &HeaderMap) -> Option<Self> {
        let short = |name| {
            headers.get(name).filter(|value: &&HeaderValue| value.len() <= MAX_VALIDATOR_BYTES).cloned()
        };
        if let Some(tag) = headers.get(ETAG) {
            let weak = tag.as_bytes().starts_with(b"W/");
            return short(ETAG).map(if weak { Self::Weak } else { Self::Strong });
        }
        let time = |name| {
            let text = headers.get(name)?.to_str().ok()?;
            rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
        };
        let (modified, now): (Timestamp, Timestamp) = (time(LAST_MODIFIED)?, time(DATE)?);
        (now.as_second() - modified.as_second() >= i64::try_from(MIN_DATE_AGE.as_secs()).ok()?)
            .then_some(())?;
        short(LAST_MODIFIED).map(Self::Date)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Credentials;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    /// Returns the conditions of the credentials that received this answer, and of others.
    fn asked(pairs: &[(HeaderName, &'static str)]) -> [Option<(HeaderName, HeaderValue)>; 2] {
        let who = ["one", "two"].map(|user| Credentials::basic("a", user, "b").fingerprint("a", ""));
        let (validators, origin) = (Validators::new(), Origin::of("a"));
        validators.remember(origin, who[0], &headers(&[(ETAG, "\"before\"")]), Digest::of(b"before"));
        validators.remember(origin, who[0], &headers(pairs), Digest::of(b"now"));
        who.map(|who| {
            let condition = validators.condition(origin, who)?;
            assert_eq!(condition.digest, Digest::of(b"now"));
            Some(condition.header)
        })
    }

    #[test]
    fn only_a_strong_tag_is_for_everybody() {
        let value = HeaderValue::from_static;
        let strong = Some((IF_NONE_MATCH, value("\"a\"")));
        assert_eq!(asked(&[(ETAG, "\"a\"")]), [strong.clone(), strong]);
        let weak = Some((IF_NONE_MATCH, value("W/\"a\"")));
        assert_eq!(asked(&[(ETAG, "W/\"a\"")]), [weak, None]);
        assert_eq!(asked(&[]), [None, None]);
    }

    #[test]
    fn last_modified_is_used_only_if_at_least_a_minute_before_date() {
        let modified = "Tue, 24 Nov 2020 08:00:00 GMT";
        let at = |date| asked(&[(LAST_MODIFIED, modified), (DATE, date)]);
        let dated = Some((IF_MODIFIED_SINCE, HeaderValue::from_static(modified)));
        assert_eq!(at("Tue, 24 Nov 2020 08:01:00 GMT"), [dated, None]);
        assert_eq!(at("Tue, 24 Nov 2020 08:00:59 GMT"), [None, None]);
        assert_eq!(at("now"), [None, None]);
        assert_eq!(asked(&[(LAST_MODIFIED, modified)]), [None, None]);
    }
}
