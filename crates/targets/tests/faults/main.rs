//! A failing target costs a bounded time, has a reported reason, and is used again once it works.

mod access;
mod answers;
mod cache;
mod pace;
mod switch;

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kyma_targets::{AccessPolicy, BreakerLimits, Limits, Target, TargetError, Targets, classify};
use serde_json::json;
use testbed::{Access, Answer};

/// Deadline of a step that a target does not answer.
pub(crate) const CALL: Duration = Duration::from_millis(400);
/// Deadline that no step reaches.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_mins(1);
pub(crate) const PLANTED: &str = "planted-by-the-target";

/// Returns limits of which no call reaches a deadline, however slow the machine is.
pub(crate) fn limits() -> Limits {
    Limits {
        connect: LONG_TIMEOUT,
        call: LONG_TIMEOUT,
        watch_idle: LONG_TIMEOUT,
        body: 64 * 1024,
        body_weight: 1024 * 1024,
        line: 64 * 1024,
        line_weight: 256 * 1024,
        breaker: BreakerLimits {
            failures: 3,
            probe_first: Duration::from_millis(50),
            probe_longest: Duration::from_millis(100),
        },
        ..Limits::default()
    }
}

/// Returns limits with a short deadline of a call, for targets that do not answer.
pub(crate) fn short_calls() -> Limits {
    Limits { call: CALL, ..limits() }
}

pub(crate) fn loopback() -> AccessPolicy {
    AccessPolicy { allow_loopback: true, ..AccessPolicy::default() }
}

pub(crate) fn targets(policy: AccessPolicy) -> Targets {
    targets_within(limits(), policy)
}

pub(crate) fn targets_within(limits: Limits, policy: AccessPolicy) -> Targets {
    Targets::new(policy, limits, "tester/1.2.3", "replica-0", 8)
}

pub(crate) fn secret(kubeconfig: String, version: &str) -> Secret {
    let mut secret = Secret {
        data: Some([("config".to_owned(), ByteString(kubeconfig.into_bytes()))].into()),
        ..Secret::default()
    };
    secret.metadata.namespace = Some("kcp-system".into());
    secret.metadata.name = Some("access".into());
    secret.metadata.uid = Some("uid".into());
    secret.metadata.resource_version = Some(version.into());
    secret
}

pub(crate) fn target(targets: &Targets, access: &Access) -> Result<Target> {
    Ok(targets.from_secret(&secret(access.kubeconfig(), "1"), "config")?)
}

pub(crate) async fn get(target: &Target) -> Result<ConfigMap, TargetError> {
    let maps = Api::<ConfigMap>::namespaced(target.client(), "default");
    maps.get("any").await.map_err(|error| classify(&error))
}

pub(crate) async fn fails(target: &Target) -> Result<TargetError> {
    get(target).await.err().context("an error was expected")
}

pub(crate) fn config_map() -> Answer {
    Answer::json(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "any"}}))
}
