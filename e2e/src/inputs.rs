//! Third-party charts and modules to work with. They are read from outside the repository and never copied into it.

pub mod charts;
pub mod modules;
