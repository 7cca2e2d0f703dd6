//! Patterns of KLM's CRDs, and the same rules as functions for input that no schema of this project validates: a
//! target's Kyma, a file.

use semver::Version;

/// A channel: lower-case letters. The schemas have the length of 3 to 32 as a separate rule.
pub const CHANNEL: &str = "^[a-z]+$";
/// Channel of a ModuleTemplate: as [`CHANNEL`], or empty.
pub const TEMPLATE_CHANNEL: &str = "^$|^[a-z]{3,}$";
/// Name of a module: words of three letters or more, joined by dashes; may be empty.
pub const MODULE_NAME: &str = "^([a-z]{3,}(-[a-z]{3,})*)?$";
/// Name of the module that a ModuleConfig configures, or [`ALL_MODULES`].
pub const CONFIGURED_MODULE: &str = "^(\\*|[a-z]{3,}(-[a-z]{3,})*)$";
/// Value of `spec.module` in a ModuleConfig for all modules.
pub const ALL_MODULES: &str = "*";
/// Version of a module: semantic, a pre-release of one part that starts with a letter or dash, no build; may be
/// empty.
pub const VERSION: &str = r"^((0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[a-zA-Z-][0-9a-zA-Z-]*)?)?$";
/// As [`VERSION`], but not empty.
pub const PINNED_VERSION: &str = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[a-zA-Z-][0-9a-zA-Z-]*)?$";
/// Version of a mandatory module: any semantic version.
pub const SEMVER: &str = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$";
/// An OCM component name: a domain, then path segments.
pub const OCM_COMPONENT: &str =
    "^[a-z][-a-z0-9]*([.][a-z][-a-z0-9]*)*[.][a-z]{2,}(/[a-z][-a-z0-9_]*([.][a-z][-a-z0-9_]*)*)+$";
/// Group of a CRD: a domain of two labels or more.
pub const CRD_GROUP: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$";
/// Plural name of a CRD's kind.
pub const RESOURCE: &str = "^[a-z]([-a-z0-9]*[a-z0-9])?$";
/// A content digest.
pub const DIGEST: &str = "^sha256:[0-9a-f]{64}$";

/// Key of a label or annotation: a name of at most 63 characters, with an optional domain and slash before it.
pub const METADATA_KEY: &str =
    "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
/// Reserved keys of labels and annotations: those of this project, and Helm's for hooks.
pub const RESERVED_METADATA_KEY: &str = "^([^/]*[.])?kyma-project[.]io/|^helm[.]sh/hook$";
/// Value of a label. The schemas have the length of at most 63 as a separate rule.
pub const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";

/// Maximum length of a channel or of a ModuleTemplate's version.
const MAX_CHANNEL_BYTES: usize = 32;
/// Maximum length of a module's name.
const MAX_MODULE_NAME_BYTES: usize = 64;
/// Maximum length of a label's value.
const MAX_LABEL_VALUE_BYTES: usize = 63;

/// Reports whether `text` is a valid channel of a Kyma: [`CHANNEL`], 3 to 32 characters.
pub fn is_channel(text: &str) -> bool {
    (3..=MAX_CHANNEL_BYTES).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase())
}

/// Reports whether `text` is a valid pinned version of a Kyma: [`PINNED_VERSION`], at most 32 characters.
pub fn is_version(text: &str) -> bool {
    text.len() <= MAX_CHANNEL_BYTES
        && Version::parse(text).is_ok_and(|version| {
            let pre = version.pre.as_str();
            version.build.is_empty() && !pre.contains('.') && !pre.starts_with(|c: char| c.is_ascii_digit())
        })
}

/// Reports whether `text` is a module's name: [`MODULE_NAME`], not empty, at most 64 characters.
pub fn is_module_name(text: &str) -> bool {
    text.len() <= MAX_MODULE_NAME_BYTES
        && text.split('-').all(|word| word.len() >= 3 && word.bytes().all(|b| b.is_ascii_lowercase()))
}

/// Reports whether `text` is the key of a label or annotation: [`METADATA_KEY`].
pub fn is_metadata_key(text: &str) -> bool {
    let is_domain = |domain: &str| {
        domain.len() <= 253
            && is_framed(domain, |b| b.is_ascii_lowercase() || b.is_ascii_digit(), |b| b"-.".contains(&b))
    };
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    domain.is_none_or(is_domain) && !name.is_empty() && is_label_value(name)
}

/// Reports whether a key is reserved: [`RESERVED_METADATA_KEY`].
pub fn is_reserved_metadata_key(text: &str) -> bool {
    let domain = text.split_once('/').map(|(domain, _)| domain);
    domain.is_some_and(|domain| domain == "kyma-project.io" || domain.ends_with(".kyma-project.io"))
        || text == "helm.sh/hook"
}

/// Reports whether `text` is the value of a label: [`LABEL_VALUE`], at most 63 characters.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty()
        || text.len() <= MAX_LABEL_VALUE_BYTES
            && is_framed(text, |b| b.is_ascii_alphanumeric(), |b| b"-_.".contains(&b))
}

/// Reports whether a text has `outer` bytes at both ends and `outer` or `inner` bytes in between.
fn is_framed(text: &str, outer: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| outer(*b))
        && bytes.last().is_some_and(|b| outer(*b))
        && bytes.iter().all(|b| outer(*b) || inner(*b))
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

        #[test]
        fn keys_and_label_values_agree_with_the_patterns(text in "[aA0/._-]{0,6}(a{60,64})?[a/_.]{0,3}") {
            prop_assert_eq!(is_metadata_key(&text), matches(METADATA_KEY, &text));
            prop_assert_eq!(is_label_value(&text), matches(LABEL_VALUE, &text) && text.len() <= 63);
        }

        #[test]
        fn reserved_keys_agree_with_the_pattern(text in "(a?[.]?|x/)(kyma-project[.]io|helm[.]sh)/(a|hook)?s?") {
            prop_assert_eq!(is_reserved_metadata_key(&text), matches(RESERVED_METADATA_KEY, &text));
        }
    }
}
