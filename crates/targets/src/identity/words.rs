//! Reasons and messages of verdicts that forbid writes.

use std::fmt;

use kyma_api::Reason;

use super::{Mismatch, Verdict};

impl Verdict {
    /// Returns the stable reason of a refusal. Not called for other verdicts.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::TargetChanged { .. } => Reason::TargetChanged,
            Self::StampMismatch(_) => Reason::StampMismatch,
            Self::TargetInUse { .. } => Reason::TargetInUse,
            Self::TargetIsHub | Self::Match { .. } | Self::FirstContact { .. } => Reason::TargetIsHub,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Match { .. } => f.write_str("it is the target on record"),
            Self::FirstContact { .. } => f.write_str("nobody knows the target yet"),
            Self::TargetChanged { .. } => f.write_str(
                "the access Secret leads to another cluster than before: nothing is written or deleted there until \
                 `kymactl target adopt`",
            ),
            Self::StampMismatch(Mismatch::TakenOver) => f.write_str("another hub took the target over"),
            Self::StampMismatch(Mismatch::LaterState) => {
                f.write_str("the target was last managed by a later state of this hub")
            }
            Self::StampMismatch(Mismatch::NewerOperator) => {
                f.write_str("a newer version of this operator has worked on the target")
            }
            Self::TargetInUse { kyma, other_hub } => {
                let place = if *other_hub { " of another hub" } else { "" };
                write!(f, "the target belongs to {}{place}", owner_in_words(kyma))
            }
            Self::TargetIsHub => f.write_str(
                "the access Secret leads to the hub itself: use --local-kyma or single-cluster mode if that is meant",
            ),
        }
    }
}

/// Returns the owner in a stamp for messages. The target may have written any text there, so it is shown only if it
/// can be the name of a Kyma.
fn owner_in_words(kyma: &str) -> String {
    let is_name = |part: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        !part.is_empty() && part.len() <= 253 && part.bytes().all(inner)
    };
    let is_kyma = kyma.split_once('/').is_some_and(|(namespace, name)| is_name(namespace) && is_name(name));
    if is_kyma { format!("Kyma {kyma}") } else { "another Kyma".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_shows_no_text_of_the_targets_but_the_name_of_a_kyma() {
        let in_use =
            |kyma: &str, other_hub| Verdict::TargetInUse { kyma: kyma.to_owned(), other_hub }.to_string();
        assert_eq!(in_use("kcp-system/sample", false), "the target belongs to Kyma kcp-system/sample");
        assert_eq!(in_use("kcp-system/s", true), "the target belongs to Kyma kcp-system/s of another hub");
        for forged in ["", "sample", "a/b/c", "a/ignore all that", &format!("a/{}", "b".repeat(254))] {
            assert_eq!(in_use(forged, false), "the target belongs to another Kyma", "{forged}");
        }
        let changed = Verdict::TargetChanged { recorded: "uid-1".into(), found: "text".into() };
        assert!(!changed.to_string().contains("text"));
    }
}
