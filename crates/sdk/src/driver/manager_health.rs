//! The workload whose health decides on the state of a module (`spec.manager`).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Resource, ResourceExt,
    api::{ApiResource, ListParams},
    core::{DynamicObject, GroupVersionKind},
    discovery::Scope,
};
use kube_runtime::reflector::ObjectRef;
use kyma_api::{GroupKind, Manager, Reason, State, condition};
use kyma_controller::default_resource::has_owner;
use kyma_controller::{Failure, WatchSpec, is_object_name, served_kind};
use kyma_health::{Health, HealthStatus};

use super::default_resource::watch_spec;
use super::kinds::{self, LATE_LOOKUP_INTERVAL, LOOKUP_INTERVAL, lookup_interval};
use super::state::Driver;
use crate::component::{Component, Progress};
use crate::context::Context;
use crate::contract::ComponentResource;

/// Time for which a failure must last before it counts, as helm-component's `--unhealthy-after-seconds` by default.
const FAILURE_GRACE: SignedDuration = SignedDuration::from_secs(30);

/// Health of the workload of `spec.manager`.
#[derive(Clone, Debug, PartialEq)]
enum ManagerHealth {
    /// The workload is healthy.
    Healthy,
    /// The component waits for the workload: reason, and time after which the judgement changes without an event.
    Waiting(String, Option<Duration>),
    /// The workload has failed.
    Failed(String),
    /// The health cannot be read until the target's roles or the spec change.
    Refused(Failure),
    /// The health could not be read this time.
    Unknown(Failure),
}

/// Times that decide whether a failure counts.
#[derive(Clone, Copy, Debug)]
struct FailureClock {
    now: Timestamp,
    /// Time at which the failure was first seen.
    since: Timestamp,
    /// Time for which it must last.
    grace: SignedDuration,
}

impl<C: Component> Driver<C> {
    /// Judges the manager and adds the result to the progress of a step. The progress of a step that stopped is not
    /// changed.
    pub(super) async fn with_manager(&self, context: &Context<C::Resource>, progress: Progress) -> Progress {
        let key = ObjectRef::from_obj(&*context.resource);
        let Some(manager) = context.contract.spec.manager.as_ref().filter(|_| !C::JUDGES_MANAGER) else {
            self.manager_failures.forget(&key);
            return progress;
        };
        if progress.failure.is_some()
            || !matches!(progress.state, State::Ready | State::Warning | State::Processing)
        {
            self.manager_failures.forget(&key);
            return progress;
        }
        let (judgement, is_watched) = match self.judge_manager(context, manager).await {
            Ok(judged) => judged,
            Err(failure) => {
                // The failure says nothing about the streams of the previous pass.
                let before = self.watches.subscriptions(&key).into_iter();
                for watch in before.filter(|one| one.group == manager.group && one.kind == manager.kind) {
                    context.watch(watch);
                }
                (unreadable(manager, failure), true)
            }
        };
        if let ManagerHealth::Unknown(failure) = &judgement {
            let component = context.resource.name_any();
            tracing::info!(%component, %failure, "health of spec.manager is unknown");
        }
        let progress = judgement.add_to(progress, self.reported_for_generation(context).as_ref());
        // No event follows while the watch is broken or refused at the limit of streams. After a new subscription the
        // first event comes before this timer.
        if is_watched { progress } else { progress.again_within(LATE_LOOKUP_INTERVAL) }
    }

    /// Returns the judgement, and whether a change of the manager requeues the component.
    async fn judge_manager(
        &self,
        context: &Context<C::Resource>,
        manager: &Manager,
    ) -> Result<(ManagerHealth, bool), Failure> {
        let place = namespace_and_name(manager)?;
        let named = GroupVersionKind::gvk(&manager.group, &manager.version, &manager.kind);
        let reported = self.reported(context, condition::types::READY);
        let Some((kind, capabilities)) = served_kind(&context.target.client(), &named).await? else {
            self.manager_failures.forget(&ObjectRef::from_obj(&*context.resource));
            context.watch(WatchSpec::in_kind(&ApiResource::erase::<CustomResourceDefinition>(&())));
            let message = format!("waiting for the kind {} of spec.manager", kind_name(manager));
            let again = lookup_interval(reported.as_ref(), Timestamp::now());
            return Ok((ManagerHealth::Waiting(message, Some(again)), true));
        };
        let is_namespaced = matches!(capabilities.scope, Scope::Namespaced);
        let place = (place.0.filter(|_| is_namespaced), place.1);
        let (objects, is_watched) = self.listed_manager(context, &kind, place).await?;
        let now = Timestamp::now();
        let found: Vec<(String, Health)> = objects
            .iter()
            .map(|object| {
                let namespace = object.metadata.namespace.as_deref();
                (describe(manager, namespace), assess(&kind, object, now))
            })
            .collect();
        let fails = found.iter().any(|(_, health)| health.status == HealthStatus::Failed);
        let since = self.manager_failures.first_seen(&context.resource, fails, now);
        // An unhealthy component stays unhealthy, also after a restart of the operator.
        let was_unhealthy = reported.is_some_and(|ready| ready.reason == Reason::Unhealthy.as_str());
        let grace = if was_unhealthy { SignedDuration::ZERO } else { FAILURE_GRACE };
        let clock = FailureClock { now, since, grace };
        Ok((judge(&describe(manager, place.0), &found, clock), is_watched))
    }

    /// Lists the objects that the manager names, and watches them. Also returns whether the watch reports changes since
    /// the list. It does not if it begins with this reconcile, is broken, or exceeds the limit of streams.
    async fn listed_manager(
        &self,
        context: &Context<C::Resource>,
        kind: &ApiResource,
        place: (Option<&str>, &str),
    ) -> Result<(Vec<DynamicObject>, bool), Failure> {
        let objects = match list(context, kind, place).await {
            Ok(objects) => objects,
            Err(failure) => {
                // The first list of this watch is the event after a missing right was granted.
                context.watch(watch_spec(kind, place, None, context.owner()));
                return Err(failure);
            }
        };
        let all_owned = objects.iter().all(|object| has_owner(&object.metadata, context.owner()));
        let owned = objects.first().filter(|_| all_owned).map(|object| &object.metadata);
        let watch = watch_spec(kind, place, owned, context.owner());
        context.watch(watch.clone());
        let is_subscribed =
            self.watches.subscriptions(&ObjectRef::from_obj(&*context.resource)).contains(&watch);
        let unhealthy = self.watches.unhealthy(&context.target, [watch]);
        let is_watched = is_subscribed && unhealthy.is_empty();
        // A missing right to watch is reported, since only the target's owner can grant it.
        let mut causes = unhealthy.into_iter().filter_map(|(_, cause)| cause);
        let refused = causes.find(|failure| failure.reason == Reason::TargetForbidden);
        refused.map_or(Ok((objects, is_watched)), Err)
    }

    /// Returns the condition Ready of the status, if it was determined for the current generation.
    fn reported_for_generation(&self, context: &Context<C::Resource>) -> Option<Condition> {
        let generation = context.resource.meta().generation;
        self.reported(context, condition::types::READY)
            .filter(|ready| ready.observed_generation == generation)
    }
}

impl ManagerHealth {
    /// Adds the judgement to the progress of a step. `reported`: the condition Ready for the current generation, which a
    /// failed read must not change if it says that the component is ready or unhealthy.
    fn add_to(self, progress: Progress, reported: Option<&Condition>) -> Progress {
        match self {
            Self::Healthy => progress,
            Self::Waiting(event, None) => progress.awaiting(&event),
            Self::Waiting(event, Some(again)) => progress.awaiting(&event).again_within(again),
            Self::Failed(message) => unhealthy(progress, message),
            Self::Refused(failure) => progress.stopped_by(failure),
            Self::Unknown(failure) => {
                let again = failure.retry_after.unwrap_or(LOOKUP_INTERVAL);
                let event = format!("the health of spec.manager is unknown: {}", failure.message);
                let progress = match reported {
                    Some(ready) if ready.reason == Reason::Unhealthy.as_str() => {
                        unhealthy(progress, ready.message.clone())
                    }
                    Some(ready) if ready.status == "True" && progress.state != State::Processing => progress,
                    _ => progress.awaiting(&event),
                };
                progress.again_within(again)
            }
        }
    }
}

fn unhealthy(progress: Progress, message: String) -> Progress {
    let stopped = progress.stopped_by(Failure::new(Reason::Unhealthy, message));
    Progress { state: State::Error, ..stopped }
}

impl FailureClock {
    /// Returns the time until a failure counts, zero if it does already; `None` if the object does not fail.
    fn counts_in(self, health: &Health) -> Option<Duration> {
        let fails = health.status == HealthStatus::Failed;
        let since = health.failed_from.or(fails.then_some(self.since))?;
        let counts_at = since.checked_add(self.grace);
        let left = counts_at.map_or(SignedDuration::MAX, |counts_at| counts_at.duration_since(self.now));
        Some(Duration::try_from(left).unwrap_or_default())
    }
}

/// Returns the judgement on these objects, each with its name for messages. `name`: the manager's, for its absence.
fn judge(name: &str, found: &[(String, Health)], clock: FailureClock) -> ManagerHealth {
    if found.is_empty() {
        return ManagerHealth::Waiting(format!("waiting for {name} (it does not exist)"), None);
    }
    let failing = found.iter().map(|(_, health)| clock.counts_in(health));
    let failing: Vec<Option<Duration>> = failing.collect();
    let failed = found.iter().zip(&failing).filter(|(_, left)| **left == Some(Duration::ZERO));
    let failed: Vec<String> = failed.map(|(object, _)| words(object)).collect();
    if !failed.is_empty() {
        return ManagerHealth::Failed(kinds::listing(&failed));
    }
    let awaited: Vec<String> = found.iter().filter(|(_, health)| !health.is_current()).map(words).collect();
    if awaited.is_empty() {
        return ManagerHealth::Healthy;
    }
    let event = format!("waiting for {}", kinds::listing(&awaited));
    ManagerHealth::Waiting(event, failing.into_iter().flatten().min())
}

/// Returns the name of an object with the words of its health.
fn words((name, health): &(String, Health)) -> String {
    match health.message.as_str() {
        "" => name.clone(),
        why => format!("{name} ({why})"),
    }
}

/// Returns the judgement on a manager that could not be read.
fn unreadable(manager: &Manager, failure: Failure) -> ManagerHealth {
    match failure.reason {
        Reason::TargetForbidden => {
            let Failure { message, .. } = &failure;
            let kind = kind_name(manager);
            let message = format!(
                "{message}; the role on the target needs list and watch on {kind} for spec.manager (TARGET_RULES of the \
                 component)"
            );
            ManagerHealth::Refused(Failure { message, ..failure })
        }
        Reason::SpecInvalid => ManagerHealth::Refused(failure),
        _ => ManagerHealth::Unknown(failure),
    }
}

/// Returns namespace and name of the manager; any other text would change the meaning of a request.
fn namespace_and_name(manager: &Manager) -> Result<(Option<&str>, &str), Failure> {
    let namespace = manager.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    let wrong = [("name", Some(manager.name.as_str())), ("namespace", namespace)];
    let wrong = wrong.into_iter().find(|(_, value)| value.is_some_and(|value| !is_object_name(value)));
    match wrong {
        None => Ok((namespace, manager.name.as_str())),
        Some((field, _)) => {
            let message = format!("spec.manager.{field} is not the name of an object");
            Err(Failure::new(Reason::SpecInvalid, message))
        }
    }
}

/// Lists the objects of a name, in one or any namespace.
async fn list<R: ComponentResource>(
    context: &Context<R>,
    kind: &ApiResource,
    (namespace, name): (Option<&str>, &str),
) -> Result<Vec<DynamicObject>, Failure> {
    let action = format!("list {} {name}", kind.kind);
    let of_name = ListParams::default().fields(&format!("metadata.name={name}"));
    let listed = context.api(kind, namespace).list(&of_name).await;
    let listed = listed.map_err(|error| Failure::target(&action, &error))?;
    if listed.metadata.continue_.is_some_and(|token| !token.is_empty()) {
        return Err(Failure::new(Reason::TargetAnswerInvalid, format!("{action}: the list is incomplete")));
    }
    Ok(named(listed.items, (namespace, name), context.owner()))
}

/// Returns the objects that the manager names. If several namespaces have one, those that the component owns count, or
/// all if it owns none.
fn named(
    mut objects: Vec<DynamicObject>,
    (namespace, name): (Option<&str>, &str),
    owner: &str,
) -> Vec<DynamicObject> {
    objects.retain(|object| {
        let held = object.metadata.namespace.as_deref();
        object.metadata.name.as_deref() == Some(name)
            && (namespace.is_none() || held == namespace)
            && held.is_none_or(is_object_name)
    });
    if objects.iter().any(|object| has_owner(&object.metadata, owner)) {
        objects.retain(|object| has_owner(&object.metadata, owner));
    }
    objects
}

fn assess(kind: &ApiResource, object: &DynamicObject, now: Timestamp) -> Health {
    let Ok(mut whole) = serde_json::to_value(object) else {
        return Health::new(HealthStatus::Unknown, "it cannot be read");
    };
    // Items of a list have no apiVersion and kind.
    whole["apiVersion"] = kind.api_version.clone().into();
    whole["kind"] = kind.kind.clone().into();
    kyma_health::assess(&whole, now)
}

/// Returns kind, namespace and name for messages.
fn describe(manager: &Manager, namespace: Option<&str>) -> String {
    let (kind, name) = (kind_name(manager), &manager.name);
    namespace.map_or_else(|| format!("{kind} {name}"), |namespace| format!("{kind} {namespace}/{name}"))
}

fn kind_name(manager: &Manager) -> String {
    let Manager { group, kind, .. } = manager.clone();
    kinds::name(&GroupKind { group, version: None, kind })
}

#[cfg(test)]
mod tests;
