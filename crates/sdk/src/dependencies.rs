//! Dependencies among components: watched on the hub and cached in reduced form.
//!
//! The reconciler's watch shows the operator's own kind. Every other kind has one watch while a component depends on
//! it.

mod decide;
mod follow;
mod graph;
mod index;
mod kind_watch;
mod view;

pub(crate) use decide::{DeletionBlockers, DependencyEffect, is_stale};
pub(crate) use index::Dependencies;
pub(crate) use view::Kind;
