//! Ownership of fields, as API servers record it in `managedFields`.

pub mod drift;
pub(crate) mod entries;
pub(crate) mod field_set;
pub(crate) mod ignored_fields;
