//! Outcome of the comparison of a record with a target, with reasons and messages of refusals. Pure.

use std::fmt;

use kyma_api::Reason;

use super::stamp::Stamp;
use super::target_record::TargetRecord;

/// Outcome of [`compare`](super::compare). Only `Match` and `FirstContact` permit writes to the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The target is the recorded one. `write`: the stamp to write before any other change, if the present one is
    /// missing or older.
    Match {
        /// New content of the stamp, if it has to change.
        write: Option<Stamp>,
    },
    /// The hub has no record of this target yet. Write `record` to the hub, then `write` to the target.
    FirstContact {
        /// Record to write to the hub.
        record: TargetRecord,
        /// The stamp for the target; `None` for a component without a Kyma.
        write: Option<Stamp>,
    },
    /// The access leads to another cluster than before.
    TargetChanged {
        /// The uid on record.
        recorded: String,
        /// The uid found.
        found: String,
    },
    /// The stamp contradicts the hub's record.
    StampMismatch(Mismatch),
    /// The target belongs to another Kyma or hub already.
    TargetInUse {
        /// Namespace and name of the other Kyma as `namespace/name`; on another hub if `other_hub`.
        kyma: String,
        /// Whether that Kyma lives on another hub.
        other_hub: bool,
    },
    /// The access leads to the hub itself.
    TargetIsHub,
}

/// Conflict between a stamp and the record on the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// Another hub took the target over after this hub's last contact.
    TakenOver,
    /// The stamp has a later epoch or fencing generation: this hub is an older copy, or was restored from a backup.
    LaterState,
    /// A newer version of this operator has worked on the target.
    NewerOperator,
}

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
            Self::FirstContact { .. } => f.write_str("the target is not recorded yet"),
            Self::TargetChanged { .. } => f.write_str(
                "the access Secret leads to another cluster than before: nothing is written or deleted \
                 there until `kymactl target adopt` confirms it",
            ),
            Self::StampMismatch(Mismatch::TakenOver) => f.write_str("another hub adopted the target"),
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
                "the access Secret leads to the hub itself: to manage the hub, use --local-kyma or single-cluster mode",
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
    fn refusal_shows_no_text_of_the_target_except_a_kyma_name() {
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
