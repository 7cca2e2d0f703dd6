//! Generates objects of all kinds from their schemas: valid ones, ones at a limit, and ones beyond a limit. As in
//! Acto (Gu and others, SOSP 2023), an operator must handle every object that its API accepts, so most objects are
//! valid except for one or two fields.

mod agree;
mod crowd;
mod draw;
mod schema;
mod sentinel;
mod strain;
mod words;

pub use crowd::{Crowd, LEAST_STORED, ObjectCounts};
pub use draw::{Drawer, Drawn};
pub use schema::{Kind, kinds};
