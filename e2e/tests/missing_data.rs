//! Missing data never orders a deletion: whatever vanishes from the hub, everything on the targets stays, the frozen
//! state is told, and what comes back is taken up again.

use std::future::{Ready, ready};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::fleet::Fleet;
use e2e::landscape::{HUB_NAMESPACE, Landscape, Options, TARGET_NAMESPACE, is_of_an_operator};
use e2e::remains::until_as_before;
use e2e::snapshot;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, Kyma, ModuleReleaseMeta, ModuleTemplate};
use serde_json::json;
use testbed::{AuditMark, crd_is_served, until_or_why};

/// Three Kymas with three modules each, on three targets.
const KYMAS: [&str; 3] = ["east", "north", "west"];
const DEADLINE: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn what_vanishes_from_the_hub_removes_nothing_from_targets() {
    story().await.unwrap();
}

async fn story() -> Result<()> {
    let options = Options { targets: KYMAS.len(), audit: true, ..Options::default() };
    let landscape = Landscape::start(options).await?;
    let fleet = Fleet::new(&landscape)?;
    fleet.publish().await?;
    let last = landscape.targets().last().context("there are targets")?.client()?;
    let before = snapshot::take(&last).await?;
    for (name, target) in KYMAS.iter().zip(landscape.targets()) {
        fleet.join(name, target).await?;
    }
    let world = World { hub: landscape.hub().client()?, landscape: &landscape, fleet };
    world.is_ready().await?;

    world.loses("component objects", World::delete_components, World::nothing).await?;
    world.loses("the catalogue", World::delete_catalogue, World::publish_again).await?;
    world.loses("access Secrets", World::delete_secrets, World::grant_again).await?;
    world.loses("labels of Kymas", World::strip_labels, World::nothing).await?;
    world.loses("Kymas on targets", World::delete_remote_kymas, World::nothing).await?;
    world.loses("every status", World::strip_status, World::nothing).await?;
    world.loses("the CRD of components", World::delete_component_crd, World::restore_component_crd).await?;
    world.loses("the CRD of Kymas", World::delete_kyma_crd, World::restore_kymas).await?;

    // What is wished is done all the same.
    let wished = KYMAS[KYMAS.len() - 1];
    world.delete_kyma(wished).await?;
    until_as_before(&last, &before).await?;
    landscape.stop().await
}

struct World<'a> {
    landscape: &'a Landscape,
    fleet: Fleet<'a>,
    hub: Client,
}

impl<'a> World<'a> {
    /// One row: the cause, what it freezes, the end of the cause; and no deletion on any target.
    async fn loses(
        &self,
        what: &str,
        cause: impl AsyncFn(&World<'a>) -> Result<()>,
        mend: impl AsyncFn(&World<'a>) -> Result<()>,
    ) -> Result<()> {
        let marks = self.landscape.marks()?;
        cause(self).await.with_context(|| format!("without {what}"))?;
        self.landscape.until_at_rest().await.with_context(|| format!("without {what}"))?;
        self.nothing_was_deleted(&marks).with_context(|| format!("without {what}"))?;
        mend(self).await.with_context(|| format!("{what} again"))?;
        self.is_ready().await.with_context(|| format!("{what} again"))?;
        self.landscape.until_at_rest().await.with_context(|| format!("{what} again"))?;
        self.nothing_was_deleted(&marks).with_context(|| format!("{what} again"))
    }

    fn nothing_was_deleted(&self, marks: &[AuditMark]) -> Result<()> {
        let logs = self.landscape.clusters().into_iter().zip(marks);
        // The hub comes first; what operators clean up there is their own.
        for (target, mark) in logs.skip(1) {
            let events = target.audit()?.since(*mark)?;
            let deletes = events.iter().filter(|event| is_of_an_operator(event));
            let deletes = deletes.filter(|event| event.verb.starts_with("delete"));
            // Copies follow a catalogue that is served and lacks them; nothing that runs hangs on them.
            let is_copy = |resource: &str| matches!(resource, "moduletemplates" | "modulereleasemetas");
            let deletes = deletes.filter(|event| !is_copy(&event.resource));
            let lines: Vec<String> =
                deletes.map(|event| format!("{} {} {}", event.user_agent, event.verb, event.uri)).collect();
            ensure!(lines.is_empty(), "deleted on {}:\n{}", target.name(), lines.join("\n"));
        }
        Ok(())
    }

    async fn is_ready(&self) -> Result<()> {
        for name in KYMAS {
            self.fleet.until_installed(name).await?;
        }
        Ok(())
    }

    async fn says(&self, reason: &str) -> Result<()> {
        for name in KYMAS {
            self.fleet.until_reason(name, reason).await?;
        }
        Ok(())
    }

    /// It comes back by itself.
    fn nothing(_: &World<'a>) -> Ready<Result<()>> {
        ready(Ok(()))
    }

    async fn delete_components(&self) -> Result<()> {
        for api in [self.components(), self.greetings()] {
            for component in api.list_metadata(&ListParams::default()).await?.items {
                api.delete(&component.name_any(), &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    async fn delete_catalogue(&self) -> Result<()> {
        let releases: Api<ModuleReleaseMeta> = self.api();
        let templates: Api<ModuleTemplate> = self.api();
        releases.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        templates.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        self.says("ModuleReleaseMetaMissing").await
    }

    async fn publish_again(&self) -> Result<()> {
        self.fleet.publish().await
    }

    async fn delete_secrets(&self) -> Result<()> {
        let secrets: Api<Secret> = self.api();
        for name in KYMAS {
            secrets.delete(&format!("kubeconfig-{name}"), &DeleteParams::default()).await?;
        }
        self.says("AwaitingAccess").await
    }

    async fn grant_again(&self) -> Result<()> {
        let secrets: Api<Secret> = self.api();
        for (name, target) in KYMAS.iter().zip(self.landscape.targets()) {
            let secret = self.landscape.access_secret(name, target).await?;
            secrets.create(&PostParams::default(), &secret).await?;
        }
        Ok(())
    }

    async fn strip_labels(&self) -> Result<()> {
        let strip = Patch::Merge(json!({"metadata": {"labels": null}}));
        for name in KYMAS {
            self.kymas().patch_metadata(name, &PatchParams::default(), &strip).await?;
        }
        Ok(())
    }

    async fn delete_remote_kymas(&self) -> Result<()> {
        for target in self.landscape.targets() {
            let kymas: Api<Kyma> = Api::namespaced(target.client()?, TARGET_NAMESPACE);
            let uid = kymas.get("default").await?.uid().context("a stored Kyma has a uid")?;
            kymas.delete("default", &DeleteParams::default()).await?;
            gone(kymas, "default", &uid).await?;
        }
        Ok(())
    }

    /// As a restore with Velero leaves it.
    async fn strip_status(&self) -> Result<()> {
        let kymas: Api<DynamicObject> =
            Api::namespaced_with(self.hub.clone(), HUB_NAMESPACE, &ApiResource::erase::<Kyma>(&()));
        for api in [kymas, self.components(), self.greetings()] {
            for mut object in api.list(&ListParams::default()).await?.items {
                object.data["status"] = json!({});
                let name = object.name_any();
                // An operator may report in between.
                until_or_why(&format!("{name} has no status"), DEADLINE, || async {
                    let mut live = api.get(&name).await?;
                    live.data["status"] = json!({});
                    Ok(match api.replace_status(&name, &PostParams::default(), &live).await {
                        Err(kube::Error::Api(status)) if status.is_conflict() => Err(status.message.clone()),
                        stripped => Ok(stripped.map(drop)?),
                    })
                })
                .await?;
            }
        }
        Ok(())
    }

    async fn delete_component_crd(&self) -> Result<()> {
        self.delete_crd("helmcomponents.component.kyma-project.io").await
    }

    async fn restore_component_crd(&self) -> Result<()> {
        self.restore_crd(kyma_api::crds::helm_component()).await
    }

    async fn delete_kyma_crd(&self) -> Result<()> {
        self.delete_crd("kymas.operator.kyma-project.io").await
    }

    async fn restore_kymas(&self) -> Result<()> {
        self.restore_crd(kyma_api::crds::kyma()).await?;
        for name in KYMAS {
            self.fleet.create(name).await?;
        }
        Ok(())
    }

    async fn delete_crd(&self, name: &str) -> Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.hub.clone());
        let uid = crds.get(name).await?.uid().context("a stored CRD has a uid")?;
        crds.delete(name, &DeleteParams::default()).await?;
        gone(crds, name, &uid).await
    }

    async fn restore_crd(&self, crd: CustomResourceDefinition) -> Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.hub.clone());
        let name = crd.name_any();
        crds.create(&PostParams::default(), &crd).await?;
        crd_is_served(&self.hub, &name).await
    }

    async fn delete_kyma(&self, name: &str) -> Result<()> {
        self.kymas().delete(name, &DeleteParams::default()).await?;
        until_or_why(&format!("{name} is gone"), DEADLINE, || async {
            let Some(kyma) = self.kymas().get_opt(name).await? else { return Ok(Ok(())) };
            let components = self.components().list(&ListParams::default()).await?;
            let left: Vec<String> = components
                .items
                .iter()
                .filter(|component| component.metadata.deletion_timestamp.is_some())
                .map(|component| format!("{}: {}", component.name_any(), component.data))
                .collect();
            Ok(Err(format!("{:?} {:?}\n{}", kyma.metadata.finalizers, kyma.status, left.join("\n"))))
        })
        .await
    }

    fn kymas(&self) -> Api<Kyma> {
        self.fleet.kymas()
    }

    fn components(&self) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<HelmComponent>(&());
        Api::namespaced_with(self.hub.clone(), HUB_NAMESPACE, &resource)
    }

    fn greetings(&self) -> Api<DynamicObject> {
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("demo.kyma-project.io", "v1alpha1", "Greeting"));
        Api::namespaced_with(self.hub.clone(), HUB_NAMESPACE, &resource)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }
}

async fn gone<K>(api: Api<K>, name: &str, uid: &str) -> Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let gone = await_condition(api, name, is_deleted(uid));
    tokio::time::timeout(DEADLINE, gone).await.with_context(|| format!("{name} stays"))??;
    Ok(())
}
