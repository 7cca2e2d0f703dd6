//! Generates objects of all kinds from their schemas: valid ones, ones at a limit, and ones beyond a limit. As in
//! Acto (Gu and others, SOSP 2023), an operator must handle every object that its API accepts, so most objects are
//! valid except for one or two fields.

mod agree;
mod generator;
mod load;
mod schema;
mod sentinel;
mod strain;
mod words;

pub use generator::{GeneratedObject, ObjectGenerator};
pub use load::{MIN_STORED_SHARE, ObjectCounts, ObjectLoad};
pub use schema::{Kind, kinds};
