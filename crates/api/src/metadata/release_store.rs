//! The release store: Secrets of the hub in which helm-component records revisions of its components.
//!
//! The admission policy of helm-component's role admits only these types and names. The type of a Secret is immutable,
//! so it also identifies the writer.

/// Type of the Secrets with the parts of a revision: its render, the hooks of its removal, and its objects.
pub const TYPE: &str = "component.kyma-project.io/release";
/// Prefix of the names of Secrets of type [`TYPE`]. [`crate::metadata::names::owner_hash`] of the component, `-` and the number
/// of a slot (1 to 3) follow, and for a part that does not fit into the slot's Secret another `-` and 2 or 3.
pub const PREFIX: &str = "helm-component-release-";

/// Type of the Secret with the objects of a component's rollback target, as earlier versions stored it.
pub const RELEASE_TYPE: &str = "component.kyma-project.io/kept-release";
/// Type of the Secrets with renders that are not deterministic, as earlier versions stored them.
pub const RENDER_TYPE: &str = "component.kyma-project.io/kept-render";
/// Type of the Secret with the hooks that run when a component is removed, as earlier versions stored it.
pub const HOOKS_TYPE: &str = "component.kyma-project.io/kept-hooks";
/// All types of the release store.
pub const TYPES: [&str; 4] = [TYPE, RELEASE_TYPE, RENDER_TYPE, HOOKS_TYPE];

/// Prefix of the name of a Secret of type [`RELEASE_TYPE`]; [`crate::metadata::names::owner_hash`] of the component follows.
pub const RELEASE_PREFIX: &str = "helm-component-kept-";
/// Prefix of the names of Secrets of type [`RENDER_TYPE`].
pub const RENDER_PREFIX: &str = "helm-component-render-";
/// Prefix of the name of a Secret of type [`HOOKS_TYPE`].
pub const HOOKS_PREFIX: &str = "helm-component-hooks-";

/// Returns the regular expression of all names in the release store.
pub fn name_pattern() -> String {
    let former = [RELEASE_PREFIX, RENDER_PREFIX, HOOKS_PREFIX].join("|");
    format!("^({PREFIX}[0-9a-z]+-[123](-[23])?|({former})[0-9a-z]+(-[23])?)$")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_release_store_have_the_pattern() {
        let pattern = regex::Regex::new(&name_pattern()).unwrap();
        let rows = [
            ("helm-component-release-0a1b-1", true),
            ("helm-component-release-0a1b-3-2", true),
            ("helm-component-kept-0a1b", true),
            ("helm-component-render-0a1b-3", true),
            ("helm-component-hooks-0a1b", true),
            ("helm-component-release-0a1b", false),
            ("helm-component-release-0a1b-4", false),
            ("helm-component-release-0a1b-1-4", false),
            ("helm-component-kept-access-token", false),
            ("access", false),
        ];
        for (name, expected) in rows {
            assert_eq!(pattern.is_match(name), expected, "{name}");
        }
    }
}
