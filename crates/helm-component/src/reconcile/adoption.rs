//! Steps that take over an installation of another system.

use std::time::Instant;

use futures::{FutureExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, ResourceExt};
use kyma_api::{Adoption, FreeForm, Reason, ReleaseRecord};
use kyma_controller::{Failure, WatchSpec, find_object};
use kyma_helm::storage::{self, HelmRelease, ReleaseStatus, StorageError};
use kyma_object_set::{
    Action, ApplyReport, CallError, Entry, GroupKind, Identity, Object, System, claim, helm_release,
};
use serde_json::json;

use super::apply::PARALLEL;
use super::calls::failure;
use crate::actions::{history, hooks};
use crate::blocking::run_blocking;
use crate::pass::Pass;
use crate::plan::Observed;
use crate::release::Release;

impl Pass<'_> {
    /// Reads Helm's record of a release of the same name, once, and adds its objects to the inventory.
    pub(super) async fn find_helm_release(&mut self) -> Result<(), Failure> {
        self.done.helm_release_read = true;
        self.adopt_helm_release().await
    }

    async fn adopt_helm_release(&mut self) -> Result<(), Failure> {
        let release = self.inputs.as_ref().map_err(Clone::clone)?.release.clone();
        let Some(existing) = self.read_helm_release(&release).await? else { return Ok(()) };
        let (Some(loaded), Ok(inputs)) = (self.state.loaded.clone(), &self.inputs) else { return Ok(()) };
        let is_same = inputs.is_of(&existing.chart, &existing.values, &loaded);
        let adopted = Adoption {
            from: vec![System::Helm.to_string()],
            revision: Some(existing.revision),
            inputs_digest: is_same.then(|| inputs.requested_digest.clone()),
            ..Adoption::default()
        };
        let found = self.installed_by(&existing, &release).await?;
        let record = if is_same { hooks::record_if_adopted(&loaded) } else { None };
        let stored = hooks::checkpoint_removal_hooks(self, &loaded, record.as_ref()).await?;
        let before = self.state.recorded.clone();
        for (identity, entry) in found {
            self.state.recorded.inventory.insert(identity, entry);
        }
        if is_same {
            self.state.recorded.hooks.release = record;
            self.state.recorded.release_record = Some(ReleaseRecord {
                digest: loaded.release.clone(),
                revision: Some(existing.revision),
                status: Some(ReleaseStatus::Deployed.as_str().to_owned()),
                message: None,
            });
        }
        tracing::info!(component = %self.key.name, release = %release.name, revision = existing.revision,
            "a Helm release is adopted");
        let kept = self.store_adoption(adopted).await;
        if kept.is_err() {
            // Otherwise the next pass would continue with state that no other process could know.
            self.state.recorded = before;
        } else {
            hooks::discard_removal_hooks(self, stored).await;
        }
        kept
    }

    /// Stores the adoption on the hub before any object is applied: a new process could not find it again.
    async fn store_adoption(&mut self, adopted: Adoption) -> Result<(), Failure> {
        let mut fields = FreeForm::new();
        fields.insert("adopted".to_owned(), json!(adopted));
        self.pack_record().await;
        fields.extend(self.state.recorded.report(self.context.resource.status.as_ref()));
        fields.extend(self.state.recorded.hooks.release_field());
        self.context.checkpoint(fields).await?;
        self.state.recorded.adopted = Some(adopted);
        self.remember();
        Ok(())
    }

    /// Returns Helm's record of the deployed revision; `None` if there is none, or it may not be read.
    async fn read_helm_release(&self, release: &Release) -> Result<Option<HelmRelease>, Failure> {
        let place = &release.storage_namespace;
        let secrets: Api<Secret> = Api::namespaced(self.cluster.client.clone(), place);
        let Some((revision, secret)) = self.deployed(&secrets, release).await? else { return Ok(None) };
        let name = secret.name_any();
        let stored = secret.data.unwrap_or_default().remove(storage::KEY);
        let release = release.clone();
        let decode = move || {
            let stored = stored.ok_or(StorageError::NoRelease)?;
            storage::decode(&stored.0, &release.name, &release.namespace, revision)
        };
        let read = run_blocking(decode).await?;
        read.map(Some).map_err(|error| {
            self.await_record(place, &name);
            unreadable(&error, place, &name)
        })
    }

    /// Returns the revision that Helm has deployed, with its record. Components that wait at the same time share a
    /// list.
    async fn deployed(
        &self,
        secrets: &Api<Secret>,
        release: &Release,
    ) -> Result<Option<(i64, Secret)>, Failure> {
        let target = &self.context.target;
        let place = (target.key().cloned(), target.account().cloned(), release.storage_namespace.clone());
        let list = || {
            let (secrets, target) = (secrets.clone(), target.clone());
            // A list of a withdrawn target is not shared: its Secret may lead to another target now.
            async move { Ok(history::all_deployed(&secrets).await?.filter(|_| !target.is_withdrawn())) }
                .boxed()
        };
        let last_request = self.context.reconcile_context().last_request();
        if let Some(releases) =
            self.shared.release_records.of(&place, last_request, Instant::now(), list).await?
        {
            let Some(revision) = releases.get(&release.name) else { return Ok(None) };
            if let Some(found) = record(secrets, release, *revision).await? {
                return Ok(Some(found));
            }
            // Helm has deployed another revision since.
        }
        match history::deployed(secrets, &release.name).await? {
            Some(revision) => record(secrets, release, revision).await,
            None => Ok(None),
        }
    }

    /// Requeues the component when the record changes.
    fn await_record(&self, namespace: &str, name: &str) {
        let Some(mapping) = self.kinds.preferred(&GroupKind::new("", "Secret")) else { return };
        self.context.watch(WatchSpec {
            namespace: Some(namespace.to_owned()),
            fields: Some(format!("metadata.name={name}")),
            ..WatchSpec::in_kind(&mapping.resource)
        });
    }

    /// Returns the objects of a record that exist on the target and belong to the release, each with its current uid.
    async fn installed_by(
        &self,
        existing: &HelmRelease,
        release: &Release,
    ) -> Result<Vec<(Identity, Entry)>, Failure> {
        let objects = existing.objects.objects().iter();
        let looks: Vec<_> = objects.map(|object| self.installed(object, release).boxed()).collect();
        let found: Vec<Option<(Identity, Entry)>> =
            futures::stream::iter(looks).buffered(PARALLEL).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn installed(
        &self,
        object: &Object,
        release: &Release,
    ) -> Result<Option<(Identity, Entry)>, Failure> {
        let identity = self.kinds.scoped(&object.identity(), &release.namespace);
        // A kind that is not served has no objects; a kind of an unknown API group may have some.
        let Some(mapping) = self.kinds.any(&object.gvk()) else {
            let unknown = self.kinds.is_unknown(&identity.group);
            return if unknown { Err(failure(&CallError::group_unknown(&identity))) } else { Ok(None) };
        };
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        let found = api.get_metadata_opt(&identity.name).await;
        let found = found.map_err(|error| failure(&CallError::new(Action::Get, Some(&identity), error)))?;
        let uid = found.filter(|live| is_of(&live.metadata, release)).and_then(|live| live.metadata.uid);
        let version = mapping.resource.version.clone();
        Ok(uid.map(|uid| (identity, Entry { version, uid, ..Entry::default() })))
    }

    /// Records the systems whose objects are taken over; reports whether there are any.
    pub(super) async fn note_foreign(&mut self, applied: &ApplyReport) -> Result<bool, Failure> {
        let systems = applied.foreign();
        if systems.is_empty() {
            return Ok(false);
        }
        let inputs = self.inputs.as_ref().map_err(Clone::clone)?;
        let adopted = Adoption {
            from: systems.iter().map(ToString::to_string).collect(),
            inputs_digest: Some(inputs.requested_digest.clone()),
            ..Adoption::default()
        };
        self.store_adoption(adopted).await?;
        Ok(true)
    }

    /// Adds the owner label to objects of the release that the content lacks, so that they can be pruned. Objects
    /// that stay are left alone.
    pub(super) async fn label_surplus_release_objects(&mut self, seen: &Observed) -> Result<(), Failure> {
        let release = self.inputs.as_ref().map_err(Clone::clone)?.release.clone();
        let wanted = self.state.loaded.iter().flat_map(|loaded| &loaded.prepared.objects);
        let wanted: Vec<Identity> = wanted.map(Object::identity).collect();
        let inventory = self.state.recorded.inventory.clone();
        let left = inventory.iter().filter(|(identity, entry)| {
            !entry.was_sent() && !wanted.contains(identity) && !seen.stays(identity)
        });
        for (identity, entry) in left {
            let is_releases = |metadata: &ObjectMeta| is_of(metadata, &release);
            let claimed = claim(&self.cluster, identity, entry, &self.ownership, &is_releases).boxed().await;
            if let Some(entry) = claimed.map_err(|error| failure(&error))? {
                self.state.recorded.inventory.insert(identity.clone(), entry);
            }
        }
        Ok(())
    }
}

/// Returns the record of a revision, if that is deployed.
async fn record(
    secrets: &Api<Secret>,
    release: &Release,
    revision: i64,
) -> Result<Option<(i64, Secret)>, Failure> {
    let found = find_object(secrets, &storage::secret_name(&release.name, revision)).await;
    let found = found.map_err(|error| Failure::target("read Helm's record of the release", &error))?;
    let is_deployed = |secret: &Secret| {
        secret.type_.as_deref() == Some(storage::TYPE)
            && storage::deployed(secret.metadata.labels.iter()) == Some(revision)
    };
    Ok(found.filter(is_deployed).map(|secret| (revision, secret)))
}

/// Returns the failure for a record that cannot be decoded.
fn unreadable(error: &StorageError, namespace: &str, secret: &str) -> Failure {
    let text = format!("Helm's record Secret {namespace}/{secret} on the target: {error}");
    Failure::new(Reason::ReleaseRecordInvalid, text)
}

/// Reports whether an object's metadata names this release.
fn is_of(metadata: &ObjectMeta, release: &Release) -> bool {
    helm_release(metadata) == Some((&release.name, &release.namespace))
}
