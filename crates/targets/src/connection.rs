//! Connections to one target: when a call may be sent, and its path to the API server.

pub(crate) mod breaker;
pub(crate) mod contact;
pub(crate) mod dial;
pub(crate) mod limits;
pub(crate) mod notices;
pub(crate) mod request;
pub(crate) mod throttle;
pub(crate) mod transport;
