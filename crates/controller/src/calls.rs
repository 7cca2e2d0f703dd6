//! Calls to API servers whose answers prove presence or absence, writes of statuses and finalizers, and descriptions of
//! objects that cannot be read.

pub(crate) mod apply_status;
pub(crate) mod finalizer;
pub(crate) mod objects;
pub(crate) mod served;
pub(crate) mod unreadable;
