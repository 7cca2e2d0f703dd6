//! Reasons that conditions, events and metrics of all operators share, and reasons that other teams add.

use std::fmt;

mod class;
mod own;
mod table;

pub use class::ErrorClass;
pub use table::{OwnReason, Reason};

impl Reason {
    /// Returns the reason that had this name in an earlier version; `None` if no reason was renamed from it.
    pub(crate) fn from_former_name(word: &str) -> Option<Self> {
        (word == "NotKept").then_some(Self::RollbackUnavailable)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_is_a_word_that_a_condition_takes() {
        let form = regex::Regex::new("^[A-Z][A-Za-z0-9]{2,40}$").unwrap();
        for reason in Reason::all() {
            assert!(form.is_match(reason.as_str()), "{reason}");
        }
    }

    #[test]
    fn reasons_are_distinct() {
        let words: BTreeSet<_> = Reason::all().iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), Reason::all().len());
    }

    #[test]
    fn every_reason_has_a_summary_of_at_most_two_sentences() {
        for reason in Reason::all() {
            let summary = reason.summary();
            assert!(
                summary.ends_with('.') && summary.len() > 20 && summary.len() < 240,
                "{reason}: {summary}"
            );
            assert!(!summary.contains('\n'), "{reason}");
        }
    }

    #[test]
    fn words_are_read_back() {
        for reason in Reason::all() {
            assert_eq!(Reason::from_word(reason.as_str()), Some(*reason));
        }
        assert_eq!(Reason::from_word("SomethingElse"), None);
        assert_eq!(Reason::from_word("NotKept"), Some(Reason::RollbackUnavailable), "of an earlier version");
    }
}
