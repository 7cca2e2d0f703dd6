//! The cache of the dependencies among components.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ApiResource, ListParams};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use kube_runtime::reflector::ObjectRef;
use kyma_controller::{Change, Failure, Runtime, Trigger, evaluate_on_thread, run_on_thread};
use parking_lot::Mutex;
use serde_json::Value;

use super::decide::{self, DeletionBlockers, DependencyEffect};
use super::graph::{Graph, ListState, UnmetDependency, UnmetReason};
use super::kind_watch::{self, KindWatch};
use super::view::{self, Kind, Node, View, kyma_of, needs};
use crate::contract::{ComponentResource, Contract};

/// Time until expressions about one component have to be evaluated.
const EVALUATION_DEADLINE: Duration = Duration::from_secs(10);
/// Maximum number of watched kinds besides the operator's own.
pub(super) const MAX_WATCHED_KINDS: usize = 32;

/// Cache of the dependencies among components. Cheap to clone.
pub(crate) struct Dependencies<R: ComponentResource> {
    pub(super) inner: Arc<DependenciesInner<R>>,
}

pub(super) struct DependenciesInner<R: ComponentResource> {
    pub(super) runtime: Runtime,
    trigger: Trigger<ObjectRef<R>>,
    pub(super) graph: Mutex<Graph>,
    pub(super) followed: Mutex<HashMap<Kind, KindWatch>>,
    /// Components whose expressions are being evaluated, each with its latest state that is not evaluated yet.
    pending_evaluations: Mutex<HashMap<Node, Option<PendingEvaluation>>>,
    /// Held from a change of the graph until the watches of the kinds match it, so that these updates keep their
    /// order.
    pub(super) update_lock: Mutex<()>,
}

/// A component for which expressions have to be evaluated.
struct PendingEvaluation {
    uid: String,
    expressions: BTreeSet<String>,
    object: Value,
}

impl<R: ComponentResource> Clone for Dependencies<R> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<R: ComponentResource> Dependencies<R> {
    pub(crate) fn new(runtime: Runtime, trigger: Trigger<ObjectRef<R>>) -> Self {
        let inner = DependenciesInner {
            runtime,
            trigger,
            graph: Mutex::default(),
            followed: Mutex::default(),
            pending_evaluations: Mutex::default(),
            update_lock: Mutex::default(),
        };
        let new = Self { inner: Arc::new(inner) };
        let own = Kind::of::<R>();
        new.inner.graph.lock().set_list_state(&own, ListState::Listing);
        if !new.shows_all() {
            new.follow(own, [R::api_version(&()).into_owned()].into());
        }
        new
    }

    /// Reports whether the reconciler's own watch shows all components of its kind.
    fn shows_all(&self) -> bool {
        self.inner.runtime.settings.has_full_scope()
    }

    /// Processes an event of the reconciler's own watch; `contract` is the contract of the component in it.
    pub(crate) fn process_change(&self, change: Change<'_, R>, contract: Option<&Contract>) {
        if !self.shows_all() {
            return;
        }
        match change {
            Change::Applied(resource) => {
                let whole = || serde_json::to_value(resource).unwrap_or_default();
                let node = Node { kind: Kind::of::<R>(), name: resource.name_any() };
                let _guard = self.inner.update_lock.lock();
                self.update_component(
                    &node,
                    resource.meta(),
                    contract.unwrap_or(&Contract::default()),
                    whole,
                );
            }
            Change::Deleted(key) => {
                let _guard = self.inner.update_lock.lock();
                self.remove_component(&Node { kind: Kind::of::<R>(), name: key.name.clone() });
            }
            Change::Listed => {
                let affected = self.inner.graph.lock().set_list_state(&Kind::of::<R>(), ListState::Listed);
                self.requeue(affected);
            }
            Change::Listing => {}
        }
    }

    /// Returns the effect of its dependencies on a component whose status has these conditions.
    ///
    /// # Errors
    /// A component that an expression needs cannot be read from the hub.
    pub(crate) async fn effect(
        &self,
        resource: &R,
        contract: &Contract,
        conditions: &[Condition],
    ) -> Result<DependencyEffect, Failure> {
        let kyma = kyma_of(resource);
        let needs = needs(contract, kyma);
        if needs.is_empty() {
            return Ok(DependencyEffect::None);
        }
        let node = Node { kind: Kind::of::<R>(), name: resource.name_any() };
        let look = || {
            let graph = self.inner.graph.lock();
            (graph.unmet(kyma, &needs), graph.cycle(&node, &needs))
        };
        let (mut unmet, cycle) = look();
        if self.evaluate_missing(&unmet, &needs).await? {
            unmet = look().0;
        }
        let passed = decide::has_passed(conditions, resource.meta().generation);
        Ok(decide::decide(&unmet, cycle.as_deref(), passed))
    }

    /// Returns the components that depend on this one and so block its removal.
    ///
    /// # Errors
    /// The list of a kind is not complete yet; its end requeues the component.
    pub(crate) fn deletion_blockers(&self, resource: &R) -> Result<Option<DeletionBlockers>, String> {
        let node = Node { kind: Kind::of::<R>(), name: resource.name_any() };
        let holders = self.inner.graph.lock().holders(&node);
        let holders = holders.map_err(|kind| format!("waiting for the list of all {} objects", kind.kind))?;
        Ok(decide::describe_holders(holders.iter().map(|(node, deleting)| (node, *deleting))))
    }

    /// Reads components that were observed before an expression was added. Returns whether there were any.
    async fn evaluate_missing(
        &self,
        unmet: &[UnmetDependency],
        needs: &[view::Requirement],
    ) -> Result<bool, Failure> {
        let mut any = false;
        for one in unmet {
            let UnmetReason::NotEvaluated(node, expression) = &one.why else { continue };
            let named = needs.iter().filter(|need| need.name == one.name);
            let versions = named.map(|need| need.version.clone()).collect();
            let resource = self.resource(&node.kind, &versions).await;
            let failed = |error: kube::Error| Failure::hub(&format!("read {node}"), &error);
            let api = self.api(&resource.map_err(failed)?);
            // A list with a field selector: a role that allows list and watch need not allow get.
            let params = ListParams::default().fields(&format!("metadata.name={}", node.name));
            let found = api.list(&params).await.map_err(failed)?.items.pop();
            let Some(object) = found else { continue };
            let object = serde_json::to_value(object).unwrap_or_default();
            let expressions = BTreeSet::from([expression.clone()]);
            let evaluate = move || view::evaluate(expressions, &object);
            let judged = evaluate_on_thread(&node.to_string(), EVALUATION_DEADLINE, evaluate).await?;
            self.inner.graph.lock().add_results(node, judged);
            any = true;
        }
        Ok(any)
    }

    /// Adds or updates a component. The caller holds [`DependenciesInner::update_lock`].
    pub(super) fn update_component(
        &self,
        node: &Node,
        meta: &kube::api::ObjectMeta,
        contract: &Contract,
        whole: impl FnOnce() -> Value,
    ) {
        let mut view = View::of(meta, contract, std::collections::BTreeMap::new());
        let mut graph = self.inner.graph.lock();
        let expressions = graph.expressions(node, view.as_module().as_ref());
        view.judged = graph.results(node, &view.uid, &expressions);
        let uid = view.uid.clone();
        let affected = graph.set(node, view);
        let kinds = graph.new_kinds();
        drop(graph);
        self.requeue(affected);
        self.follow_all(kinds);
        if !expressions.is_empty() {
            self.queue_evaluation(node, PendingEvaluation { uid, expressions, object: whole() });
        }
    }

    /// Evaluates the expressions of a component outside of the watch. Until then the results for its previous state
    /// count; of several pending states only the latest is evaluated.
    fn queue_evaluation(&self, node: &Node, pending: PendingEvaluation) {
        if self.inner.pending_evaluations.lock().insert(node.clone(), Some(pending)).is_some() {
            return;
        }
        let (dependencies, node, group) = (self.clone(), node.clone(), node.to_string());
        tokio::spawn(async move {
            while let Some(PendingEvaluation { uid, expressions, object }) = dependencies.next_pending(&node)
            {
                let evaluate = move || view::evaluate(expressions, &object);
                let Ok(judged) = run_on_thread(&group, evaluate).await else { continue };
                let _guard = dependencies.inner.update_lock.lock();
                let affected = dependencies.inner.graph.lock().set_results(&node, &uid, judged);
                dependencies.requeue(affected);
            }
        });
    }

    /// Returns the latest state of a component that is not evaluated yet. Without one, the task ends and the next
    /// state needs a new task.
    fn next_pending(&self, node: &Node) -> Option<PendingEvaluation> {
        let mut pending_evaluations = self.inner.pending_evaluations.lock();
        let next = pending_evaluations.get_mut(node).and_then(Option::take);
        if next.is_none() {
            pending_evaluations.remove(node);
        }
        next
    }

    /// Removes a component. The caller holds [`DependenciesInner::update_lock`].
    pub(super) fn remove_component(&self, node: &Node) {
        let mut graph = self.inner.graph.lock();
        let affected = graph.remove(node);
        let kinds = graph.new_kinds();
        drop(graph);
        self.requeue(affected);
        self.follow_all(kinds);
    }

    /// Requeues components of the operator's own kind; other kinds have their own reconcilers.
    pub(super) fn requeue(&self, nodes: BTreeSet<Node>) {
        let own = Kind::of::<R>();
        for node in nodes.into_iter().filter(|node| node.kind == own) {
            let key = ObjectRef::new(&node.name).within(&self.inner.runtime.settings.hub_namespace);
            self.inner.trigger.enqueue(key);
        }
    }

    /// Returns the kind as the hub serves it, in the first served one of these versions.
    pub(super) async fn resource(
        &self,
        kind: &Kind,
        versions: &BTreeSet<String>,
    ) -> kube::Result<ApiResource> {
        if *kind == Kind::of::<R>() {
            return Ok(ApiResource::erase::<R>(&()));
        }
        kind_watch::resource(&self.inner.runtime.hub, kind, versions).await
    }

    pub(super) fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        let namespace = &self.inner.runtime.settings.hub_namespace;
        Api::namespaced_with(self.inner.runtime.hub.clone(), namespace, resource)
    }
}

#[cfg(test)]
impl<R: ComponentResource> Dependencies<R> {
    /// Reports whether no component has an entry.
    pub(crate) fn is_empty(&self) -> bool {
        let inner = &self.inner;
        inner.graph.lock().is_empty()
            && inner.followed.lock().is_empty()
            && inner.pending_evaluations.lock().is_empty()
    }
}
