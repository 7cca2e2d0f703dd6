//! Identities of kinds and objects.

use std::fmt;

/// A kind without its version, which stays the same if its API moves from `v1beta1` to `v1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// API group, empty for the core group.
    pub group: String,
    /// Kind as in `Deployment`.
    pub kind: String,
}

impl GroupKind {
    /// Names a kind of an API group (empty for the core group).
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { group: group.into(), kind: kind.into() }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.kind)
        } else {
            write!(f, "{}.{}", self.kind, self.group)
        }
    }
}

/// A kind in one of its versions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gvk {
    /// API group, empty for the core group.
    pub group: String,
    /// Version as in `v1beta1`.
    pub version: String,
    /// Kind as in `Deployment`.
    pub kind: String,
}

impl Gvk {
    /// Names a kind in a version of an API group (empty for the core group).
    pub fn new(group: impl Into<String>, version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// The kind without its version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind::new(&self.group, &self.kind)
    }

    /// `group/version`, or the bare version for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.kind)
    }
}

/// Identity of an object on one cluster, without a version, since all versions show the same object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// API group, empty for the core group.
    pub group: String,
    /// Kind as in `Deployment`.
    pub kind: String,
    /// Namespace; `None` for objects of cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
}

impl Identity {
    /// Names an object; `namespace` is `None` for cluster-scoped kinds.
    pub fn new(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
        }
    }

    /// The kind without its version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind::new(&self.group, &self.kind)
    }

    /// Reports whether this is an object of the given kind.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }

    /// Reports whether this is a `Namespace` object.
    pub fn is_namespace(&self) -> bool {
        self.is("", "Namespace")
    }

    /// Reports whether this is a `CustomResourceDefinition`.
    pub fn is_crd(&self) -> bool {
        self.is("apiextensions.k8s.io", "CustomResourceDefinition")
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.group_kind())?;
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
