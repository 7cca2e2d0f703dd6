//! Internals that fuzz targets call. Only in their builds: `cargo fuzz` sets the cfg.

use super::error::RenderError;
use super::message;
use crate::chart::TemplateText;

/// Returns the presentable error of a failed `helm template`, for a chart of these files.
pub fn reduce(stderr: &str, files: &[(&str, &str)]) -> RenderError {
    message::reduce(stderr, &TemplateText::from_files(files))
}
