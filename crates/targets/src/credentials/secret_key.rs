//! Reference to the kubeconfig of a target.

/// Location of an access Secret, and its key with the kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretKey {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// Key in its data.
    pub key: String,
}
