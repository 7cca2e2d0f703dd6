//! Connection of an operator to the target of one Kyma, for the operators that reconcile Kymas.
//!
//! [`owned_fields`] shows whether another apply of an object would change anything.

pub mod owned_fields;
