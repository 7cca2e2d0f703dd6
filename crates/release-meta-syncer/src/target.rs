//! Sessions with targets: connection, prerequisites, known state and clean-up.

pub(crate) mod bootstrap;
pub(crate) mod cleanup;
pub(crate) mod connection;
pub(crate) mod memory;
pub(crate) mod session;
