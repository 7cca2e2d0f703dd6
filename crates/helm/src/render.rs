//! Charts in, Kubernetes objects out, without a cluster and without trust in the chart.
//!
//! [`Renderer`] is the interface: currently the `helm` program in a sandbox ([`HelmProgram`]), later an engine of
//! this project. Only this module knows that a subprocess is involved.

mod cache;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod helm;
mod launcher;
mod message;
mod process;
mod renderer;
mod request;
mod tests_folder;

pub use cache::CachingRenderer;
pub use error::RenderError;
pub use helm::{HelmProgram, HelmProgramError};
pub use launcher::run_if_launcher;
pub use renderer::{Reads, RenderLimits, RenderOutput, Renderer};
pub use request::RenderRequest;
pub use tests_folder::tests_folder_has_only_tests;
