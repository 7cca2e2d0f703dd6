//! Watches on targets: opened on demand, shared by subscribers, and closed with the last one.

mod bounds;
mod delivered;
mod gap;
mod pulse;
mod registry;
mod spec;
mod stream;

pub use bounds::{Implausible, is_plausible};
pub use registry::{WatchLimit, Watches};
pub use spec::{Content, Listener, ObjectEvent, WatchSpec, WatchTimes};
