//! Credentials of a target, from its access Secret.

pub(crate) mod client_certificate;
pub(crate) mod grant;
pub(crate) mod kubeconfig;
pub(crate) mod secret_key;
pub(crate) mod tokens;
