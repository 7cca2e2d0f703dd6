//! Validity of targets that were created from an access Secret.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Grant of one content of an access Secret, until its next change. Cheap to clone; clones are withdrawn together.
///
/// A withdrawal does not stop running calls, but nothing lasting, such as a watch, may start afterwards.
#[derive(Clone, Debug, Default)]
pub struct Grant(Arc<AtomicBool>);

impl Grant {
    /// Withdraws the grant, after the Secret changed or was deleted.
    pub fn withdraw(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Reports whether the Secret changed since.
    pub fn is_withdrawn(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Reports whether no other clone of it exists.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
