//! Steps that write to the target.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, ListParams, PartialObjectMeta, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use kyma_api::{Adopt, CreatedResource, FreeForm, HelmComponent, Reason, labels, names};
use kyma_object_set::apply::{self, Applied, ApplyOptions, Outcome, Refusal};
use kyma_object_set::prune::{self, PruneBlocked, PrunePlan, PruneRequest};
use kyma_object_set::remove::{self, Removal};
use kyma_object_set::{
    CallError, Entry, Gvk, Identity, Inventory, Mapping, Object, ObjectSet, Observed, Protection,
};
use kyma_sdk::{Blocking, Failure, Interest, find_blockers};

use super::Pass;
use crate::content::Loaded;
use crate::memory::Recorded;
use crate::plan;

/// Requests to one target at the same time.
const PARALLEL: usize = 8;

/// How long a kind may take from established to served.
const LAG: Duration = Duration::from_millis(200);

/// On a component: the generation for which a person confirmed that a much smaller set is meant.
pub(crate) const ALLOW_SHRINK: &str = "component.kyma-project.io/allow-shrink";

impl Pass<'_> {
    /// Makes the release's namespace where it is missing. It is the user's from then on.
    pub(super) async fn namespace(&mut self) {
        match self.ensure_namespace().await {
            Ok(()) => self.session.namespace_ready = true,
            Err(failure) => self.done.load = Some(failure),
        }
    }

    async fn ensure_namespace(&self) -> Result<(), Failure> {
        let inputs = self.inputs.as_ref().map_err(Clone::clone)?;
        let name = &inputs.release.namespace;
        let namespaces: Api<Namespace> = Api::all(self.cluster.client.clone());
        let action = format!("namespace {name}");
        let found =
            namespaces.get_metadata_opt(name).await.map_err(|error| Failure::target(&action, &error))?;
        if found.is_some() || !inputs.release.create_namespace {
            return Ok(());
        }
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.clone());
        let params = PostParams { field_manager: Some(self.ownership.creator()), ..PostParams::default() };
        match namespaces.create(&params, &namespace).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(Failure::target(&action, &error)),
        }
    }

    /// Sends what is due, stage by stage.
    pub(super) async fn apply(&mut self, seen: &plan::Observed) {
        let Some(loaded) = self.session.loaded.clone() else { return };
        self.done.applied = true;
        self.done.before = Some(self.session.recorded.inventory.len());
        let due: BTreeSet<&Identity> =
            seen.pieces.iter().filter(|piece| seen.needs_apply(piece)).map(|piece| &piece.identity).collect();
        let objects = &loaded.prepared.objects;
        let set =
            ObjectSet::new(objects.iter().filter(|one| due.contains(&one.identity())).cloned().collect());
        let observed = self.observed(seen);
        let result = match self.send(&set, &self.session.recorded.inventory, &observed, &|_| true).await {
            Ok(applied) => self.send_over_the_dead(&set, &observed, applied).await,
            failed => failed,
        };
        match result {
            Ok(applied) => self.take_applied(&loaded, applied).await,
            Err(failure) => self.done.load = Some(failure),
        }
    }

    async fn send(
        &self,
        set: &ObjectSet,
        inventory: &Inventory,
        observed: &BTreeMap<Identity, Observed>,
        owner_is_live: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Applied, Failure> {
        let namespace =
            self.inputs.as_ref().map(|inputs| inputs.release.namespace.clone()).unwrap_or_default();
        let protection = protection();
        let options = ApplyOptions {
            ownership: &self.ownership,
            adopt: adopt(self.context.resource.spec.adopt),
            owner_is_live,
            strict: false,
            namespace: &namespace,
            parallel: PARALLEL,
            protection: &protection,
            take_over: &[],
        };
        // Boxed, or the compiler cannot prove that the whole pass may move between threads.
        let applied = apply::apply(&self.cluster, set, inventory, observed, &options).boxed().await;
        applied.map_err(|error| failure(&error))
    }

    /// Tries objects of other owners again whose component the hub no longer has.
    async fn send_over_the_dead(
        &self,
        set: &ObjectSet,
        observed: &BTreeMap<Identity, Observed>,
        applied: Applied,
    ) -> Result<Applied, Failure> {
        let adopts = self.context.resource.spec.adopt == Adopt::Unowned;
        let foreign = applied.errors().any(|(_, refusal)| matches!(refusal, Refusal::OwnedByOther { .. }));
        if !(adopts && foreign) {
            return Ok(applied);
        }
        let components: Api<PartialObjectMeta<HelmComponent>> =
            Api::namespaced(self.context.hub.clone(), &self.dependent.namespace);
        let listed = components.list(&ListParams::default()).await;
        let listed = listed.map_err(|error| Failure::hub("list components", &error))?;
        let live: BTreeSet<String> = listed
            .items
            .iter()
            .map(|one| names::owner_hash(&one.namespace().unwrap_or_default(), &one.name_any()))
            .collect();
        self.send(set, &applied.inventory, observed, &|owner| live.contains(owner)).await
    }

    /// What the watches show, as the apply sees it.
    fn observed(&self, seen: &plan::Observed) -> BTreeMap<Identity, Observed> {
        let snapshot = self.shared.sights.snapshot(
            &self.context.target,
            &self.dependent,
            &self.session.recorded.inventory,
        );
        if !seen.watched {
            return BTreeMap::new();
        }
        snapshot.objects.into_iter().map(|(identity, sight)| (identity, sight.observed)).collect()
    }

    async fn take_applied(&mut self, loaded: &Loaded, applied: Applied) {
        let mut missing = vec![];
        for (identity, outcome) in &applied.outcomes {
            match outcome {
                Outcome::Refused(refusal) => {
                    let failure = Failure::new(refusal.reason(), refusal.to_string());
                    self.done.faults.insert(identity.clone(), failure);
                }
                Outcome::Waiting(what) => {
                    self.done.waiting.insert(identity.clone(), (*what).to_owned());
                }
                Outcome::Applied { .. } => {
                    if let Some(entry) = applied.inventory.get(identity) {
                        self.shared.sights.note(&self.context.target, identity, self.sight_of(entry));
                    }
                }
                Outcome::Missing(gvk) => {
                    missing.push(identity.clone());
                    tracing::info!(%identity, %gvk, "the target does not serve the kind; the object waits for it");
                }
                Outcome::Unchanged | Outcome::Skipped => {}
            }
        }
        self.session.recorded.inventory = applied.inventory;
        // With its kind an object went too.
        for identity in missing {
            self.session.recorded.inventory.remove(&identity);
        }
        if self.done.faults.is_empty() {
            self.session.recorded.digests = kyma_api::Digests {
                inputs: Some(loaded.inputs.clone()),
                kinds: loaded.kinds.clone(),
                source: Some(loaded.source.clone()),
                values: self.inputs.as_ref().ok().map(|inputs| inputs.values_digest.clone()),
                rendered: Some(loaded.rendered.clone()),
            };
        }
        // CRDs of the set may have brought kinds.
        if let Ok(kinds) = self.cluster.discovery.kinds(&self.cluster.client).await
            && !std::sync::Arc::ptr_eq(&kinds, &self.kinds)
        {
            self.kinds = kinds;
            self.done.watching = false;
            self.rescope();
        }
    }

    /// What the stream will show of an object that was just applied.
    fn sight_of(&self, entry: &Entry) -> Observed {
        Observed {
            uid: entry.uid.clone(),
            fingerprint: entry.fingerprint.clone(),
            deleting: false,
            owner: Some(self.ownership.owner.clone()),
        }
    }

    /// Deletes what is no longer wanted.
    pub(super) async fn prune(&mut self, surplus: Vec<Identity>) {
        self.adopt_strays(&surplus);
        let inventory = self.session.recorded.inventory.clone();
        self.done.pruned = Some(match self.prune_plan(&inventory) {
            Ok(plan) => {
                let pruned = remove::prune(&self.cluster, &plan, &inventory, &self.ownership, &protection())
                    .boxed()
                    .await;
                pruned
                    .map_err(|error| failure(&error))
                    .and_then(|removal| self.take_removal(&inventory, &removal))
            }
            Err(blocked) => Err(Failure::new(
                blocked.reason(),
                format!("{blocked}; confirm with the annotation {ALLOW_SHRINK}=<metadata.generation>"),
            )),
        });
    }

    fn prune_plan(&self, inventory: &Inventory) -> Result<PrunePlan, PruneBlocked> {
        let wanted = self.session.loaded.iter().flat_map(|loaded| &loaded.prepared.objects);
        let desired: BTreeSet<Identity> = wanted.map(Object::identity).collect();
        prune::plan(&PruneRequest {
            inventory,
            desired: &desired,
            previous: self.done.before.unwrap_or(inventory.len()),
            complete: true,
            allow_shrink: allows_shrink(&self.context.resource),
            claimed: &|_| false,
            protection: &protection(),
        })
    }

    /// Objects with our label that the inventory lacks, left by a pass that was killed, join it with their uid.
    fn adopt_strays(&mut self, surplus: &[Identity]) {
        let snapshot = self.shared.sights.snapshot(
            &self.context.target,
            &self.dependent,
            &self.session.recorded.inventory,
        );
        for identity in surplus {
            let Some(sight) = snapshot.objects.get(identity) else { continue };
            if self.session.recorded.inventory.contains(identity) {
                continue;
            }
            let version = self.kinds.preferred(&identity.group_kind());
            let entry = Entry {
                version: version.map(|mapping| mapping.resource.version.clone()).unwrap_or_default(),
                uid: sight.observed.uid.clone(),
                fingerprint: sight.observed.fingerprint.clone(),
                ..Entry::default()
            };
            self.session.recorded.inventory.insert(identity.clone(), entry);
        }
    }

    fn take_removal(&mut self, before: &Inventory, removal: &Removal) -> Result<(), Failure> {
        self.session.recorded.inventory = removal.remaining(before);
        self.done.kept.extend(removal.kept.keys().cloned());
        removal.failed.first().map_or(Ok(()), |error| Err(failure(error)))
    }

    /// Makes the default custom resource, once.
    pub(super) async fn default_resource(&mut self) {
        match self.make_default_resource().await {
            Ok(made) => {
                self.session.recorded.resource = Some(made);
                self.done.watching = false;
            }
            Err(failure) => self.done.default_resource = Some(failure),
        }
    }

    async fn make_default_resource(&self) -> Result<CreatedResource, Failure> {
        let (mapping, identity, body) = self.default_object()?;
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        let params = PostParams { field_manager: Some(self.ownership.creator()), ..PostParams::default() };
        let object: DynamicObject = serde_json::from_value(body.into())
            .map_err(|error| Failure::new(Reason::ManifestInvalid, format!("spec.resource: {error}")))?;
        let uid = match api.create(&params, &object).await {
            Ok(made) => made.metadata.uid,
            // The user was first: it is theirs.
            Err(kube::Error::Api(status)) if status.is_already_exists() => None,
            Err(error) => {
                let error = CallError::new(kyma_object_set::Action::Create, Some(&identity), error);
                let failure = failure(&error);
                // The kind of a CRD that was just established is served a moment later.
                let soon = error.failure == kyma_object_set::Failure::NotFound;
                return Err(if soon { failure.retry_after(LAG) } else { failure });
            }
        };
        Ok(CreatedResource {
            api_version: mapping.resource.api_version.clone(),
            kind: identity.kind,
            namespace: identity.namespace,
            name: identity.name,
            uid,
        })
    }

    /// The default custom resource as it is sent, and how it is reached.
    fn default_object(&self) -> Result<(Mapping, Identity, FreeForm), Failure> {
        let invalid = |what: &str| Failure::new(Reason::ManifestInvalid, format!("spec.resource {what}"));
        let resource = self.context.resource.spec.resource.clone().unwrap_or_default();
        let object = Object::from_value(resource.into()).map_err(|error| invalid(&error.to_string()))?;
        let mapping = self
            .served
            .get(&object.gvk())
            .cloned()
            .ok_or_else(|| invalid("has a kind that is not served"))?;
        let namespace =
            self.inputs.as_ref().map(|inputs| inputs.release.namespace.clone()).unwrap_or_default();
        let identity = self.served.scoped(&object.identity(), &namespace);
        let mut object = object;
        object.set_namespace(identity.namespace.as_deref());
        object.set_label(labels::OWNER, &self.ownership.owner);
        Ok((mapping, identity, object.body().clone()))
    }

    /// One step of the removal: the default custom resource first, then everything else in order.
    pub(super) async fn remove(&mut self) {
        self.done.removal = Some(self.removal_step().await);
    }

    async fn removal_step(&mut self) -> Result<Vec<String>, Failure> {
        self.refuse_while_blocked().await?;
        if let Some(waiting) = self.remove_default_resource().await? {
            return Ok(vec![waiting]);
        }
        let inventory = self.session.recorded.inventory.clone();
        let removal = remove::uninstall(&self.cluster, &inventory, &self.ownership, &protection())
            .boxed()
            .await
            .map_err(|error| failure(&error))?;
        self.take_removal(&inventory, &removal)?;
        self.watch_namespaces(&removal.waiting);
        Ok(removal.waiting.iter().chain(&removal.later).map(ToString::to_string).collect())
    }

    /// Namespaces carry no owner label, so no other watch shows that they are gone.
    fn watch_namespaces(&self, waiting: &[Identity]) {
        let mut kinds = waiting.iter().map(Identity::group_kind);
        let namespace = kinds.find(|kind| kind.group.is_empty() && kind.kind == "Namespace");
        if let Some(mapping) = namespace.and_then(|kind| self.kinds.preferred(&kind)) {
            self.context.watch(Interest::in_kind(&mapping.resource));
        }
    }

    /// Objects of the kinds that the module's CRDs define belong to users. What cannot be listed counts as there.
    async fn refuse_while_blocked(&self) -> Result<(), Failure> {
        let recorded = &self.session.recorded;
        let crds: BTreeSet<&str> = recorded
            .inventory
            .iter()
            .filter(|(identity, _)| identity.is_crd())
            .map(|(identity, _)| identity.name.as_str())
            .collect();
        let defined = self.kinds.all().filter(|mapping| {
            crds.contains(format!("{}.{}", mapping.resource.plural, mapping.resource.group).as_str())
        });
        let kinds = defined.map(|mapping| kyma_api::GroupKind {
            group: mapping.resource.group.clone(),
            version: None,
            kind: mapping.resource.kind.clone(),
        });
        let blocking = Blocking { kinds: kinds.collect(), own: own_uids(recorded) };
        let blockers = find_blockers(&self.cluster.client, &blocking).await?;
        // Also while nothing blocks: what comes between this look and the deletion of the CRDs is seen.
        blockers.resources.iter().for_each(|resource| self.context.watch(Interest::in_kind(resource)));
        match blockers.count {
            0 => Ok(()),
            _ => Err(Failure::new(Reason::DeletionBlocked, blockers.describe())),
        }
    }

    /// Deletes the default custom resource if we made it and it is still that very one; names it while it is there.
    async fn remove_default_resource(&self) -> Result<Option<String>, Failure> {
        let Some(made) = &self.session.recorded.resource else { return Ok(None) };
        let Some(uid) = made.uid.clone() else { return Ok(None) };
        let (group, version) = made.api_version.rsplit_once('/').unwrap_or(("", &made.api_version));
        let Some(mapping) = self.kinds.any(&Gvk::new(group, version, &made.kind)) else { return Ok(None) };
        let api = mapping.api(&self.cluster.client, made.namespace.as_deref());
        let action = format!("default custom resource {} {}", made.kind, made.name);
        let live =
            api.get_metadata_opt(&made.name).await.map_err(|error| Failure::target(&action, &error))?;
        let Some(live) = live.filter(|live| live.metadata.uid.as_ref() == Some(&uid)) else {
            return Ok(None);
        };
        if live.metadata.deletion_timestamp.is_none() {
            let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
            let params = DeleteParams { preconditions, ..DeleteParams::background() };
            match api.delete(&made.name, &params).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(None),
                Err(error) => return Err(Failure::target(&action, &error)),
            }
            let gone =
                api.get_metadata_opt(&made.name).await.map_err(|error| Failure::target(&action, &error))?;
            if gone.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(format!("{} {}", made.kind, made.name)))
    }
}

/// Uids of what is ours: the inventory and the default custom resource.
pub(crate) fn own_uids(recorded: &Recorded) -> Vec<String> {
    let made = recorded.resource.iter().filter_map(|made| made.uid.clone());
    recorded.inventory.iter().map(|(_, entry)| entry.uid.clone()).chain(made).collect()
}

/// Whether a person confirmed that this very generation is meant to hold much less.
fn allows_shrink(component: &HelmComponent) -> bool {
    let confirmed = component.metadata.annotations.as_ref().and_then(|all| all.get(ALLOW_SHRINK));
    let generation = component.metadata.generation.unwrap_or_default().to_string();
    confirmed.is_some_and(|confirmed| *confirmed == generation)
}

fn adopt(policy: Adopt) -> apply::Adopt {
    match policy {
        Adopt::Never => apply::Adopt::Never,
        Adopt::Unowned => apply::Adopt::Unowned,
        Adopt::Always => apply::Adopt::Always,
    }
}

/// Objects that no module may touch (design rule 9): Kubernetes' own, the operators' CRDs, the user's Kyma.
fn protection() -> Protection {
    let crds = kyma_api::crds::all().into_iter().filter_map(|crd| crd.metadata.name);
    let crds =
        crds.map(|name| Identity::new("apiextensions.k8s.io", "CustomResourceDefinition", None, &name));
    let kyma = Identity::new("operator.kyma-project.io", "Kyma", Some("kyma-system"), "default");
    let stamp = Identity::new("", "ConfigMap", Some(kyma_targets::STAMP_NAMESPACE), kyma_targets::STAMP_NAME);
    crds.chain([kyma, stamp]).fold(Protection::of_kubernetes(), Protection::with)
}

/// A failed call, in the words of conditions.
pub(crate) fn failure(error: &CallError) -> Failure {
    let failure = Failure::new(error.reason(), error.to_string());
    match &error.failure {
        kyma_object_set::Failure::Throttled(Some(delay)) => failure.retry_after(*delay),
        _ => failure,
    }
}
