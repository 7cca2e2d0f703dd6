//! Parts of caches that watches and own writes update.

mod resource_version;
mod write_through;

pub use resource_version::ResourceVersion;
pub use write_through::{OwnWrite, WriteThrough};
