//! Values of a component: those in `valuesFrom`, and the layers from which all are merged.

pub(crate) mod from;
mod layers;

pub(crate) use layers::layers;
