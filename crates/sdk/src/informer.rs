//! Parts of caches that watches and own writes update.

mod resource_version;

pub use resource_version::ResourceVersion;
