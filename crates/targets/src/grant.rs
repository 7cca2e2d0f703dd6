//! Whether what an access Secret granted still holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What an access Secret grants from one of its changes to the next. Cheap to clone; clones are withdrawn together.
///
/// A call under way goes on when it is withdrawn, but nothing that lasts, such as a watch, is begun with it any more.
#[derive(Clone, Debug, Default)]
pub struct Grant(Arc<AtomicBool>);

impl Grant {
    /// The Secret changed or is gone.
    pub fn withdraw(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the Secret changed since.
    pub fn is_withdrawn(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Reports whether no other clone of it exists.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
