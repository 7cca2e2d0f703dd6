//! Pauses on the hub: read before the first reconcile, checked by each reconcile, and obeyed by running ones.

pub(crate) mod cache;
mod deletion;
mod follow;
mod kyma_labels;
mod kymas;
pub(crate) mod names;
mod read;
mod record;
mod snapshot;

pub use cache::{PauseChanges, Pauses};
pub use read::read_paused_operations;
pub use snapshot::{PausedOperations, is_in_force};
