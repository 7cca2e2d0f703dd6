//! Fencing generations: fencing tokens that reveal an outdated copy of a hub. Pure.

use std::fmt;
use std::str::FromStr;

const MAX_MARK_BYTES: usize = 16;

/// Number of a change that a hub ordered for a target: a fencing token. The hub records it before the change, then it
/// is written to the target's stamp. A hub that finds a later fencing generation on the stamp than in its own record is
/// an old copy, or was restored from a backup.
///
/// Two copies of one hub may reach the same count, so a random mark tells them apart. Written as `<count>-<mark>`,
/// with a mark of 1 to 16 digits and lowercase letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencingGeneration {
    count: u64,
    mark: String,
}

/// The error for a text that is not a fencing generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a fencing generation: <number>-<suffix> is expected, with 1 to 16 digits and lower-case letters as suffix"
)]
pub struct FencingGenerationError;

impl FencingGeneration {
    /// Returns the fencing generation that follows all `known` ones, with a random mark that the caller draws.
    pub fn after<'a>(known: impl IntoIterator<Item = &'a Self>, mark: impl Into<String>) -> Self {
        let count = known.into_iter().map(|generation| generation.count).max().unwrap_or(0);
        Self { count: count.saturating_add(1), mark: mark.into() }
    }

    /// Returns the substitute for a fencing generation that cannot be parsed: later than all others, so that no hub
    /// takes it for its own.
    pub(crate) fn unreadable() -> Self {
        Self { count: u64::MAX, mark: String::new() }
    }

    /// Reports whether it was parsed or drawn, as opposed to `FencingGeneration::unreadable`.
    pub(crate) fn is_readable(&self) -> bool {
        !self.mark.is_empty()
    }

    /// Reports whether a hub whose record holds `known` must not write to a target whose stamp holds this one.
    pub fn is_beyond(&self, known: Option<&Self>) -> bool {
        known.is_none_or(|known| {
            self.count > known.count || self.count == known.count && self.mark != known.mark
        })
    }
}

impl fmt::Display for FencingGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.count, self.mark)
    }
}

impl FromStr for FencingGeneration {
    type Err = FencingGenerationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (count, mark) = text.split_once('-').ok_or(FencingGenerationError)?;
        let count = count.parse().map_err(|_| FencingGenerationError)?;
        // The target may have written any text to its stamp, and the fencing generation is copied to the hub.
        let may_stand = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if !(1..=MAX_MARK_BYTES).contains(&mark.len()) || !mark.bytes().all(may_stand) {
            return Err(FencingGenerationError);
        }
        Ok(Self { count, mark: mark.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(text: &str) -> FencingGeneration {
        text.parse().unwrap()
    }

    #[test]
    fn who_counts_less_or_alike_with_another_mark_is_behind() {
        let stamp = generation("7-a");
        for (known, behind) in [("6-a", true), ("7-a", false), ("7-b", true), ("8-b", false)] {
            assert_eq!(stamp.is_beyond(Some(&generation(known))), behind, "{known}");
        }
        assert!(stamp.is_beyond(None));
        assert!(FencingGeneration::unreadable().is_beyond(Some(&stamp)));
    }

    #[test]
    fn the_next_generation_is_after_all_known_ones() {
        assert_eq!(FencingGeneration::after([], "x").to_string(), "1-x");
        assert_eq!(
            FencingGeneration::after([&generation("3-a"), &generation("5-b")], "x").to_string(),
            "6-x"
        );
    }

    #[test]
    fn a_text_that_is_none_is_refused() {
        for text in ["", "7", "x-7", "-", "7 -a", "7-", "7-a b", "7-A", "7-0123456789abcdefg"] {
            assert_eq!(text.parse::<FencingGeneration>(), Err(FencingGenerationError), "{text}");
        }
    }
}
