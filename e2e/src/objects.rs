//! Objects of all our kinds, made up from their schemas: valid ones, such as lie on a limit, and such as lie beyond.
//! Acto's way (Gu and others, SOSP 2023): an operator has to have an answer to everything that its API lets pass. So most
//! of them keep to what the API demands in all places but one or two.

mod agree;
mod crowd;
mod draw;
mod schema;
mod sentinel;
mod strain;
mod words;

pub use crowd::{Crowd, LEAST_STORED, Told};
pub use draw::{Drawer, Drawn};
pub use schema::{Kind, kinds};
