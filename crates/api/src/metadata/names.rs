//! Derived names. They never change: objects on hubs and targets have them.

use sha2::{Digest, Sha256};

/// Name of the users' Kyma on a target (KLM's constant).
pub const TARGET_KYMA: &str = "default";

/// Maximum length of a component's name; leaves room for suffixes of module operators within 63.
const MAX_COMPONENT_NAME_BYTES: usize = 62;
/// Maximum length of a label value.
const MAX_LABEL_VALUE_BYTES: usize = 63;
/// Number of hex digits of the hash in a component's name.
const NAME_HASH_DIGITS: usize = 8;
/// Number of hex digits of the hash in labels: 128 bits, since it identifies owners.
const LABEL_HASH_DIGITS: usize = 32;

/// Returns the name of the component for `module` on `kyma`: `<kyma>-<module>-<8 hex>`, at most 62 characters.
///
/// The hash covers both whole names, so a cut name stays distinct. The part before the hash is cut, never the hash.
pub fn component_name(kyma: &str, module: &str) -> String {
    let hash = hex_of(&format!("{kyma}/{module}"), NAME_HASH_DIGITS);
    let readable = format!("{kyma}-{module}");
    format!("{}-{hash}", cut(&readable, MAX_COMPONENT_NAME_BYTES - NAME_HASH_DIGITS - 1))
}

/// Returns the value of the owner label: 32 hex digits of the SHA-256 of `namespace/name`.
pub fn owner_hash(namespace: &str, name: &str) -> String {
    hex_of(&format!("{namespace}/{name}"), LABEL_HASH_DIGITS)
}

/// Returns `value` itself if it fits a label (63 characters), otherwise cut, with 32 hex digits of its SHA-256
/// appended.
pub fn label_value(value: &str) -> String {
    if value.len() <= MAX_LABEL_VALUE_BYTES {
        return value.to_owned();
    }
    format!(
        "{}-{}",
        cut(value, MAX_LABEL_VALUE_BYTES - LABEL_HASH_DIGITS - 1),
        hex_of(value, LABEL_HASH_DIGITS)
    )
}

/// Returns the label selector for objects whose label has the [`label_value`] of `value`.
pub fn label_selector(label: &str, value: &str) -> String {
    format!("{label}={}", label_value(value))
}

/// Returns the shard of an object: the SHA-256 of `namespace/name`, modulo 256.
pub fn shard(namespace: &str, name: &str) -> u8 {
    let digest = Sha256::digest(format!("{namespace}/{name}"));
    digest.last().copied().unwrap_or_default()
}

/// Returns the name of the ModuleTemplate for a version of a module: `<module>-<version>`.
pub fn template_name(module: &str, version: &str) -> String {
    format!("{module}-{version}")
}

/// Returns the name of the policy on a target for a ModuleConfig, a resource and a Kyma: `<config>-<resource>-<8
/// hex>`, at most 62 characters. The hash covers all names, including the group.
pub fn policy_name(config: &str, group: &str, resource: &str, kyma: (&str, &str)) -> String {
    let (namespace, name) = kyma;
    let hash = hex_of(&format!("{namespace}/{name}/{config}/{group}/{resource}"), NAME_HASH_DIGITS);
    format!(
        "{}-{hash}",
        cut(&format!("{config}-{resource}"), MAX_COMPONENT_NAME_BYTES - NAME_HASH_DIGITS - 1)
    )
}

fn hex_of(text: &str, digits: usize) -> String {
    let mut hash = hex::encode(Sha256::digest(text));
    hash.truncate(digits);
    hash
}

/// Returns the first `length` bytes, without trailing separators, which must not precede the next dash.
fn cut(text: &str, length: usize) -> &str {
    let end = (0..=length.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
    text[..end].trim_end_matches(['-', '.', '_'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn component_name_is_readable_and_ends_in_hash_of_both_names() {
        assert_eq!(component_name("kyma-sample", "keda"), "kyma-sample-keda-dadcf7fb");
    }

    #[test]
    fn component_names_differ_where_the_joined_names_are_equal() {
        assert_ne!(component_name("a-b", "c"), component_name("a", "b-c"));
    }

    #[test]
    fn policies_of_two_kymas_on_one_cluster_are_distinct() {
        let of =
            |kyma| policy_name("lantern-production", "lantern.example.org", "lanterns", ("kcp-system", kyma));
        assert_ne!(of("one"), of("two"));
        assert!(of("one").starts_with("lantern-production-lanterns-"));
        assert_eq!(policy_name(&"c".repeat(253), "g", "r", ("n", "k")).len(), 62);
    }

    #[test]
    fn long_component_names_are_cut_before_the_hash() {
        let name = component_name(&"k".repeat(52), "-module");
        assert_eq!(name.len(), 61, "a dash at the cut goes too: {name}");
        let name = component_name(&"k".repeat(253), "module");
        assert_eq!(name.len(), 62);
        assert_ne!(name, component_name(&"k".repeat(253), "other"));
    }

    #[test]
    fn label_values_are_hashed_beyond_63() {
        assert_eq!(label_value(&"a".repeat(63)), "a".repeat(63));
        let hashed = label_value(&"a".repeat(64));
        assert_eq!(hashed.len(), 63);
        assert_ne!(hashed, label_value(&"a".repeat(65)));
    }

    #[test]
    fn owner_hashes_fit_a_label() {
        assert_eq!(owner_hash("kcp-system", "a").len(), 32);
        assert_ne!(owner_hash("a", "b"), owner_hash("b", "a"));
    }

    #[test]
    fn shards_spread() {
        let mut seen = std::collections::BTreeSet::new();
        for i in 0..4096 {
            seen.insert(shard("kcp-system", &format!("kyma-{i}")));
        }
        assert_eq!(seen.len(), 256);
    }

    #[test]
    fn template_names_are_module_and_version() {
        assert_eq!(template_name("keda", "1.9.0"), "keda-1.9.0");
    }
}
