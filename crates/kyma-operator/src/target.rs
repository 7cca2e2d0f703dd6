//! Targets: sessions, the target's Kyma, and what modules need there.

pub(crate) mod admission;
pub(crate) mod local;
pub(crate) mod prerequisites;
pub(crate) mod pull_secret;
pub(crate) mod session;
pub(crate) mod target_kyma;
