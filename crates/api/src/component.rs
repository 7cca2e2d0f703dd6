//! The component contract: what kyma-operator writes into a custom resource that installs one module on one
//! target, what it reads back, and what a CRD must offer to be used like that.
//!
//! Any namespaced kind with a status subresource can be a component. HelmComponent is one of them.

mod command_words;
mod contract;
pub(crate) mod fields;
mod order;
mod view;

pub use command_words::{
    COMPONENT_CATEGORY, WordConflict, is_core_word, shadowing_categories, word_conflicts,
};
pub use contract::{Violation, check};
pub use fields::{
    ComponentDependency, DeletionPolicy, Dependency, FreeForm, GroupKind, KindRef, Manager, ModuleRef,
    ObjectRef, ResourcePolicy, SecretKeyRef, TargetRef,
};
pub use order::{DeletionOrder, DeletionReason};
pub use view::{ComponentView, ReadyView};
