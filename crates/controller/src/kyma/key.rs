//! Key of a Kyma inside a process.

use std::fmt;

use kyma_api::Kyma;

/// Namespace and name of a Kyma on the hub.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KymaKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl KymaKey {
    /// Returns the key of this Kyma.
    pub fn of(kyma: &Kyma) -> Self {
        let meta = &kyma.metadata;
        Self::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }

    /// Returns the key of the Kyma `name` in `namespace`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for KymaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
