//! Reasons of single reconcilers.

use super::class::ErrorClass;
use super::table::{OwnReason, Reason};

/// Minimum and maximum length of a reason in conditions and alerts.
const REASON_LENGTHS: (usize, usize) = (3, 41);

impl Reason {
    /// Returns a reason of a single reconciler: its word, the class of the failure (`None` without a failure), and one
    /// line with the meaning and what to do. In a constant an invalid word is a compile error:
    ///
    /// ```
    /// use kyma_api::{ErrorClass, Reason};
    ///
    /// const LICENCE_EXPIRED: Reason =
    ///     Reason::own("LicenceExpired", Some(ErrorClass::Blocked), "The licence has expired; renew it.");
    /// assert_eq!(LICENCE_EXPIRED.as_str(), "LicenceExpired");
    /// ```
    ///
    /// ```compile_fail
    /// use kyma_api::Reason;
    ///
    /// const WRONG: Reason = Reason::own("licence expired", None, "Not CamelCase.");
    /// assert_eq!(WRONG.as_str(), "");
    /// ```
    ///
    /// # Panics
    /// The word is not CamelCase of 3 to 41 letters and digits, or [`Reason::all`] has it already.
    pub const fn own(word: &'static str, class: Option<ErrorClass>, summary: &'static str) -> Self {
        assert!(is_word(word.as_bytes()), "a reason is CamelCase: 3 to 41 letters and digits");
        assert!(!is_common(word.as_bytes()), "this reason is in the common list: use that one");
        Self::Own(OwnReason { word, class, summary })
    }
}

const fn is_word(word: &[u8]) -> bool {
    if word.len() < REASON_LENGTHS.0 || word.len() > REASON_LENGTHS.1 || !word[0].is_ascii_uppercase() {
        return false;
    }
    let mut at = 1;
    while at < word.len() {
        if !word[at].is_ascii_alphanumeric() {
            return false;
        }
        at += 1;
    }
    true
}

const fn is_common(word: &[u8]) -> bool {
    let common = Reason::all();
    let mut at = 0;
    while at < common.len() {
        if is_same(common[at].as_str().as_bytes(), word) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_reason_is_used_like_any_other() {
        let own = Reason::own("LicenceExpired", Some(ErrorClass::Blocked), "Renew it.");
        assert_eq!((own.as_str(), own.class()), ("LicenceExpired", Some(ErrorClass::Blocked)));
        assert_eq!((own.to_string().as_str(), own.summary()), ("LicenceExpired", "Renew it."));
        assert_eq!(own, Reason::own("LicenceExpired", Some(ErrorClass::Blocked), "Renew it."));
        assert!(!Reason::all().contains(&own));
        assert_eq!(Reason::from_word("LicenceExpired"), None, "only its own reconciler knows it");
    }

    #[test]
    fn words_are_camel_case_and_not_taken() {
        for word in ["LicenceExpired", "Abc", "Http2Missing"] {
            assert!(is_word(word.as_bytes()) && !is_common(word.as_bytes()), "{word}");
        }
        for word in ["", "Ab", "licence", "Licence expired", "Licence-Expired", "2Late", "Übel"] {
            assert!(!is_word(word.as_bytes()), "{word}");
        }
        assert!(!is_word(&[b'A'; 42]));
        for reason in Reason::all() {
            assert!(is_word(reason.as_str().as_bytes()) && is_common(reason.as_str().as_bytes()), "{reason}");
        }
    }
}
