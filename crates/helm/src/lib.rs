//! Helm without a hub: loads and renders charts, merges their values, decides when their hooks run, reads and writes
//! records of releases.
//!
//! [`chart::Chart`] reads a chart within bounds and detects renders that are not deterministic. A
//! [`render::Renderer`] turns a chart and its values into objects; [`values`] merges these from layers and names the
//! layer that set each. [`hooks`] has the order and delete policies of hooks, and decides on the next step for each from
//! facts that the caller observed. [`storage`] converts a revision of a release to Helm's record of it, and back.

pub mod chart;
pub mod hooks;
pub mod render;
pub mod storage;
pub mod values;
