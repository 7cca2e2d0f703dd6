//! What components depend on among other components: watched on the hub, kept reduced, told by event.
//!
//! The own kind comes with the reconciler's watch, the kinds that components name beside it with one watch each, for as
//! long as one names them.

mod decide;
mod follow;
mod graph;
mod view;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ApiResource, ListParams};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use kube_runtime::reflector::ObjectRef;
use serde_json::Value;

pub(crate) use decide::{HeldUp, Hold, is_stale};
use follow::Followed;
use graph::{Graph, Standing, Unmet, Why};
pub(crate) use view::Kind;
use view::{Node, View, kyma_of, needs};

use crate::evaluation::{evaluate_apart, run_apart};
use crate::{Change, ComponentResource, Contract, Failure, Runtime, Trigger};

/// Time until expressions about one component have to be evaluated.
const JUDGING_DEADLINE: Duration = Duration::from_secs(10);
/// Kinds that are followed at most, beside the own one.
const KINDS: usize = 32;

/// All that is known of dependencies among components. Cheap to clone.
pub(crate) struct Dependencies<R: ComponentResource> {
    inner: Arc<Inner<R>>,
}

struct Inner<R: ComponentResource> {
    runtime: Runtime,
    trigger: Trigger<ObjectRef<R>>,
    graph: Mutex<Graph>,
    followed: Mutex<HashMap<Kind, Followed>>,
    /// Components that are being judged by expressions, each with its latest state that was not yet.
    judging: Mutex<HashMap<Node, Option<PendingJudgement>>>,
    /// Held from a change of what is known until the kinds that follow from it are followed: they come in its order.
    turn: Mutex<()>,
}

/// A component that expressions have to judge.
struct PendingJudgement {
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
        let inner = Inner {
            runtime,
            trigger,
            graph: Mutex::default(),
            followed: Mutex::default(),
            judging: Mutex::default(),
            turn: Mutex::default(),
        };
        let new = Self { inner: Arc::new(inner) };
        let own = Kind::of::<R>();
        lock(&new.inner.graph).stands(&own, Standing::Listing);
        if !new.shows_all() {
            new.follow(own, [R::api_version(&()).into_owned()].into());
        }
        new
    }

    /// Whether the reconciler's own watch shows all components of its kind.
    fn shows_all(&self) -> bool {
        self.inner.runtime.settings.has_full_scope()
    }

    /// The reconciler's own watch told this; `contract` is that of a component that it shows.
    pub(crate) fn saw(&self, change: Change<'_, R>, contract: Option<&Contract>) {
        if !self.shows_all() {
            return;
        }
        match change {
            Change::Applied(resource) => {
                let whole = || serde_json::to_value(resource).unwrap_or_default();
                let node = Node { kind: Kind::of::<R>(), name: resource.name_any() };
                let _turn = lock(&self.inner.turn);
                self.learn(&node, resource.meta(), contract.unwrap_or(&Contract::default()), whole);
            }
            Change::Gone(key) => {
                let _turn = lock(&self.inner.turn);
                self.lose(&Node { kind: Kind::of::<R>(), name: key.name.clone() });
            }
            Change::Listed => {
                let affected = lock(&self.inner.graph).stands(&Kind::of::<R>(), Standing::Listed);
                self.wake(affected);
            }
            Change::Listing => {}
        }
    }

    /// What its dependencies mean for a component whose status has these conditions.
    ///
    /// # Errors
    /// The hub does not tell how a component is that an expression has to be judged by.
    pub(crate) async fn hold(
        &self,
        resource: &R,
        contract: &Contract,
        conditions: &[Condition],
    ) -> Result<Hold, Failure> {
        let kyma = kyma_of(resource);
        let needs = needs(contract, kyma);
        if needs.is_empty() {
            return Ok(Hold::None);
        }
        let node = Node { kind: Kind::of::<R>(), name: resource.name_any() };
        let look = || {
            let graph = lock(&self.inner.graph);
            (graph.unmet(kyma, &needs), graph.cycle(&node, &needs))
        };
        let (mut unmet, cycle) = look();
        if self.judge_unjudged(&unmet, &needs).await? {
            unmet = look().0;
        }
        let passed = decide::has_passed(conditions, resource.meta().generation);
        Ok(decide::decide(&unmet, cycle.as_deref(), passed))
    }

    /// What holds up the removal of a component: those that depend on it.
    ///
    /// # Errors
    /// Not all of them are known yet; the end of the list brings the component back.
    pub(crate) fn held_up(&self, resource: &R) -> Result<Option<HeldUp>, String> {
        let node = Node { kind: Kind::of::<R>(), name: resource.name_any() };
        let holders = lock(&self.inner.graph).holders(&node);
        let holders = holders.map_err(|kind| format!("waiting for the list of all {} objects", kind.kind))?;
        Ok(decide::describe_holders(holders.iter().map(|(node, deleting)| (node, *deleting))))
    }

    /// Reads what was seen before an expression came; whether there was anything.
    async fn judge_unjudged(&self, unmet: &[Unmet], needs: &[view::Need]) -> Result<bool, Failure> {
        let mut any = false;
        for one in unmet {
            let Why::Unjudged(node, expression) = &one.why else { continue };
            let named = needs.iter().filter(|need| need.name == one.name);
            let versions = named.map(|need| need.version.clone()).collect();
            let resource = self.resource(&node.kind, &versions).await;
            let failed = |error: kube::Error| Failure::hub(&format!("read {node}"), &error);
            let api = self.api(&resource.map_err(failed)?);
            // By a list of one: who may watch a kind need not be allowed to get as well.
            let params = ListParams::default().fields(&format!("metadata.name={}", node.name));
            let found = api.list(&params).await.map_err(failed)?.items.pop();
            let Some(object) = found else { continue };
            let object = serde_json::to_value(object).unwrap_or_default();
            let expressions = BTreeSet::from([expression.clone()]);
            let judged = evaluate_apart(JUDGING_DEADLINE, move || view::judge(expressions, &object)).await?;
            lock(&self.inner.graph).judged(node, judged);
            any = true;
        }
        Ok(any)
    }

    /// A component is there, new or changed. Under [`Inner::turn`].
    fn learn(
        &self,
        node: &Node,
        meta: &kube::api::ObjectMeta,
        contract: &Contract,
        whole: impl FnOnce() -> Value,
    ) {
        let mut view = View::of(meta, contract, std::collections::BTreeMap::new());
        let mut graph = lock(&self.inner.graph);
        let expressions = graph.expressions(node, view.as_module().as_ref());
        view.judged = graph.judgements(node, &view.uid, &expressions);
        let uid = view.uid.clone();
        let affected = graph.set(node, view);
        let kinds = graph.new_kinds();
        drop(graph);
        self.wake(affected);
        self.follow_all(kinds);
        if !expressions.is_empty() {
            self.judge_apart(node, PendingJudgement { uid, expressions, object: whole() });
        }
    }

    /// Has a component judged apart from the watch that showed it. Until then its judgements are those of its state
    /// before; of several states only the latest is judged.
    fn judge_apart(&self, node: &Node, unjudged: PendingJudgement) {
        if lock(&self.inner.judging).insert(node.clone(), Some(unjudged)).is_some() {
            return;
        }
        let (dependencies, node) = (self.clone(), node.clone());
        tokio::spawn(async move {
            while let Some(PendingJudgement { uid, expressions, object }) = dependencies.next_unjudged(&node)
            {
                let Ok(judged) = run_apart(move || view::judge(expressions, &object)).await else { continue };
                let _turn = lock(&dependencies.inner.turn);
                let affected = lock(&dependencies.inner.graph).rejudged(&node, &uid, judged);
                dependencies.wake(affected);
            }
        });
    }

    /// The latest state of a component that was not judged; without one, the next one needs a new task.
    fn next_unjudged(&self, node: &Node) -> Option<PendingJudgement> {
        let mut judging = lock(&self.inner.judging);
        let next = judging.get_mut(node).and_then(Option::take);
        if next.is_none() {
            judging.remove(node);
        }
        next
    }

    /// A component is gone. Under [`Inner::turn`].
    fn lose(&self, node: &Node) {
        let mut graph = lock(&self.inner.graph);
        let affected = graph.remove(node);
        let kinds = graph.new_kinds();
        drop(graph);
        self.wake(affected);
        self.follow_all(kinds);
    }

    /// Those of the own kind look again; the others have reconcilers of their own.
    fn wake(&self, nodes: BTreeSet<Node>) {
        let own = Kind::of::<R>();
        for node in nodes.into_iter().filter(|node| node.kind == own) {
            let key = ObjectRef::new(&node.name).within(&self.inner.runtime.settings.hub_namespace);
            self.inner.trigger.enqueue(key);
        }
    }

    /// The kind as the hub serves it, in the first of these versions in which it does.
    async fn resource(&self, kind: &Kind, versions: &BTreeSet<String>) -> kube::Result<ApiResource> {
        if *kind == Kind::of::<R>() {
            return Ok(ApiResource::erase::<R>(&()));
        }
        follow::resource(&self.inner.runtime.hub, kind, versions).await
    }

    fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        let namespace = &self.inner.runtime.settings.hub_namespace;
        Api::namespaced_with(self.inner.runtime.hub.clone(), namespace, resource)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
