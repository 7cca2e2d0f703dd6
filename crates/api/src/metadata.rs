//! Names, labels and annotations of objects.

pub mod annotations;
pub mod finalizers;
pub(crate) mod groups;
pub mod labels;
pub mod names;
pub(crate) mod owner;
pub mod release_store;
