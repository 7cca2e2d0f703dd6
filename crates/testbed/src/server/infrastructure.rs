//! Simulates a cloud provider in a thread: volumes for claims, addresses for load balancers.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Service};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::oneshot;

use crate::client::access::Access;
use crate::wait::until;

/// Name of the default `StorageClass`.
const STORAGE_CLASS: &str = "standard";

/// Annotation value of volumes that this thread created.
const PROVISIONER: &str = "testbed.invalid/volumes";

/// Deadline for the API server to learn of the default class.
const READY_DEADLINE: Duration = Duration::from_mins(1);

/// The running thread; it ends when this is dropped.
pub(crate) struct Infrastructure {
    thread: Option<JoinHandle<()>>,
    stop: Option<oneshot::Sender<()>>,
}

impl Infrastructure {
    /// Starts a thread with its own runtime: the cluster may outlive the runtime of the test that started it.
    pub(crate) fn start(access: Access) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let (ready, started) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name("infrastructure".to_owned()).spawn(move || {
            runtime.block_on(async {
                let client = match prepare(&access).await {
                    Ok(client) => client,
                    Err(error) => return ready.send(Err(error)).unwrap_or_default(),
                };
                ready.send(Ok(())).unwrap_or_default();
                tokio::select! {
                    () = serve(client) => {}
                    _ = stopped => {}
                }
            });
        })?;
        started.recv()??;
        Ok(Self { thread: Some(thread), stop: Some(stop) })
    }
}

impl Drop for Infrastructure {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A thread that panicked has printed the message already.
        self.thread.take().map(JoinHandle::join).transpose().ok();
    }
}

async fn prepare(access: &Access) -> Result<Client> {
    let client = access.client()?;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER,
    });
    apply(&Api::<StorageClass>::all(client.clone()), STORAGE_CLASS, &class).await?;
    until_default_class(&client).await?;
    Ok(client)
}

/// Waits until claims without a class get the default class. The API server learns of the class by a watch, and claims
/// that are created before that stay without one.
async fn until_default_class(client: &Client) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), "default");
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "probe"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }))?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    until("claims get the default class", READY_DEADLINE, || async {
        let class = claims.create(&params, &claim).await?.spec.and_then(|spec| spec.storage_class_name);
        Ok((class.as_deref() == Some(STORAGE_CLASS)).then_some(()))
    })
    .await
}

async fn serve(client: Client) {
    futures::join!(serve_claims(&client), serve_load_balancers(&client));
}

async fn serve_claims(client: &Client) {
    let claims = watcher(Api::<PersistentVolumeClaim>::all(client.clone()), watcher::Config::default());
    each(claims.default_backoff(), |event| async {
        match event {
            Event::Apply(claim) | Event::InitApply(claim) if claim.metadata.deletion_timestamp.is_none() => {
                bind(client, &claim).await
            }
            Event::Delete(claim) => release(client, &claim).await,
            _ => Ok(()),
        }
    })
    .await;
}

async fn serve_load_balancers(client: &Client) {
    let services = watcher(Api::<Service>::all(client.clone()), watcher::Config::default());
    each(services.default_backoff(), |event| async {
        match event {
            Event::Apply(service) | Event::InitApply(service) => give_address(client, &service).await,
            _ => Ok(()),
        }
    })
    .await;
}

/// Calls `act` for each event. After a failure, an object is handled again with its next event.
async fn each<K, F>(events: impl Stream<Item = watcher::Result<Event<K>>>, act: impl Fn(Event<K>) -> F)
where
    F: Future<Output = Result<()>>,
{
    let mut events = std::pin::pin!(events.into_stream());
    while let Some(event) = events.next().await {
        let done = match event {
            Ok(event) => act(event).await,
            Err(error) => Err(anyhow!(error)),
        };
        if let Err(error) = done {
            tracing::warn!(error = format!("{error:#}"), "test environment infrastructure");
        }
    }
}

/// Binds a claim as Kubernetes' own binder does: creates the volume, names it in the claim, then sets both to
/// Bound.
async fn bind(client: &Client, claim: &PersistentVolumeClaim) -> Result<()> {
    let spec = claim.spec.clone().unwrap_or_default();
    let is_of_class = spec.storage_class_name.as_deref() == Some(STORAGE_CLASS);
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    if !is_of_class || phase == Some("Bound") {
        return Ok(());
    }
    let volume = volume_of(claim)?;
    let requests = spec.resources.and_then(|resources| resources.requests);
    let storage =
        requests.and_then(|mut requests| requests.remove("storage")).context("a claim without size")?;
    let capacity = json!({"storage": storage});
    let namespace = claim.namespace().unwrap_or_default();
    let name = claim.name_any();
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let object = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "capacity": capacity,
            "accessModes": spec.access_modes,
            "volumeMode": spec.volume_mode,
            "storageClassName": STORAGE_CLASS,
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": namespace, "name": name, "uid": claim.uid()},
            "hostPath": {"path": format!("/volumes/{volume}")},
        },
    });
    apply(&volumes, &volume, &object).await?;
    let bound = json!({"status": {"phase": "Bound"}});
    volumes.patch_status(&volume, &PatchParams::default(), &Patch::Merge(&bound)).await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let named = json!({
        "metadata": {"uid": claim.uid(), "annotations": {
            "pv.kubernetes.io/bind-completed": "yes",
            "pv.kubernetes.io/bound-by-controller": "yes",
        }},
        "spec": {"volumeName": volume},
    });
    claims.patch(&name, &PatchParams::default(), &Patch::Merge(&named)).await?;
    let bound = json!({"status": {"phase": "Bound", "accessModes": spec.access_modes, "capacity": capacity}});
    claims.patch_status(&name, &PatchParams::default(), &Patch::Merge(&bound)).await?;
    Ok(())
}

async fn release(client: &Client, claim: &PersistentVolumeClaim) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volume = volume_of(claim)?;
    if volumes.get_opt(&volume).await?.is_some() {
        // Bound volumes are protected from deletion.
        let released = json!({"status": {"phase": "Released"}});
        volumes.patch_status(&volume, &PatchParams::default(), &Patch::Merge(&released)).await?;
        volumes.delete(&volume, &DeleteParams::default()).await?;
    }
    Ok(())
}

fn volume_of(claim: &PersistentVolumeClaim) -> Result<String> {
    Ok(format!("pvc-{}", claim.uid().context("a claim without uid")?))
}

async fn give_address(client: &Client, service: &Service) -> Result<()> {
    let wanted = service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer");
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let has =
        balancer.and_then(|balancer| balancer.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty());
    if !wanted || has {
        return Ok(());
    }
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address_of(service)}]}}});
    let services: Api<Service> = Api::namespaced(client.clone(), &service.namespace().unwrap_or_default());
    services.patch_status(&service.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

/// Returns an address of the documentation range. Two Services may share one, as nothing is sent to it.
fn address_of(service: &Service) -> String {
    let uid = service.uid().unwrap_or_default();
    let sum = uid.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    format!("203.0.113.{}", sum.clamp(1, 254))
}

async fn apply<K>(api: &Api<K>, name: &str, object: &serde_json::Value) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.patch(name, &PatchParams::apply("testbed").force(), &Patch::Apply(object)).await?;
    Ok(())
}
