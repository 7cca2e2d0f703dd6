//! Objects of all our kinds, made up from their schemas: valid ones, such as lie on a limit, and such as lie beyond.
//! Acto's way (Gu and others, SOSP 2023): an operator has to have an answer to everything that its API lets pass.

mod crowd;
mod draw;
mod schema;
mod sentinel;

pub use crowd::{Crowd, Told};
pub use draw::{Drawer, Drawn};
pub use schema::{Kind, kinds};
