//! Library for teams that write the reconciler of their own kind of component.
//!
//! Implement [`Component`] for a kind, and make `main` one call of [`run_component`]. The driver does everything else:
//! access to targets, their identity, Pauses, dependencies, deletions, the status, and the time of the next reconcile.
//! [`testing`] checks the result.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::ObjectMeta;
//! use kube::{CustomResource, ResourceExt};
//! use kyma_sdk::{Component, ComponentSpec, ComponentStatus, Context, Failure, Progress, Removal, Rule};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! /// Greets the users of a target.
//! #[derive(Clone, Debug, CustomResource, Serialize, Deserialize, JsonSchema)]
//! #[kube(group = "demo.example.org", version = "v1alpha1", kind = "Greeting", namespaced)]
//! #[kube(category = "kyma-components", status = "ComponentStatus")]
//! struct GreetingSpec {
//!     text: String,
//!     #[serde(flatten)]
//!     component: ComponentSpec,
//! }
//!
//! const NAMESPACE: &str = "kyma-system";
//! const VERBS: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
//!
//! struct Greeter;
//!
//! impl Component for Greeter {
//!     type Resource = Greeting;
//!
//!     const NAME: &'static str = "greeting-component";
//!     const VERSION: &'static str = "0.1.0";
//!     const TARGET_RULES: &'static [Rule] = &[
//!         Rule::new(&[""], &["namespaces"], &["get", "create"], "the namespace of the greeting"),
//!         Rule::new(&[""], &["configmaps"], VERBS, "the greeting"),
//!     ];
//!
//!     async fn install(&self, context: &Context<Greeting>) -> Result<Progress, Failure> {
//!         let greeting = ConfigMap {
//!             metadata: ObjectMeta {
//!                 name: Some(context.resource.name_any()),
//!                 namespace: Some(NAMESPACE.to_owned()),
//!                 ..ObjectMeta::default()
//!             },
//!             data: Some([("greeting".to_owned(), context.resource.spec.text.clone())].into()),
//!             ..ConfigMap::default()
//!         };
//!         context.ensure_namespace(NAMESPACE).await?;
//!         context.ensure(&greeting).await?;
//!         Ok(Progress::ready("1.0.0"))
//!     }
//!
//!     async fn remove(&self, context: &Context<Greeting>) -> Result<Removal, Failure> {
//!         let name = context.resource.name_any();
//!         if context.remove::<ConfigMap>(Some(NAMESPACE), &name).await? {
//!             return Ok(Removal::Done);
//!         }
//!         Ok(Removal::waiting(format!("waiting for the deletion of ConfigMap {NAMESPACE}/{name}")))
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     kyma_sdk::run_component(Greeter)
//! }
//! ```
//!
//! The crate exports at most 30 names, counting those of [`testing`]; `cargo xtask tidy` refuses more. The runtime of the
//! driver is the crate `kyma-controller`.

#![warn(missing_docs)]

// A component, its contract, and the context of a step.
mod component;
mod context;
mod contract;

// The driver: it calls the steps and writes the status.
mod dependencies;
mod driver;
mod dry_run;
mod identity;
mod object;
mod status;

pub mod testing;

pub use component::{Component, Progress, Removal};
pub use context::{Context, Waker};
pub use contract::{ComponentResource, ComponentSpec, ComponentStatus, Contract};
pub use driver::{ComponentProgram, drive, run_component};

pub use kyma_api as api;
pub use kyma_api::condition::Condition;
pub use kyma_controller::rbac::{Check, Guard, Rule};
pub use kyma_controller::{Blocking, DeleteRequest, Failure, Wait, WatchSpec};
pub use kyma_targets::ServiceAccount;

// The versions that this crate is built with.
pub use k8s_openapi;
pub use kube;
