//! Connection of an operator to the target of one Kyma, for the operators that reconcile Kymas.
//!
//! - [`Sessions`] has the sessions of an operator with its targets.
//! - [`owned_fields`] shows whether another apply of an object would change anything.

mod error;
pub mod owned_fields;
mod sessions;

pub use sessions::{PendingSession, Sessions};
