//! Connection of an operator to the target of one Kyma, for the operators that reconcile Kymas.
//!
//! - [`Sessions`] has the sessions of an operator with its targets.
//! - [`ensure_namespace`] and [`ensure_crd`] install what the objects of an operator need on a target.
//! - [`owned_fields`] shows whether another apply of an object would change anything.

mod crd;
mod error;
mod namespace;
pub mod owned_fields;
mod sessions;

pub use crd::{InstalledCrd, ensure_crd};
pub use namespace::{NamespaceLabels, ensure_namespace};
pub use sessions::{PendingSession, Sessions};
