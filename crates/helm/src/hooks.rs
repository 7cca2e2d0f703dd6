//! Helm's hooks: objects that run at an event of a release instead of being part of it. Pure.
//!
//! The rules are Helm's (<https://helm.sh/docs/topics/charts_hooks/>): hooks run one after another by weight and
//! name. Jobs and Pods run until they end; all other kinds count as done once created. The first failure ends the
//! event.

mod action;
mod hook;
mod run;

pub use action::{HookAction, HookResult, HookState, LiveHook, end, end_by_events, next_action};
pub use hook::{DeletePolicy, Event, HOOK, Hook, of_event};
pub use run::{
    ReleaseChange, ReleaseHooks, after, are_of_removal, before, before_apply, begin, fail, is_over,
    is_under_way, mark, next_try, pause, record_if_disabled,
};
