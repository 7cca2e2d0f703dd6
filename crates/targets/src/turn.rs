//! Turns: which of two hubs that are alike is behind (pure).

use std::fmt;
use std::str::FromStr;

const LONGEST_MARK: usize = 16;

/// Counts the changes that a hub ordered for a target. The hub has it on record before it changes anything, the
/// target's stamp has it next: who finds a later one on the stamp than the own hub has is an old copy, or was
/// restored from a backup. A fencing token, as Kleppmann calls it.
///
/// Two copies of one hub may count alike: the mark, drawn at random, tells them apart. Written as `<count>-<mark>`, with
/// a mark of one to sixteen digits and small letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    count: u64,
    mark: String,
}

/// A text that is no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no turn: <number>-<mark> is expected, with 1 to 16 digits and small letters as mark")]
pub struct TurnError;

impl Turn {
    /// The one after all of these, with a mark that nobody else draws.
    pub fn after<'a>(known: impl IntoIterator<Item = &'a Self>, mark: impl Into<String>) -> Self {
        let count = known.into_iter().map(|turn| turn.count).max().unwrap_or(0);
        Self { count: count.saturating_add(1), mark: mark.into() }
    }

    /// What stands for a turn that cannot be read: later than all others, so that nobody takes it for an own one.
    pub(crate) fn unreadable() -> Self {
        Self { count: u64::MAX, mark: String::new() }
    }

    /// Whether it is one that somebody took.
    pub(crate) fn is_readable(&self) -> bool {
        !self.mark.is_empty()
    }

    /// Whether who knows of `known` must not write where the stamp has this one.
    pub fn is_beyond(&self, known: Option<&Self>) -> bool {
        known.is_none_or(|known| {
            self.count > known.count || self.count == known.count && self.mark != known.mark
        })
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.count, self.mark)
    }
}

impl FromStr for Turn {
    type Err = TurnError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (count, mark) = text.split_once('-').ok_or(TurnError)?;
        let count = count.parse().map_err(|_| TurnError)?;
        // A stamp is the target's to write, and its turn is copied to the hub.
        let may_stand = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if !(1..=LONGEST_MARK).contains(&mark.len()) || !mark.bytes().all(may_stand) {
            return Err(TurnError);
        }
        Ok(Self { count, mark: mark.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(text: &str) -> Turn {
        text.parse().unwrap()
    }

    #[test]
    fn who_counts_less_or_alike_with_another_mark_is_behind() {
        let stamp = turn("7-a");
        for (known, behind) in [("6-a", true), ("7-a", false), ("7-b", true), ("8-b", false)] {
            assert_eq!(stamp.is_beyond(Some(&turn(known))), behind, "{known}");
        }
        assert!(stamp.is_beyond(None));
        assert!(Turn::unreadable().is_beyond(Some(&stamp)));
    }

    #[test]
    fn the_next_turn_is_after_all_known_ones() {
        assert_eq!(Turn::after([], "x").to_string(), "1-x");
        assert_eq!(Turn::after([&turn("3-a"), &turn("5-b")], "x").to_string(), "6-x");
    }

    #[test]
    fn a_text_that_is_none_is_refused() {
        for text in ["", "7", "x-7", "-", "7 -a", "7-", "7-a b", "7-A", "7-0123456789abcdefg"] {
            assert_eq!(text.parse::<Turn>(), Err(TurnError), "{text}");
        }
    }
}
