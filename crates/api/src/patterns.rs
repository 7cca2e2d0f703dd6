//! Patterns of KLM's CRDs, and the same rules as functions for what arrives from places that no schema of ours
//! guards: a target's Kyma, a file.

use semver::Version;

/// A channel: lower-case letters. Length 3 to 32 is a rule of its own in the schemas.
pub const CHANNEL: &str = "^[a-z]+$";
/// A ModuleTemplate's own channel: as [`CHANNEL`], or empty.
pub const TEMPLATE_CHANNEL: &str = "^$|^[a-z]{3,}$";
/// A module's name: words of three letters or more, joined by dashes; may be empty.
pub const MODULE_NAME: &str = "^([a-z]{3,}(-[a-z]{3,})*)?$";
/// A module's version: semantic, a pre-release of one part that starts with a letter or dash, no build; may be empty.
pub const VERSION: &str = r"^((0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[a-zA-Z-][0-9a-zA-Z-]*)?)?$";
/// As [`VERSION`], but not empty.
pub const PINNED_VERSION: &str = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[a-zA-Z-][0-9a-zA-Z-]*)?$";
/// A mandatory module's version: any semantic version.
pub const SEMVER: &str = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$";
/// An OCM component name: a domain, then path segments.
pub const OCM_COMPONENT: &str =
    "^[a-z][-a-z0-9]*([.][a-z][-a-z0-9]*)*[.][a-z]{2,}(/[a-z][-a-z0-9_]*([.][a-z][-a-z0-9_]*)*)+$";
/// Group of a CRD: a domain of two labels or more.
pub const CRD_GROUP: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$";
/// Plural of a CRD's kind.
pub const RESOURCE: &str = "^[a-z]([-a-z0-9]*[a-z0-9])?$";
/// A content digest.
pub const DIGEST: &str = "^sha256:[0-9a-f]{64}$";

/// Most characters of a channel or of a ModuleTemplate's version.
const SHORT: usize = 32;
/// Most characters of a module's name.
const NAME: usize = 64;

/// Whether `text` is a channel that a Kyma may name: [`CHANNEL`], 3 to 32 characters.
pub fn is_channel(text: &str) -> bool {
    (3..=SHORT).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase())
}

/// Whether `text` is a version that a Kyma may pin: [`PINNED_VERSION`], at most 32 characters.
pub fn is_version(text: &str) -> bool {
    text.len() <= SHORT
        && Version::parse(text).is_ok_and(|version| {
            let pre = version.pre.as_str();
            version.build.is_empty() && !pre.contains('.') && !pre.starts_with(|c: char| c.is_ascii_digit())
        })
}

/// Whether `text` is a module's name: [`MODULE_NAME`], not empty, at most 64 characters.
pub fn is_module_name(text: &str) -> bool {
    text.len() <= NAME
        && text.split('-').all(|word| word.len() >= 3 && word.bytes().all(|b| b.is_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Regex::new(pattern).unwrap().is_match(text)
    }

    proptest! {
        #[test]
        fn channels_agree_with_the_pattern(text in "[a-cA1-]{0,34}") {
            prop_assert_eq!(is_channel(&text), matches(CHANNEL, &text) && (3..=32).contains(&text.len()));
        }

        #[test]
        fn versions_agree_with_the_pattern(text in r"v?[0-2]{0,2}\.[0-2]{1,2}\.[0-2]{1,2}(-[a-b0-1.-]{0,4})?(\+a)?") {
            prop_assert_eq!(is_version(&text), matches(PINNED_VERSION, &text));
        }

        #[test]
        fn module_names_agree_with_the_pattern(text in "[ab1-]{0,12}") {
            prop_assert_eq!(is_module_name(&text), !text.is_empty() && matches(MODULE_NAME, &text));
        }
    }
}
