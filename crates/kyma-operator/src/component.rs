//! Component CRs of any kind, reduced on arrival to what kyma-operator needs of them.

mod content;
mod index;
mod kind;
mod view;

pub(crate) use content::{TemplateRecord, TemplateRecords};
pub(crate) use index::{ComponentId, Components};
pub(crate) use kind::{ComponentKind, kind_of};
pub(crate) use view::{ComponentView, MANUAL};
