//! Maps events to the components to requeue, and runs the program around a component.

use std::{process::ExitCode, sync::Arc};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, Resource, ResourceExt};
use kube_runtime::reflector::ObjectRef;
use kyma_api::{Reason, names};
use kyma_controller::default_resource::RESOURCE;
use kyma_controller::rbac::Table;
use kyma_controller::{
    AccessChange, Change, Index, Listener, NoFlags, ObjectEvent, Operator, Program, Reconciler, RunError,
    Runtime, Trigger, WatchSpec, Watches, run_program,
};
use kyma_targets::SecretKey;
use parking_lot::Mutex;

use super::failure_times::FailureTimes;
use super::joined_reads::JoinedReads;
use super::state::Driver;
use super::uid_set::UidSet;
use crate::component::Component;
use crate::contract::{ComponentResource, Contract, HANDLED};
use crate::dependencies::Dependencies;
use crate::status::StatusWriter;

/// Runs the whole `main` of a component.
///
/// Provides the commands `run`, `crd`, `rbac`, `reasons`, `metrics` and `version`; see [`run_program`] for exit codes.
/// [The crate](crate) has an example.
pub fn run_component<C: Component>(component: C) -> ExitCode {
    run_program(ComponentProgram(component))
}

/// The program around a component, for processes that run several ([`kyma_controller::serve`]).
///
/// ```
/// use kube::Config;
/// use kyma_controller::{NoFlags, Process, Settings, StartError, serve};
/// use kyma_sdk::{Component, ComponentProgram};
///
/// async fn run_both(one: impl Component, other: impl Component, hub: Config) -> Result<(), StartError> {
///     let (process, settings) = (Process::new()?, Settings::for_command("kcp-system", "kyma-system"));
///     let one = serve(ComponentProgram(one), NoFlags {}, settings.clone(), hub.clone(), process.clone());
///     let other = serve(ComponentProgram(other), NoFlags {}, settings, hub, process);
///     tokio::try_join!(one, other).map(drop)
/// }
/// ```
pub struct ComponentProgram<C>(pub C);

impl<C: Component> Program for ComponentProgram<C> {
    type Flags = NoFlags;

    const OPERATOR: Operator = Operator { name: C::NAME, version: C::VERSION };
    const ABOUT: &'static str = "Installs a module on targets, as custom resources on the hub specify.";

    fn crds() -> Vec<CustomResourceDefinition> {
        vec![C::Resource::crd()]
    }

    fn rbac() -> Table {
        super::rbac::component_table::<C>()
    }

    fn reasons() -> Vec<Reason> {
        [Reason::all(), C::REASONS].concat()
    }

    async fn run(self, _: NoFlags, runtime: Runtime) -> Result<(), RunError> {
        drive(self.0, runtime).await;
        Ok(())
    }
}

/// Index of components by the name of their access Secret, or by their target.
type ComponentIndex<R> = Arc<Mutex<Index<String, ObjectRef<R>>>>;

/// Reconciles all components of a kind until the process shuts down.
///
/// ```
/// use kyma_controller::Runtime;
/// use kyma_sdk::{Component, drive};
///
/// async fn run<C: Component>(component: C, runtime: Runtime) {
///     drive(component, runtime).await;
/// }
/// ```
pub async fn drive<C: Component>(component: C, runtime: Runtime) {
    let reconciler = Reconciler::<C::Resource>::new(&runtime);
    let driver = Arc::new(driver(component, runtime, reconciler.trigger()));
    let by_secret: ComponentIndex<C::Resource> = Arc::default();
    let by_target: ComponentIndex<C::Resource> = Arc::default();
    let targets = Arc::clone(&by_target);
    driver.runtime.brake.set_target_counter(move || targets.lock().dependencies());
    requeue_on_access_change(&driver.runtime, &by_secret, &driver.trigger, &driver.watches);
    let (watching, forgetting) = (Arc::clone(&driver), Arc::clone(&driver));
    let reconciler =
        reconciler.on_change(move |change| process_change(&watching, (&by_secret, &by_target), change));
    reconciler
        .reaching(|resource| Contract::of(resource).ok()?.spec.target.kubeconfig_secret_ref)
        .forgetting(move |key| forgetting.gone(key))
        .run(move |resource, reconcile_context| {
            let driver = Arc::clone(&driver);
            async move {
                let _guard = driver.status.begin_reconcile(&resource);
                driver.reconcile(resource, reconcile_context).await
            }
        })
        .await;
}

/// Updates the state of the driver after a change of a component on the hub.
fn process_change<C: Component>(
    driver: &Driver<C>,
    (by_secret, by_target): (&ComponentIndex<C::Resource>, &ComponentIndex<C::Resource>),
    change: Change<'_, C::Resource>,
) {
    let contract = if let Change::Applied(resource) = change { Contract::of(resource).ok() } else { None };
    driver.dependencies.process_change(change, contract.as_ref());
    match change {
        Change::Applied(resource) => {
            index_component(by_secret, by_target, resource, contract);
            if driver.status.process_event(resource) {
                driver.trigger.enqueue(ObjectRef::from_obj(resource));
            }
        }
        Change::Deleted(key) => {
            by_secret.lock().remove(key);
            by_target.lock().remove(key);
            driver.gone(key);
        }
        Change::Listing => {
            driver.status.listing();
            // The hub may have been restored from a backup.
            driver.runtime.targets.invalidate_hub_records();
        }
        Change::Listed => {}
    }
}

fn driver<C: Component>(
    component: C,
    runtime: Runtime,
    trigger: Trigger<ObjectRef<C::Resource>>,
) -> Driver<C> {
    let crd = C::Resource::crd();
    Driver {
        component,
        watches: Watches::new(C::NAME, &runtime.process, WatchEvents { trigger: trigger.clone() }),
        status: StatusWriter::new(runtime.hub.clone(), C::NAME, runtime.process.metrics.clone()),
        dependencies: Dependencies::new(runtime.clone(), trigger.clone()),
        ended: UidSet::default(),
        deleted_alone: UidSet::default(),
        hub_scope_reads: JoinedReads::default(),
        manager_failures: FailureTimes::default(),
        reports_requests: has_status_field(&crd, HANDLED),
        creates_default_resource: !C::HANDLES_DEFAULT_RESOURCE && has_status_field(&crd, RESOURCE),
        runtime,
        trigger,
    }
}

impl<C: Component> Driver<C> {
    /// Cleans up after a component that is gone from the hub.
    fn gone(&self, key: &ObjectRef<C::Resource>) {
        self.released(key);
        self.ended.remove(key);
    }

    /// Drops all state and watches of a component that is gone or released.
    pub(super) fn released(&self, key: &ObjectRef<C::Resource>) {
        self.watches.unsubscribe(key);
        self.status.forget(key);
        self.manager_failures.forget(key);
        self.deleted_alone.remove(key);
        self.component.forget(key.namespace.as_deref().unwrap_or_default(), &key.name);
    }
}

/// Reports whether the status in this CRD has a field. The hub refuses unknown fields.
fn has_status_field(crd: &CustomResourceDefinition, field: &str) -> bool {
    let schemas =
        crd.spec.versions.iter().filter_map(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let mut statuses = schemas.filter_map(|schema| schema.properties.as_ref()?.get("status"));
    statuses.any(|status| status.properties.as_ref().is_some_and(|fields| fields.contains_key(field)))
}

/// Requeues components after events of their watches.
struct WatchEvents<R: Resource<DynamicType = ()>> {
    trigger: Trigger<ObjectRef<R>>,
}

impl<R> Listener<ObjectRef<R>> for WatchEvents<R>
where
    R: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    /// Requeues the owner of a changed object on a target; for streams without owner selector, all subscribers of the
    /// stream.
    fn on_event(
        &self,
        _: Option<&SecretKey>,
        watch_spec: &WatchSpec,
        event: &ObjectEvent,
        dependents: &[ObjectRef<R>],
    ) {
        let concerned = |dependent: &&ObjectRef<R>| match event {
            ObjectEvent::Listed { .. } => true,
            ObjectEvent::Applied(object) | ObjectEvent::Deleted(object) => {
                let owner = |label: &String| object.labels().get(label) == Some(&owner_of(dependent));
                watch_spec.labels.as_ref().is_none_or(owner)
            }
        };
        for dependent in dependents.iter().filter(concerned) {
            self.trigger.enqueue(dependent.clone());
        }
    }

    /// Requeues the subscriber, which may have read before a change that the stream delivered before it joined.
    fn on_joined(&self, _: Option<&SecretKey>, _: &WatchSpec, dependent: &ObjectRef<R>) {
        self.trigger.enqueue(dependent.clone());
    }

    /// Requeues all subscribers, so that those that must not miss a change report the missing right.
    fn on_refused(&self, _: Option<&SecretKey>, _: &WatchSpec, dependents: &[ObjectRef<R>]) {
        for dependent in dependents {
            self.trigger.enqueue(dependent.clone());
        }
    }
}

fn owner_of<R: Resource<DynamicType = ()>>(key: &ObjectRef<R>) -> String {
    names::owner_hash(key.namespace.as_deref().unwrap_or_default(), &key.name)
}

fn requeue_on_access_change<R>(
    runtime: &Runtime,
    by_secret: &ComponentIndex<R>,
    trigger: &Trigger<ObjectRef<R>>,
    watches: &Watches<ObjectRef<R>>,
) where
    R: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    let (by_secret, trigger, watches) = (Arc::clone(by_secret), trigger.clone(), watches.clone());
    runtime.access.on_change(move |change| {
        if let AccessChange::Applied(meta) | AccessChange::Deleted(meta) = change {
            watches.access_changed(meta.name.as_deref().unwrap_or_default());
        }
        let index = by_secret.lock();
        match change.secret() {
            Some(name) => index.dependents(&name.to_owned()).cloned().for_each(|key| trigger.enqueue(key)),
            None => index.objects().cloned().for_each(|key| trigger.enqueue(key)),
        }
    });
}

/// Indexes a component by the name of its access Secret, and by name and key, which identify one target.
fn index_component<R: ComponentResource>(
    by_secret: &ComponentIndex<R>,
    by_target: &ComponentIndex<R>,
    resource: &R,
    contract: Option<Contract>,
) {
    let secret = contract.and_then(|contract| contract.spec.target.kubeconfig_secret_ref);
    let target = secret.as_ref().map(|reference| format!("{}/{}", reference.name, reference.key));
    by_target.lock().set(ObjectRef::from_obj(resource), target);
    by_secret.lock().set(ObjectRef::from_obj(resource), secret.map(|reference| reference.name));
}

#[cfg(test)]
mod deleted_components;
#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::{FutureExt, StreamExt};
    use kube::api::ApiResource;
    use kyma_api::HelmComponent;

    use super::*;

    #[test]
    fn only_the_joiner_of_a_stream_is_requeued() {
        let trigger = Trigger::new();
        let events = WatchEvents::<HelmComponent> { trigger: trigger.clone() };
        let joiner = ObjectRef::new("late").within("kcp-system");
        let watch_spec = WatchSpec::in_kind(&ApiResource::erase::<CustomResourceDefinition>(&()));
        events.on_joined(None, &watch_spec, &joiner);
        let mut requeued = pin!(trigger.stream());
        assert_eq!(requeued.next().now_or_never(), Some(Some(joiner)));
        assert_eq!(requeued.next().now_or_never(), None);
    }
}
