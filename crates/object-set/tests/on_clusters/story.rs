//! Shared by the tests: a cluster, a namespace per test, and an owner that applies sets to it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kyma_api::ObjectSelector;
use kyma_object_set::prune::{self, PruneRequest};
use kyma_object_set::{
    AdoptionPolicy, ApplyOptions, ApplyReport, Cluster, Failure, ForeignObjectPolicy, Identity,
    IgnoredFields, Inventory, Limits, NoObservations, ObjectSet, Observations, Outcome, Ownership,
    Protection, PruneBlocked, Refusal, Removal, remove,
};
use serde_json::{Value, json};
use testbed::{InterceptedRequest, ScriptedServer, SharedTestEnv, until, until_or_why};
use tokio::sync::Mutex;

use super::deleter::OpenGate;

pub(crate) static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

pub(crate) const MANAGER: &str = "helm-component";
pub(crate) const EVENT_TIMEOUT: Duration = Duration::from_mins(1);
/// Deadline of a removal, whose steps wait for controllers one after another.
const REMOVAL_DEADLINE: Duration = Duration::from_mins(3);
/// Maximum number of applies of a set that end in a conflict. Each has tried several times.
const MAX_CONFLICTS: usize = 3;

/// An owner on a cluster, with its inventory and settings.
pub(crate) struct Story {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    pub(crate) ownership: Ownership,
    pub(crate) inventory: Inventory,
    pub(crate) adopt: AdoptionPolicy,
    pub(crate) repair: bool,
    pub(crate) foreign: ForeignObjectPolicy,
    pub(crate) ignored_fields: IgnoredFields,
    pub(crate) take_over: Vec<&'static str>,
    pub(crate) made_once: BTreeSet<Identity>,
    pub(crate) recreate: Vec<ObjectSelector>,
    pub(crate) are_new: bool,
    pub(crate) until: Option<Instant>,
    pub(crate) live_owners: BTreeSet<String>,
    /// Number of objects in the previous set.
    pub(crate) previous: usize,
}

impl Story {
    /// Starts an owner in a namespace of its own.
    pub(crate) async fn begin(name: &str) -> Result<Self> {
        let target = TEST_ENV.cluster("target", testbed::ClusterBuilder::with_controllers).await?;
        let namespace = target.namespace(name).await?;
        Ok(Self::on(Cluster::new(target.client()?), &namespace))
    }

    /// Returns an owner on any cluster.
    pub(crate) fn on(cluster: Cluster, namespace: &str) -> Self {
        Self::of(cluster, namespace, namespace, "1.0.0")
    }

    /// Returns another owner on the same cluster; each knows that the other one exists.
    pub(crate) fn neighbour(&mut self, version: &str) -> Self {
        let owner = format!("{}-b", self.namespace);
        self.live_owners.insert(owner.clone());
        let live_owners = [self.ownership.owner.clone()].into();
        Self { live_owners, ..Self::of(self.cluster.clone(), &self.namespace, &owner, version) }
    }

    /// Returns an owner that has applied nothing yet and knows of no other owner.
    fn of(cluster: Cluster, namespace: &str, owner: &str, version: &str) -> Self {
        let ownership =
            Ownership { manager: MANAGER.into(), owner: owner.to_owned(), version: version.into() };
        Self {
            cluster,
            namespace: namespace.to_owned(),
            ownership,
            inventory: Inventory::new(),
            adopt: AdoptionPolicy::Unowned,
            repair: false,
            foreign: ForeignObjectPolicy::Apply,
            ignored_fields: IgnoredFields::default(),
            take_over: vec![],
            made_once: BTreeSet::new(),
            recreate: vec![],
            are_new: false,
            until: None,
            live_owners: BTreeSet::new(),
            previous: 0,
        }
    }

    pub(crate) async fn try_apply(&mut self, text: &str, observed: &dyn Observations) -> Result<ApplyReport> {
        let set = ObjectSet::parse(text, &Limits::default())?;
        let live = self.live_owners.clone();
        let options = ApplyOptions {
            ownership: &self.ownership,
            adopt: self.adopt,
            owner_is_live: &|owner| live.contains(owner),
            strict: true,
            repair: self.repair,
            namespace: &self.namespace,
            parallel: 8,
            protection: &Protection::of_kubernetes(),
            foreign: self.foreign,
            take_over: &self.take_over,
            ignored_fields: &self.ignored_fields,
            made_once: &self.made_once,
            recreate: &self.recreate,
            are_new: self.are_new,
            until: self.until,
        };
        self.previous = self.inventory.len();
        let applied =
            kyma_object_set::apply(&self.gated(), &set, &self.inventory, observed, &options).await?;
        self.inventory = applied.inventory.clone();
        Ok(applied)
    }

    /// Applies a set until all of it is accepted, as callers do, and waits until discovery shows all of its kinds.
    pub(crate) async fn apply(&mut self, text: &str) -> Result<ApplyReport> {
        let story = Mutex::new(self);
        let conflicts = AtomicUsize::new(0);
        let applied = until_or_why("the set is accepted", EVENT_TIMEOUT, || async {
            let applied = story.lock().await.try_apply(text, &NoObservations).await?;
            let has = |is: fn(&Outcome) -> bool| applied.outcomes.iter().any(|(_, outcome)| is(outcome));
            if has(is_conflict) {
                let number = conflicts.fetch_add(1, Ordering::Relaxed) + 1;
                anyhow::ensure!(number <= MAX_CONFLICTS, "{number} conflicts: {:?}", applied.outcomes);
            }
            let is_accepted = !has(is_conflict) && !has(is_late);
            Ok(if is_accepted { Ok(applied) } else { Err(format!("{:?}", applied.outcomes)) })
        })
        .await?;
        anyhow::ensure!(applied.is_complete(), "{:?}", applied.outcomes);
        story.into_inner().discover(&applied).await?;
        Ok(applied)
    }

    /// Waits until discovery shows the kinds of all objects that are applied. API servers serve a kind before that.
    pub(crate) async fn discover(&self, applied: &ApplyReport) -> Result<()> {
        let Cluster { client, discovery, .. } = &self.cluster;
        until("discovery shows the kinds of the set", EVENT_TIMEOUT, || async {
            let kinds = discovery.kinds(client).await?;
            let is_shown = |(id, outcome): &(Identity, Outcome)| {
                matches!(outcome, Outcome::Missing(_)) || kinds.preferred(&id.group_kind()).is_some()
            };
            if applied.outcomes.iter().all(is_shown) {
                return Ok(Some(()));
            }
            discovery.invalidate().await;
            Ok(None)
        })
        .await
    }

    /// Prunes the objects that this applied set no longer has. Tries again after failures, as callers do: other tests
    /// remove kinds while a Namespace is searched for objects.
    pub(crate) async fn prune(&mut self, applied: &ApplyReport) -> Result<Result<Removal, PruneBlocked>> {
        let desired = applied.identities();
        let protection = Protection::of_kubernetes();
        let deadline = Instant::now() + EVENT_TIMEOUT;
        let mut all = Removal::default();
        loop {
            let request = PruneRequest {
                inventory: &self.inventory,
                desired: &desired,
                previous: self.previous,
                complete: applied.is_complete(),
                allow_shrink: false,
                api_version_gone: false,
                new_owner: &|_| None,
                is_hook: &|_| false,
                protection: &protection,
            };
            let plan = match prune::plan(&request) {
                Ok(plan) => plan,
                Err(blocked) => return Ok(Err(blocked)),
            };
            let removal =
                remove::prune(&self.gated(), &plan, &self.inventory, &self.ownership, &protection).await?;
            self.inventory = removal.remaining(&self.inventory);
            all.gone.extend(removal.gone);
            all.unserved.extend(removal.unserved);
            all.kept.extend(removal.kept);
            all.transferred.extend(removal.transferred);
            (all.waiting, all.later, all.failed) = (removal.waiting, removal.later, removal.failed);
            if all.failed.is_empty() || Instant::now() >= deadline {
                return Ok(Ok(all));
            }
        }
    }

    /// Makes one step of the removal of everything.
    pub(crate) async fn uninstall(&mut self) -> Result<Removal> {
        let protection = Protection::of_kubernetes();
        let removal = remove::uninstall(&self.gated(), &self.inventory, &self.ownership, &protection).await?;
        self.inventory = removal.remaining(&self.inventory);
        Ok(removal)
    }

    /// Removes everything, and waits until it is gone.
    pub(crate) async fn uninstall_all(&mut self) -> Result<Removal> {
        let state = Mutex::new((self, BTreeMap::new()));
        until_or_why("everything is gone", REMOVAL_DEADLINE, || async {
            let mut state = state.lock().await;
            let (story, kept) = &mut *state;
            let mut removal = story.uninstall().await?;
            kept.append(&mut removal.kept);
            if !removal.is_done() {
                return Ok(Err(format!("{removal:?}")));
            }
            Ok(Ok(Removal { kept: std::mem::take(kept), ..removal }))
        })
        .await
    }

    /// Returns the cluster with a delete gate.
    fn gated(&self) -> Cluster {
        self.cluster.clone().deleting_by(Arc::new(OpenGate))
    }

    pub(crate) fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }

    /// Returns an object as it is on the cluster.
    pub(crate) async fn live(&self, identity: &Identity) -> Result<Option<DynamicObject>> {
        Ok(self.api(identity).await?.get_opt(&identity.name).await?)
    }

    async fn api(&self, identity: &Identity) -> Result<Api<DynamicObject>> {
        let kinds = self.cluster.discovery.kinds(&self.cluster.client).await?;
        let mapping = kinds.preferred(&identity.group_kind()).context("kind")?;
        Ok(mapping.api(&self.cluster.client, identity.namespace.as_deref()))
    }

    /// Puts a proxy in front of the cluster. Before each of the first `times` JSON patches passes, another client
    /// writes: `write` gets an object's API and name, and the remaining number, which is also returned.
    pub(crate) async fn write_meanwhile<W>(
        &mut self,
        identity: &Identity,
        times: usize,
        write: impl Fn(Api<DynamicObject>, String, usize) -> W + Send + Sync + 'static,
    ) -> Result<(ScriptedServer, Arc<AtomicUsize>)>
    where
        W: Future<Output = kube::Result<()>> + Send + 'static,
    {
        let left = Arc::new(AtomicUsize::new(times));
        let (api, name, counted) = (self.api(identity).await?, identity.name.clone(), Arc::clone(&left));
        let between = move |passing: InterceptedRequest| {
            let is_patch = passing.received().method == "PATCH" && passing.body().starts_with(b"[");
            let number = counted.load(Ordering::Relaxed);
            let written = (is_patch && number > 0).then(|| {
                counted.store(number - 1, Ordering::Relaxed);
                write(api.clone(), name.clone(), number)
            });
            let answer = async move {
                if let Some(written) = written {
                    written.await.map_err(io::Error::other)?;
                }
                passing.onward().await
            };
            answer.boxed()
        };
        let target = TEST_ENV.cluster("target", testbed::ClusterBuilder::with_controllers).await?;
        let proxy = ScriptedServer::with(Arc::new(between), &target).await?;
        self.cluster.client = proxy.access().client()?;
        Ok((proxy, left))
    }

    /// Does the same as [`Story::write_meanwhile`] with a client that sets the annotation `left` to the remaining
    /// number.
    pub(crate) async fn annotate_meanwhile(
        &mut self,
        identity: &Identity,
        times: usize,
    ) -> Result<(ScriptedServer, Arc<AtomicUsize>)> {
        self.write_meanwhile(identity, times, annotate).await
    }

    /// Edits a ConfigMap with a merge patch as another manager.
    pub(crate) async fn edit(&self, name: &str, patch: Value) -> Result<ConfigMap> {
        let params = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
        Ok(self.config_maps().patch(name, &params, &Patch::Merge(patch)).await?)
    }

    pub(crate) fn config_map(&self, name: &str) -> Identity {
        Identity::new("", "ConfigMap", Some(&self.namespace), name)
    }
}

/// Sets the annotation `left` of an object.
async fn annotate(api: Api<DynamicObject>, name: String, left: usize) -> kube::Result<()> {
    let note = json!({"metadata": {"annotations": {"left": left.to_string()}}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(note)).await.map(drop)
}

/// Reports whether an object waits for its kind: on a busy machine an apply may not wait long enough for its CRDs, and
/// discovery shows them even later.
fn is_late(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Missing(_) | Outcome::Waiting(_))
}

/// Reports whether another client wrote to the object during each try of a patch.
fn is_conflict(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused(Refusal::Call(error)) if error.failure == Failure::Conflict)
}

/// Returns a ConfigMap with one value.
pub(crate) fn config_map(name: &str, value: &str) -> String {
    format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{v: '{value}'}}\n")
}

/// Returns the outcome of one object.
pub(crate) fn outcome<'a>(applied: &'a ApplyReport, name: &str) -> &'a Outcome {
    let found = applied.outcomes.iter().find(|(identity, _)| identity.name == name);
    found.map_or(&Outcome::Waiting("to be in the set"), |(_, outcome)| outcome)
}
