//! `kymactl run --remove`: removes the Kyma of the file, and every object that `run --once` created on the cluster.

mod contents;
mod own_kinds;

use std::{collections::BTreeSet, fmt::Debug, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::{
    api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition as Crd,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, ObjectMeta},
    runtime::{
        WatchStreamExt as _,
        wait::{await_condition, conditions::is_deleted},
        watcher::watch_object,
    },
};
use kyma_api::{DeleteProof, Kyma, ModuleConfig, ModuleReleaseMeta, ModuleTemplate};
use kyma_controller::{
    DeleteError, DeleteGate, DeleteOutcome, DeleteRequest, Process, find_metadata, find_object,
    is_crd_absent, read_paused_operations,
};
use kyma_object_set::remove::{CrdContents, block_creation, unblock_kept_crd};
use kyma_operator::FIELD_MANAGER;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};

use super::component::ComponentProgram;
use super::kyma_run::KymaRun;
use super::mark::is_marked;
use super::operators::Operators;
use super::{component, crds, preflight};
use crate::command::status::{Row, rows};
use crate::error::Error;
use crate::hub::MANAGER;
use crate::output;

/// Time that the garbage collector gets for objects whose owner was deleted.
const COLLECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay between two reads of a Namespace's contents, which no single watch covers.
const CONTENTS_DELAY: Duration = Duration::from_secs(1);

/// Removes the Kyma with its modules, then what `run --once` created: catalogue, CRDs and Namespaces. They stay while
/// another Kyma exists.
pub(super) async fn run(run: KymaRun) -> Result<(), Error> {
    let KymaRun { input, programs, program_kubeconfig, timeout, allow_other_kymas, .. } = run;
    let (flags, settings, process) = (run.flags, run.settings, run.process);
    let client = kyma_targets::client_from(run.config.clone())?;
    preflight::check(&client, &input.kyma, allow_other_kymas).await?;
    let mut removal = Removal {
        client,
        kyma: input.kyma,
        hub_namespace: settings.hub_namespace.clone(),
        programs: programs.iter().map(|program| program.name().to_owned()).collect(),
        timeout,
        deadline: Instant::now() + timeout,
    };
    let live = removal.find_kyma().await?;
    if let Some(live) = &live {
        removal.kyma.clone_from(live);
        own_kinds::check(&removal.client, live, &programs).await?;
    }
    let others = removal.other_kymas().await?;
    let catalogue = if others.is_empty() { removal.catalogue().await? } else { Vec::new() };
    if live.is_some() || !catalogue.is_empty() {
        // Operators of this version need CRDs of this version to remove their finalizers.
        crds::install(&removal.client, true).await?;
        // With their own Process: stopping them must not count as a signal in the steps that follow.
        let mut operators = Operators::start_installers(flags, &settings, &run.config, &Process::new()?);
        let programs = removal.startable(programs).await?;
        operators.start_programs(programs, &component::arguments(&settings, &program_kubeconfig));
        let removed = tokio::select! {
            removed = Box::pin(removal.remove_modules(live, catalogue)) => removed,
            ended = operators.ended() => ended.and(Err(Error::Stopped)),
            () = process.shutdown.cancelled() => Err(Error::Stopped),
        };
        operators.stop().await;
        removed?;
    }
    let name = removal.name();
    // The removal took time, in which another Kyma may have been created.
    if let Some(other) = removal.other_kymas().await?.first() {
        let remark = format!("catalogue, CRDs and Namespaces stay, because Kyma {other} exists");
        output::remark(&remark);
        return output::result(&format!("{name} is removed"));
    }
    let namespaces = BTreeSet::from([&settings.hub_namespace, &settings.target_namespace]);
    let stays = tokio::select! {
        stays = Box::pin(removal.remove_installation(&namespaces)) => stays?,
        () = process.shutdown.cancelled() => return Err(Error::Stopped),
    };
    for reason in &stays {
        output::remark(reason);
    }
    let rest = if stays.is_empty() { "everything" } else { "everything else" };
    output::result(&format!("{name} and {rest} that run --once created are removed"))
}

/// One removal.
struct Removal {
    client: Client,
    /// The live Kyma, or the Kyma of the file if none is live. Pauses select by its labels.
    kyma: Kyma,
    hub_namespace: String,
    /// Names of the operators of `--component`.
    programs: Vec<String>,
    timeout: Duration,
    deadline: Instant,
}

impl Removal {
    fn name(&self) -> String {
        format!("Kyma {}/{}", self.kyma.namespace().unwrap_or_default(), self.kyma.name_any())
    }

    fn kymas(&self) -> Api<Kyma> {
        Api::namespaced(self.client.clone(), &self.kyma.namespace().unwrap_or_default())
    }

    /// Returns the programs whose CRDs all exist. Another one would wait for its CRD, and has nothing to remove.
    async fn startable(&self, programs: Vec<ComponentProgram>) -> Result<Vec<ComponentProgram>, Error> {
        let definitions: Api<Crd> = Api::all(self.client.clone());
        let mut startable = Vec::new();
        'programs: for program in programs {
            for crd in program.crds() {
                if find_metadata(&definitions, &crd.name_any()).await?.is_none() {
                    continue 'programs;
                }
            }
            startable.push(program);
        }
        Ok(startable)
    }

    /// Returns the live Kyma.
    ///
    /// # Errors
    /// If it exists and `run --once` did not create it.
    async fn find_kyma(&self) -> Result<Option<Kyma>, Error> {
        if is_crd_absent(&self.client, &ApiResource::erase::<Kyma>(&())).await? {
            return Ok(None);
        }
        let live = find_object(&self.kymas(), &self.kyma.name_any()).await?;
        match live {
            Some(live) if !is_marked(&live.metadata) => {
                let problem = "run --once did not create it; delete it with kubectl while its operators run";
                Err(Error::input(self.name(), problem))
            }
            live => Ok(live),
        }
    }

    /// Returns `namespace/name` of every other Kyma of the cluster.
    async fn other_kymas(&self) -> Result<Vec<String>, Error> {
        let own = (self.kyma.namespace(), self.kyma.metadata.name.clone());
        let listed = list::<Kyma>(&self.client).await?.into_iter();
        let others = listed.map(|meta| (meta.namespace, meta.name)).filter(|name| *name != own);
        Ok(others
            .map(|(namespace, name)| {
                format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())
            })
            .collect())
    }

    /// Returns the objects of the catalogue that `run --once` created.
    async fn catalogue(&self) -> Result<Vec<(ApiResource, ObjectMeta)>, Error> {
        let mut found = marked::<ModuleConfig>(&self.client).await?;
        found.extend(marked::<ModuleReleaseMeta>(&self.client).await?);
        found.extend(marked::<ModuleTemplate>(&self.client).await?);
        Ok(found)
    }

    /// Deletes the Kyma, waits until its modules are gone, and deletes the catalogue. Operators have to run.
    async fn remove_modules(
        &self,
        live: Option<Kyma>,
        catalogue: Vec<(ApiResource, ObjectMeta)>,
    ) -> Result<(), Error> {
        if let Some(live) = live {
            self.remove_kyma(&live).await?;
        }
        if !self.other_kymas().await?.is_empty() {
            return Ok(());
        }
        for (resource, meta) in catalogue {
            self.delete_through_gate(&resource, &meta, DeleteProof::None).await?;
        }
        Ok(())
    }

    /// Deletes the Kyma and reports changes of its modules until it is gone.
    async fn remove_kyma(&self, kyma: &Kyma) -> Result<(), Error> {
        self.request_deletion(&ApiResource::erase::<Kyma>(&()), &kyma.metadata, DeleteProof::None).await?;
        let mut changes = watch_object(self.kymas(), &kyma.name_any()).default_backoff().boxed();
        let mut shown: Vec<Row> = Vec::new();
        while let Ok(change) = timeout_at(self.deadline, changes.try_next()).await {
            match change {
                // The watch is repeated after a failure; the deadline limits all attempts.
                Err(_) => {}
                Ok(Some(Some(live))) if live.uid() == kyma.uid() => {
                    let now = rows(std::iter::once(&live));
                    for row in now.iter().filter(|row| !shown.contains(row)) {
                        output::remark(&row.line());
                    }
                    shown = now;
                }
                Ok(_) => return Ok(()),
            }
        }
        let modules: Vec<String> = shown.iter().map(Row::line).collect();
        Err(self.not_removed(if modules.is_empty() { self.name() } else { modules.join("; ") }))
    }

    /// Deletes CRDs and Namespaces that `run --once` created. Returns the remaining objects, with the reason.
    async fn remove_installation(&self, namespaces: &BTreeSet<&String>) -> Result<Vec<String>, Error> {
        let mut stays = Vec::new();
        let definitions: Api<Crd> = Api::all(self.client.clone());
        let listed = definitions.list_metadata(&ListParams::default()).await?;
        for crd in listed.iter().filter(|crd| is_marked(&crd.metadata)) {
            stays.extend(self.remove_crd(&crd.name_any()).await?);
        }
        for namespace in namespaces {
            stays.extend(self.remove_namespace(namespace).await?);
        }
        Ok(stays)
    }

    async fn remove_crd(&self, name: &str) -> Result<Option<String>, Error> {
        let resource = ApiResource::erase::<Crd>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let Some(live) = find_object(&api, name).await?.filter(|live| is_marked(&live.metadata)) else {
            return Ok(None);
        };
        self.gate().await?.permit().await?;
        let reason = match block_creation(&self.client, &live, MANAGER).await? {
            CrdContents::Empty { resource_version } => {
                let proof = DeleteProof::CreatedAndEmpty { resource_version };
                let deleted = self.delete_through_gate(&resource, &live.metadata, proof).await;
                if deleted.is_err() {
                    unblock_kept_crd(&self.client, name, MANAGER).await;
                }
                return deleted.map(|()| None);
            }
            CrdContents::InUse => "objects of its kind exist",
            CrdContents::Unknown => "whether objects of its kind exist cannot be read",
        };
        Ok(Some(format!("CRD {name} stays: {reason}")))
    }

    async fn remove_namespace(&self, name: &str) -> Result<Option<String>, Error> {
        let resource = ApiResource::erase::<Namespace>(&());
        let api: Api<Namespace> = Api::all(self.client.clone());
        let end = self.deadline.min(Instant::now() + COLLECTION_TIMEOUT);
        let mut was_empty = false;
        loop {
            let live = find_metadata(&api, name).await?.map(|live| live.metadata);
            let Some(live) = live.filter(is_marked) else { return Ok(None) };
            let reason = match contents::find_foreign(&self.client, name, &self.programs).await {
                // A created object does not change its Namespace, so no precondition covers it. Two reads keep the
                // gap before the DELETE short.
                Ok(None) if !was_empty => {
                    was_empty = true;
                    continue;
                }
                Ok(None) => {
                    let resource_version = live.resource_version.clone().unwrap_or_default();
                    let proof = DeleteProof::CreatedAndEmpty { resource_version };
                    return self.delete_through_gate(&resource, &live, proof).await.map(|()| None);
                }
                Ok(Some(object)) => format!("it contains {object}"),
                // Discovery fails for a moment after the removal of a CRD.
                Err(error) => format!("its contents cannot be read: {}", Error::from(error)),
            };
            if Instant::now() >= end {
                return Ok(Some(format!("Namespace {name} stays: {reason}")));
            }
            // One watch for each kind would cost more than a few lists, and `end` bounds them.
            sleep(CONTENTS_DELAY).await;
        }
    }

    /// Returns the delete gate of this command: Pauses of the hub stop it; the brake does not count a user's command.
    async fn gate(&self) -> Result<DeleteGate, Error> {
        let paused_operations =
            read_paused_operations(&self.client, &self.hub_namespace, MANAGER, &self.kyma).await?;
        Ok(DeleteGate::uncounted(&paused_operations).with_operator_namespace())
    }

    /// Deletes an object and waits until it no longer exists.
    async fn delete_through_gate(
        &self,
        resource: &ApiResource,
        live: &ObjectMeta,
        proof: DeleteProof,
    ) -> Result<(), Error> {
        let DeleteOutcome::Waiting(_) = self.request_deletion(resource, live, proof).await? else {
            return Ok(());
        };
        let name = live.name.as_deref().unwrap_or_default();
        let api: Api<DynamicObject> = match live.namespace.as_deref() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        };
        let gone = await_condition(api, name, is_deleted(live.uid.as_deref().unwrap_or_default()));
        match timeout_at(self.deadline, Box::pin(gone)).await {
            Ok(ended) => Ok(ended.map(drop)?),
            Err(_) => Err(self.not_removed(format!("{} {name}", resource.kind))),
        }
    }

    async fn request_deletion(
        &self,
        resource: &ApiResource,
        live: &ObjectMeta,
        proof: DeleteProof,
    ) -> Result<DeleteOutcome, Error> {
        // kyma-operator creates the CRDs that modules bring.
        let managers = [MANAGER, FIELD_MANAGER];
        let request = DeleteRequest::new(resource, live, &managers).proven(proof);
        match self.gate().await?.carry_out(&self.client, &request).await {
            Ok(outcome) => Ok(outcome),
            Err(DeleteError::Refused(failure)) => Err(failure.into()),
            Err(DeleteError::Call(error)) => Err(error.into()),
        }
    }

    fn not_removed(&self, left: String) -> Error {
        Error::NotRemoved { waited: format!("{:?}", self.timeout), left }
    }
}

/// Lists a kind in all namespaces. A kind without CRD has no objects.
async fn list<K>(client: &Client) -> Result<Vec<ObjectMeta>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    // A 404 for the kind itself would not prove that.
    if is_crd_absent(client, &ApiResource::erase::<K>(&())).await? {
        return Ok(Vec::new());
    }
    let listed = Api::<K>::all(client.clone()).list_metadata(&ListParams::default()).await?;
    Ok(listed.items.into_iter().map(|item| item.metadata).collect())
}

/// Lists the objects of a kind that `run --once` created.
async fn marked<K>(client: &Client) -> Result<Vec<(ApiResource, ObjectMeta)>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let resource = ApiResource::erase::<K>(&());
    let listed = list::<K>(client).await?.into_iter().filter(is_marked);
    Ok(listed.map(|meta| (resource.clone(), meta)).collect())
}
