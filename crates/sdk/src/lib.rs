//! Shared library for reconcilers of this project and of other teams.
//!
//! To write your own component, implement [`Component`] for your kind and make `main` one call: [`run_component`].
//! For an operator of another form, build on the parts: [`Runtime`], [`Reconciler`], [`Access`], [`Watches`],
//! [`Program`].

#![warn(missing_docs)]

// A component: the trait, the contract as types, and the inputs of a step.
mod blocking;
mod component;
mod context;
mod contract;
mod default_resource;
mod dependencies;
mod driver;
mod expression;
mod identity;
mod kyma;
mod local;
mod object;
mod status;

// From events to reconciles.
mod backoff;
mod brake;
mod call;
mod delete_gate;
mod deletion_cause;
mod deletion_request;
mod evaluation;
mod failure;
mod feed;
mod finalizer;
mod hub_resource;
mod hub_watch;
mod index;
mod informer;
mod jitter;
mod pauses;
mod reconcile_context;
mod reconciler;
mod trigger;

// The hub, targets, and what is watched on them.
mod access;
mod copied_secret;
mod dry_run;
mod hub;
mod runtime;
mod served;
mod watches;

// Parts of every operator's process.
mod admin;
mod apply_status;
mod args;
mod crd_check;
mod diagnosis;
mod events;
mod metrics;
mod program;
pub mod rbac;
mod settings;
mod telemetry;
pub mod testing;
mod unreadable;

pub use access::{Access, AccessChange, Revision, is_object_name, object_name};
pub use admin::{AdminError, AdminServer, Health};
pub use apply_status::apply_status;
pub use args::{AccessArgs, Args, LogFormat, Mode, TokenExchangeArgs};
pub use backoff::{delay_after, longest_delay};
pub use blocking::{Blocker, Blockers, find_blockers};
pub use brake::{Brake, BrakeLimit, record_names};
pub use call::{
    create_new, find_metadata, find_object, is_absent, is_conflict, live_metadata, none_if_absent,
};
pub use component::{Blocking, Component, ComponentResource, Progress, Removal, Wait, failure_state};
pub use context::{Context, Waker};
pub use contract::{
    ComponentSpec, ComponentStatus, Contract, DeletionEffect, deletion_effect, has_finalizer, is_suspended,
};
pub use copied_secret::{CopyError, check_no_access, may_be_copied};
pub use crd_check::{CrdError, await_crds, missing_fields};
pub use default_resource::{had_default_resource, is_created_for};
pub use delete_gate::{Authorship, DeleteError, DeleteGate, DeleteOutcome, DeleteRequest};
pub use deletion_cause::{is_deleted_alone, namespace_and_crds_since};
pub use deletion_request::{DELETION_CONFIRMATION_TIMEOUT, DeletionRequest, may_be_garbage};
pub use diagnosis::{Diagnoses, Diagnosis, TargetDiagnosis};
pub use driver::{ComponentProgram, component_table, drive, run_component};
pub use evaluation::{contain_panic, evaluate_on_thread, target_group};
pub use events::Events;
pub use expression::{EvaluationCost, Expression, ExpressionError, ExpressionResult};
pub use failure::Failure;
pub use feed::{FeedEvent, feed};
pub use finalizer::{add_finalizer, patch_finalizers, remove_finalizer};
pub use hub::{
    HubError, client_config, describe_cause, describe_watch_cause, environment_proxy, hub_addresses,
    hub_apply, hub_config, hub_uid, kubeconfig, read_kubeconfig, set_user_agent, with_hub_limits,
};
pub use hub_resource::{HubResource, decode_or_log};
pub use hub_watch::hub_watch;
pub use identity::verdict_failure;
pub use index::Index;
pub use informer::{OwnWrite, ResourceVersion, WriteThrough};
pub use jitter::{jitter, shorten_randomly};
pub use kyma::{KymaAccess, KymaKey, LongNames, claim_of, fence_of, record_stop, target_record};
pub use kyma_api::condition::Condition;
pub use local::{is_local, local_access_failure};
pub use metrics::{MetricDescription, Metrics, MetricsError};
pub use pauses::{PauseChanges, PausedOperations, Pauses, is_in_force, read_paused_operations};
pub use program::{NoFlags, Program, RunError, StartError, run_program, serve};
pub use rbac::{Guard, Rule};
pub use reconcile_context::ReconcileContext;
pub use reconciler::{Change, Reconciler};
pub use runtime::{Operator, Process, Runtime};
pub use served::{is_crd_absent, none_if_unserved};
pub use settings::{Settings, SettingsError};
pub use status::{Report, next_status};
pub use telemetry::{TelemetryError, init_telemetry};
pub use trigger::Trigger;
pub use unreadable::unreadable_fields;
pub use watches::{
    Content, Implausible, Listener, ObjectEvent, WatchLimit, WatchSpec, WatchTimes, Watches, is_plausible,
};

// The versions that this crate is built with, so that components need no dependencies of their own on them.
pub use k8s_openapi;
pub use kube;
pub use kyma_api as api;
pub use kyma_targets as targets;
pub use schemars;
pub use serde;
pub use serde_json;
