//! Component CRs of any kind, reduced to the fields that kyma-operator reads.

mod content;
mod index;
mod kind;
mod view;

pub(crate) use content::{TemplateRecord, TemplateRecords};
pub(crate) use index::{ComponentId, Components};
pub(crate) use kind::{ComponentKind, kind_of};
pub(crate) use view::{ComponentView, MANUAL_UPGRADE_MODE};
