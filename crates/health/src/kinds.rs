//! Health rules of single kinds.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::health::{Health, HealthStatus};
use super::view::{Condition, View, is_word};

/// Time after which an unschedulable Pod counts as failed.
const UNSCHEDULABLE_GRACE: SignedDuration = SignedDuration::from_secs(15);
/// Maximum number of finalizers in a message.
const MAX_LISTED_FINALIZERS: usize = 3;
/// Annotation that the scheduler sets on a PersistentVolumeClaim once a Pod uses it.
const SELECTED_NODE: &str = "/metadata/annotations/volume.kubernetes.io~1selected-node";

/// Returns the health by the rule of the object's kind; `None` if the kind has no own rule.
pub(super) fn assess(view: View<'_>, now: Timestamp) -> Option<Health> {
    Some(match view.group_kind() {
        ("apps", "Deployment") => deployment(view),
        ("apps", "ReplicaSet") | ("", "ReplicationController") => replica_set(view),
        ("apps", "StatefulSet") => stateful_set(view),
        ("apps", "DaemonSet") => daemon_set(view),
        ("", "Pod") => pod(view, now),
        ("batch", "Job") => job(view),
        ("", "PersistentVolumeClaim") => persistent_volume_claim(view),
        ("", "Service") => service(view),
        ("policy", "PodDisruptionBudget") => disruption_budget(view),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crd(view),
        ("apiregistration.k8s.io", "APIService") => api_service(view),
        ("", "Namespace") => namespace(view),
        ("gateway.networking.k8s.io", "Gateway" | "GatewayClass") => gateway(view),
        ("gateway.networking.k8s.io", "HTTPRoute" | "GRPCRoute" | "TCPRoute" | "TLSRoute" | "UDPRoute") => {
            route(view)
        }
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => webhooks(view),
        ("batch", "CronJob")
        | ("", "ConfigMap" | "Secret" | "ServiceAccount")
        | ("rbac.authorization.k8s.io", _) => Health::current(),
        _ => return None,
    })
}

fn wanted_replicas(view: View<'_>) -> i64 {
    view.int("/spec/replicas").unwrap_or(1)
}

/// Returns `InProgress` if `have` is less than `want`, with a message such as "1 of 3 replicas ready".
fn too_few(have: i64, want: i64, what: &str) -> Option<Health> {
    (have < want).then(|| Health::in_progress(format!("{have} of {want} replicas {what}")))
}

fn deployment(view: View<'_>) -> Health {
    let progressing = view.condition("Progressing");
    if progressing.is_some_and(|condition| condition.reason() == "ProgressDeadlineExceeded") {
        return Health::failed("the progress deadline is exceeded");
    }
    if view.status_int("observedGeneration").is_none() && view.generation().is_some() {
        return Health::in_progress("its controller has not observed it yet");
    }
    let want = wanted_replicas(view);
    // A paused Deployment begins no rollout, so only Pods of the earlier revision can be ready.
    if view.flag("/spec/paused") {
        return too_few(view.count("readyReplicas"), want, "ready while it is paused")
            .unwrap_or_else(|| Health::current_with_message("it is paused"));
    }
    let (total, updated) = (view.count("replicas"), view.count("updatedReplicas"));
    let old = total.saturating_sub(updated);
    let counts = too_few(total, want, "created")
        .or_else(|| too_few(updated, want, "updated"))
        .or_else(|| (total > want).then(|| Health::in_progress(format!("{old} old replicas remain"))))
        .or_else(|| too_few(view.count("availableReplicas"), updated, "available"))
        .or_else(|| too_few(view.count("readyReplicas"), want, "ready"));
    if let Some(health) = counts {
        return health;
    }
    // Without a deadline Kubernetes does not report progress.
    let deadline =
        view.int("/spec/progressDeadlineSeconds").is_some_and(|seconds| seconds < i64::from(i32::MAX));
    if let Some(condition) = progressing.filter(|c| deadline && c.reason() != "NewReplicaSetAvailable") {
        return Health::in_progress(condition.summary());
    }
    match view.condition("Available") {
        Some(condition) if !condition.is_true() => Health::in_progress(condition.summary()),
        None if want > 0 => Health::in_progress("it does not report yet that it is available"),
        _ => Health::current(),
    }
}

fn replica_set(view: View<'_>) -> Health {
    let want = wanted_replicas(view);
    if let Some(condition) = view.condition("ReplicaFailure").filter(|condition| condition.is_true()) {
        return Health::in_progress(condition.summary());
    }
    too_few(view.count("fullyLabeledReplicas"), want, "labelled")
        .or_else(|| too_few(view.count("availableReplicas"), want, "available"))
        .or_else(|| too_few(view.count("readyReplicas"), want, "ready"))
        .or_else(|| (view.count("replicas") > want).then(|| Health::in_progress("surplus replicas remain")))
        .unwrap_or_else(Health::current)
}

fn stateful_set(view: View<'_>) -> Health {
    if view.status_int("observedGeneration").is_none() && view.generation().is_some() {
        return Health::in_progress("its controller has not observed it yet");
    }
    let want = wanted_replicas(view);
    let total = view.count("replicas");
    let counts = too_few(total, want, "created")
        .or_else(|| too_few(view.count("readyReplicas"), want, "ready"))
        .or_else(|| {
            (total > want).then(|| {
                Health::in_progress(format!("{} surplus replicas remain", total.saturating_sub(want)))
            })
        });
    if let Some(health) = counts {
        return health;
    }
    // Pods of the earlier revision stay until a person deletes them, so different revisions do not mean that an update
    // is in progress.
    if view.text("/spec/updateStrategy/type") == Some("OnDelete") {
        return Health::current();
    }
    // The API server defaults the partition to 0, which means none.
    if let Some(partition) = view.int("/spec/updateStrategy/rollingUpdate/partition").filter(|p| *p > 0) {
        return too_few(view.count("updatedReplicas"), want.saturating_sub(partition), "updated")
            .unwrap_or_else(Health::current);
    }
    let (current, update) = (view.text("/status/currentRevision"), view.text("/status/updateRevision"));
    if current != update {
        return Health::in_progress("the rolling update is not finished");
    }
    too_few(view.count("currentReplicas"), want, "of the current revision").unwrap_or_else(Health::current)
}

fn daemon_set(view: View<'_>) -> Health {
    let Some(want) = view.status_int("desiredNumberScheduled") else {
        return Health::in_progress("it does not report yet on how many nodes it runs");
    };
    if view.generation().is_none() || view.status_int("observedGeneration").is_none() {
        return Health::in_progress("its controller has not observed it yet");
    }
    let on_delete = view.text("/spec/updateStrategy/type") == Some("OnDelete");
    too_few(view.count("currentNumberScheduled"), want, "scheduled")
        .or_else(|| too_few(view.count("updatedNumberScheduled"), want, "updated").filter(|_| !on_delete))
        .or_else(|| too_few(view.count("numberAvailable"), want, "available"))
        .or_else(|| too_few(view.count("numberReady"), want, "ready"))
        .unwrap_or_else(Health::current)
}

fn pod(view: View<'_>, now: Timestamp) -> Health {
    let containers =
        view.items("/status/initContainerStatuses").iter().chain(view.items("/status/containerStatuses"));
    let mut waiting = containers.filter_map(|status| status.pointer("/state/waiting/reason")?.as_str());
    if waiting.any(|reason| reason == "CrashLoopBackOff") {
        return Health::failed("a container crashes repeatedly");
    }
    match view.text("/status/phase") {
        Some("Succeeded") => Health::current(),
        Some("Failed") => Health::failed("the Pod failed"),
        Some("Running") => match view.condition("Ready") {
            Some(condition) if condition.is_true() => Health::current(),
            Some(condition) => Health::in_progress(condition.summary()),
            None => Health::in_progress("it does not report yet that it is ready"),
        },
        Some("Pending") => pending_pod(view, now),
        // The Pod has no phase, or the phase Unknown.
        _ => Health::in_progress("the phase of the Pod is unknown"),
    }
}

fn pending_pod(view: View<'_>, now: Timestamp) -> Health {
    let scheduled = view.condition("PodScheduled");
    let unschedulable = scheduled.is_some_and(|c| c.is_false() && c.reason() == "Unschedulable");
    let created = view.text("/metadata/creationTimestamp").and_then(|text| text.parse::<Timestamp>().ok());
    match created {
        Some(created) if unschedulable => {
            let limit = created.checked_add(UNSCHEDULABLE_GRACE).ok();
            let health = match limit {
                Some(limit) if now < limit => Health::in_progress("no node accepts the Pod yet"),
                _ => Health::failed("no node accepts the Pod"),
            };
            Health { failed_from: limit, ..health }
        }
        _ => Health::in_progress("the Pod is pending"),
    }
}

fn job(view: View<'_>) -> Health {
    let has_condition = |kind: &str| view.condition(kind).is_some_and(super::view::Condition::is_true);
    if let Some(condition) = view.condition("Failed").filter(|condition| condition.is_true()) {
        return Health::failed(condition.summary());
    }
    if has_condition("Complete") {
        return Health::current();
    }
    if has_condition("Suspended") || view.flag("/spec/suspend") {
        return Health::current_with_message("it is suspended");
    }
    if view.text("/status/startTime").is_none() {
        return Health::in_progress("it has not started");
    }
    Health::in_progress(format!("{} Pods are active", view.count("active")))
}

fn persistent_volume_claim(view: View<'_>) -> Health {
    match view.text("/status/phase") {
        Some("Bound") => Health::current(),
        Some("Lost") => Health::failed("its volume is lost"),
        _ => {
            let class = view.text("/spec/storageClassName").filter(|_| view.at(SELECTED_NODE).is_none());
            Health { storage_class: class.map(str::to_owned), ..Health::in_progress("it is not bound") }
        }
    }
}

fn service(view: View<'_>) -> Health {
    if view.text("/spec/type") != Some("LoadBalancer") {
        return Health::current();
    }
    if view.text("/spec/clusterIP").is_none() {
        return Health::in_progress("it has no cluster IP");
    }
    if view.items("/status/loadBalancer/ingress").is_empty() && view.items("/spec/externalIPs").is_empty() {
        return Health::in_progress("the load balancer has no address");
    }
    Health::current()
}

fn disruption_budget(view: View<'_>) -> Health {
    if view.generation().is_some() && view.status_int("observedGeneration").is_none() {
        return Health::in_progress("its controller has not observed it yet");
    }
    Health::current()
}

fn crd(view: View<'_>) -> Health {
    if let Some(condition) = view.condition("NamesAccepted").filter(|condition| condition.is_false()) {
        return Health::failed(condition.summary());
    }
    match view.condition("Established") {
        Some(condition) if condition.is_true() => Health::current(),
        Some(condition) if condition.is_false() && condition.reason() != "Installing" => {
            Health::failed(condition.summary())
        }
        _ => Health::in_progress("it is not established"),
    }
}

fn api_service(view: View<'_>) -> Health {
    match view.condition("Available") {
        Some(condition) if condition.is_true() => Health::current(),
        Some(condition) => Health::in_progress(condition.summary()),
        None => Health::in_progress("it does not report yet that it is available"),
    }
}

fn namespace(view: View<'_>) -> Health {
    if view.text("/status/phase") == Some("Terminating") {
        return Health::in_progress("it is being deleted");
    }
    Health::current()
}

/// Returns the health of an object that is being deleted. The message lists its finalizers and, for a Namespace, the
/// conditions about the remaining content.
pub(super) fn terminating(view: View<'_>) -> Health {
    let finalizers = view.items("/metadata/finalizers").iter().chain(view.items("/spec/finalizers"));
    let finalizers =
        finalizers.filter_map(Value::as_str).filter(|name| is_word(name) && *name != "kubernetes");
    let listed_finalizers: Vec<&str> = finalizers.take(MAX_LISTED_FINALIZERS).collect();
    let content_conditions =
        ["NamespaceContentRemaining", "NamespaceFinalizersRemaining", "NamespaceDeletionContentFailure"];
    let content_conditions = content_conditions
        .into_iter()
        .filter_map(|kind| view.condition(kind))
        .filter(|condition| condition.is_true());
    let mut message = "it is being deleted".to_owned();
    if !listed_finalizers.is_empty() {
        message = format!("{message}, held by {}", listed_finalizers.join(", "));
    }
    for condition in content_conditions {
        message = format!("{message}; {}", condition.summary());
    }
    Health::new(HealthStatus::Terminating, message)
}

/// Returns the health by the first condition that is not True or describes an older generation.
fn unmet<'a>(view: View<'a>, conditions: impl Iterator<Item = Condition<'a>>) -> Option<Health> {
    let is_stale = |condition: Condition<'_>| {
        let observed = condition.observed_generation();
        view.generation().zip(observed).is_some_and(|(wanted, observed)| observed < wanted)
    };
    for condition in conditions {
        if is_stale(condition) {
            return Some(Health::in_progress("the newest generation is not observed yet"));
        }
        if !condition.is_true() {
            return Some(Health::in_progress(condition.summary()));
        }
    }
    None
}

fn gateway(view: View<'_>) -> Health {
    let conditions = ["Accepted", "Programmed"].into_iter().filter_map(|kind| view.condition(kind));
    match unmet(view, conditions) {
        Some(health) => health,
        None if view.condition("Accepted").is_none() => {
            Health::in_progress("no controller has accepted it yet")
        }
        None => Health::current(),
    }
}

/// The status of a route has conditions for each parent.
fn route(view: View<'_>) -> Health {
    let parents = view.items("/status/parents");
    if parents.is_empty() && !view.items("/spec/parentRefs").is_empty() {
        return Health::in_progress("no controller has accepted it yet");
    }
    let conditions = parents.iter().flat_map(|parent| {
        ["Accepted", "ResolvedRefs"].into_iter().filter_map(|kind| Condition::of(&parent["conditions"], kind))
    });
    unmet(view, conditions).unwrap_or_else(Health::current)
}

/// If cert-manager injects the CA of a webhook, the webhook works only once the CA is present.
fn webhooks(view: View<'_>) -> Health {
    let injection_annotations = ["cert-manager.io~1inject-ca-from", "cert-manager.io~1inject-ca-from-secret"];
    let is_injected =
        injection_annotations.iter().any(|key| view.at(&format!("/metadata/annotations/{key}")).is_some());
    let has_no_ca = |webhook: &&Value| {
        let bundle = webhook.pointer("/clientConfig/caBundle").and_then(Value::as_str).unwrap_or_default();
        bundle.is_empty()
    };
    match view.items("/webhooks").iter().find(has_no_ca) {
        Some(webhook) if is_injected => {
            let name = webhook["name"].as_str().filter(|name| is_word(name)).unwrap_or_default();
            Health::in_progress(format!("webhook {name} has no CA yet"))
        }
        _ => Health::current(),
    }
}
