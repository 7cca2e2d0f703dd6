//! The release store: Secrets of the hub in which helm-component records revisions of its components.
//!
//! The admission policy of helm-component's role admits only these types and names. The type of a Secret is immutable,
//! so it also identifies the writer.

/// Type of the Secret with the objects of a component's rollback target.
pub const RELEASE_TYPE: &str = "component.kyma-project.io/kept-release";
/// Type of the Secrets with renders that are not deterministic.
pub const RENDER_TYPE: &str = "component.kyma-project.io/kept-render";
/// Type of the Secret with the hooks that run when a component is removed.
pub const HOOKS_TYPE: &str = "component.kyma-project.io/kept-hooks";
/// All types of the release store.
pub const TYPES: [&str; 3] = [RELEASE_TYPE, RENDER_TYPE, HOOKS_TYPE];

/// Prefix of the name of a Secret of type [`RELEASE_TYPE`]; [`crate::names::owner_hash`] of the component follows.
pub const RELEASE_PREFIX: &str = "helm-component-kept-";
/// Prefix of the names of Secrets of type [`RENDER_TYPE`].
pub const RENDER_PREFIX: &str = "helm-component-render-";
/// Prefix of the name of a Secret of type [`HOOKS_TYPE`].
pub const HOOKS_PREFIX: &str = "helm-component-hooks-";
/// The prefix of each type's names, in the order of [`TYPES`].
pub const PREFIXES: [&str; 3] = [RELEASE_PREFIX, RENDER_PREFIX, HOOKS_PREFIX];
