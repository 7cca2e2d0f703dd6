//! Helm without a hub: loads and renders charts.
//!
//! [`render::Chart`] reads a chart within bounds and detects renders that are not deterministic. A
//! [`render::Renderer`] turns a chart and its values into objects.

pub mod render;
