//! What names a Kyma inside this process.

use std::fmt;

use kyma_api::Kyma;

/// Namespace and name of a Kyma.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KymaKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl KymaKey {
    pub(crate) fn of(kyma: &Kyma) -> Self {
        let meta = &kyma.metadata;
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for KymaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
